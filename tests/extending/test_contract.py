"""The connector of another package under the contract; its own tests need no more than this."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.contract.promises import *  # noqa: F403
from tests.contract.subject import TABLE, Lose, Subject

PACKAGE = Path(__file__).parent / "database"


class ToylogSubject(Subject):
    connector = "toylog"
    table = f"log.{TABLE}"
    secrets = ()

    def __init__(self, log: Path) -> None:
        self._log = log
        log.touch()
        self.snapshot, self.signals = {}, {}
        self.options = {"topic.prefix": "contract", "log.file": str(log)}

    def insert(self, *numbers: int) -> None:
        with self._log.open("a") as log:
            for number in numbers:
                row = {"id": number, "item": "thing"}
                change = {"op": "c", "table": TABLE, "before": None, "after": row, "at_us": 1_700_000_000_000_000}
                log.write(json.dumps(change) + "\n")

    def at_work(self) -> AbstractContextManager[object]:
        return nullcontext()

    @contextmanager
    def losable(self) -> Iterator[tuple[Mapping[str, str], Lose]]:
        yield self.options, self._log.unlink


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subject]:
    """The connector as if its package were installed, with a log of its own."""
    monkeypatch.syspath_prepend(PACKAGE)
    yield ToylogSubject(tmp_path / "changes.jsonl")
    for name in [name for name in sys.modules if name.partition(".")[0] == "toylog"]:
        del sys.modules[name]
