"""Deliberate differences between events of MySQL and MariaDB and the recordings, each with its reason.

`docs/databases/mysql.md` has these differences for users.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from tests.golden.accept import Place
from tests.golden.case import Case
from tests.golden.normalise import payload
from tests.golden.record import Record
from tests.golden.wire import NULL, Text, write

LABEL = "the stream's label of an ENUM is the label, not its form in the list of labels"
UUID = "a UUID that ends in zeros is filled up at its end"
YEAR = "the year 0000 is 0"
ZERO = "a zero TIMESTAMP that may be null is null in the stream, too"
DEFAULT = "a default is the text that quotes and escapes mean, or the bytes and numbers that digits mean"
FLOAT = "a FLOAT has the shortest digits of its number"
TIME = "a negative TIME within JSON is the time"
ROW = "a statement has no row"
UPDATED = "a TIMESTAMP with ON UPDATE counts nothing up"
DECODED = "a text of a latin1 column is decoded as such"
EARLY = "a DATETIME before 1582 is the same in the snapshot and in the stream"
SYNONYM = "a type means the same under each of its names"
TODAY = "CURRENT_DATE is that of the run"
POSITION = "the records of a blocking snapshot have its position"

Rule = Callable[[Case, Place, object, object], str | None]


def _text(leaf: object) -> str | None:
    return leaf.string if isinstance(leaf, Text) else None


def _label(case: Case, place: Place, wanted: object, got: object) -> str | None:
    one, other = _text(wanted), _text(got)
    return (
        LABEL if one is not None and other is not None and "\\," in one and one.replace("\\,", ",") == other else None
    )


def _uuid(case: Case, place: Place, wanted: object, got: object) -> str | None:
    one, other = _text(wanted), _text(got)
    if case.database != "mariadb" or one is None or other is None or len(one) != 36 or len(other) != 36:
        return None
    shifted, whole = one.replace("-", ""), other.replace("-", "")
    return UUID if shifted.lstrip("0") == whole.rstrip("0") and shifted != whole else None


def _year(case: Case, place: Place, wanted: object, got: object) -> str | None:
    return YEAR if str(wanted) in ("1900", "2000") and str(got) == "0" else None


def _zero(case: Case, place: Place, wanted: object, got: object) -> str | None:
    is_epoch = (_text(wanted) or "").startswith("1970-01-01T00:00:00")
    is_none = got == NULL or _text(got) == "1970-01-01T00:00:00Z"
    return ZERO if case.database == "mariadb" and is_epoch and is_none else None


def _synonym(case: Case, place: Place, wanted: object, got: object) -> str | None:
    if case.path.name != "types_synonyms":
        return None
    is_integer = (str(wanted), str(got)) == ("-1", "4294967295")
    return SYNONYM if is_integer or (wanted == NULL and re.fullmatch(r"-?\d+\.\d+", str(got))) else None


def _today(case: Case, place: Place, wanted: object, got: object) -> str | None:
    numbers = (str(wanted), str(got))
    if case.path.name != "defaults" or not all(re.fullmatch(r"2\d{4}", one) for one in numbers):
        return None
    # midnight may have passed since
    return TODAY if 0 <= int(time.time()) // 86_400 - int(numbers[1]) <= 1 else None


def _default(case: Case, place: Place, wanted: object, got: object) -> str | None:
    if case.path.name != "defaults":
        return None
    pairs = {
        ("it''s \"q\" \\\\ \\n ü", "it's \"q\" \\ \n ü"),
        ("1", "10"), ("1", "16"), ("YWJcMFww", "YWIAAA=="), ("XDA/", "AD8="),
        ("YWI=", "YWIAAA=="), ("MDBmZg==", "AP8="), ("XDDvv70=", "AP8="),
    }  # fmt: skip
    shown = tuple(_text(leaf) or str(leaf) for leaf in (wanted, got))
    return DEFAULT if shown in pairs else None


def _float(case: Case, place: Place, wanted: object, got: object) -> str | None:
    return FLOAT if (str(wanted), str(got)) == ("1.17549435E-38", "1.1754944E-38") else None


def _time(case: Case, place: Place, wanted: object, got: object) -> str | None:
    return TIME if (_text(wanted) or "") == '"631:0-60:0-59"' else None


def _decoded(case: Case, place: Place, wanted: object, got: object) -> str | None:
    return DECODED if case.path.name == "converter_jdbc_sink" and _text(wanted) == "\ufffd" else None


def _early(case: Case, place: Place, wanted: object, got: object) -> str | None:
    numbers = (str(wanted), str(got))
    if case.path.name != "converter_zero_date" or not all(re.fullmatch(r"-\d+", one) for one in numbers):
        return None
    apart = int(numbers[1]) - int(numbers[0])
    return EARLY if apart in (2 * 86_400_000, 2 * 86_400_000_000) else None


def _row(case: Case, place: Place, wanted: object, got: object) -> str | None:
    return (
        ROW
        if case.path.name in ("ddl_create_drop", "without_gtids") and (str(wanted), str(got)) == ("1", "0")
        else None
    )


def _updated(case: Case, place: Place, wanted: object, got: object) -> str | None:
    return UPDATED if case.path.name == "defaults" and (str(wanted), str(got)) == ("true", "false") else None


def _position(case: Case, place: Place, wanted: object, got: object) -> str | None:
    if case.path.name != "blocking_snapshot_records":
        return None
    places = [re.fullmatch(r"<pos \d+>", _text(leaf) or str(leaf)) for leaf in (wanted, got)]
    return POSITION if all(places) else None


RULES: tuple[Rule, ...] = (
    _label, _uuid, _year, _zero, _default, _float, _time, _decoded, _early, _row, _updated, _synonym, _today, _position,
)  # fmt: skip


class Reasons:
    """The reasons for one case."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def of_value(self, place: Place, wanted: object, got: object) -> str | None:
        """Return why a value may differ; None if it may not."""
        return next((why for rule in RULES if (why := rule(self._case, place, wanted, got)) is not None), None)

    def of_schema(self, wanted: object, got: object) -> str | None:
        """Return why a piece of a schema may differ; None if it may not."""
        kinds = (('"int32"', '"int64"'), ('"double"', '"float"'))
        if self._case.path.name == "types_synonyms" and (str(wanted), str(got)) in kinds:
            return SYNONYM
        return _default(self._case, Place(), wanted, got)

    def comparable(self, records: list[Record]) -> list[Record]:
        """Return the records that can be compared.

        Those of a table that was not in the lists yet come again after a restart if the batch before ended at them.
        """
        if self._case.path.name != "table_added_later":
            return records
        return [
            one for one in records if not (one.topic.endswith(".golden.a1") and write(payload(one.key)) == '{"id":2}')
        ]
