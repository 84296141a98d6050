"""Where events of MySQL and MariaDB differ from the recordings on purpose, each with its reason."""

from __future__ import annotations

from tests.golden.accept import Place
from tests.golden.case import Case
from tests.golden.record import Record


class Reasons:
    """The reasons for one case."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def of_value(self, place: Place, wanted: object, got: object) -> str | None:
        """Return why a value may differ; None if it may not."""
        return None

    def of_schema(self, wanted: object, got: object) -> str | None:
        """Return why a piece of a schema may differ; None if it may not."""
        return None

    def comparable(self, records: list[Record]) -> list[Record]:
        """Return the records that can be compared."""
        return records
