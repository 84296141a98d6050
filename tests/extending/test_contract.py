"""The connector of another package under the contract; its own tests need little more than the fixture `subject`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from textwrap import indent

import pytest

from tailrace.snapshot.signals import Signal
from tests.contract.promises import *  # noqa: F403
from tests.contract.query import Query, numbers
from tests.contract.subject import TABLE, Lose, Subject

PACKAGE = Path(__file__).parent / "database"


class ToylogSubject(Subject):
    connector = "toylog"
    table = f"log.{TABLE}"
    secrets = ()

    def __init__(self, log: Path) -> None:
        self._log = log
        log.touch()
        self.snapshot, self.signals = {"snapshot.mode": "initial"}, {"signal.data.collection": "log.signals"}
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


def test_a_signal_begins_a_blocking_snapshot(subject: Subject) -> None:
    subject.insert(1, 2)
    with Query(subject, subject.signals) as query:
        query.begin()
        assert numbers(query.until(2)) == [("c", 1), ("c", 2)]
        asked = json.dumps({"type": "blocking", "data-collections": [subject.table]})
        query.descriptor.load_send_signal()(query.config, Signal("one", "execute-snapshot", asked))
        assert numbers(query.until(2)) == [("r", 1), ("r", 2)]
        subject.insert(3)
        assert numbers(query.until(1)) == [("c", 3)]


def test_the_chapter_of_the_documentation_shows_this_code() -> None:
    (page,) = (Path(__file__).parents[2] / "docs").rglob("extending.md")
    chapter = page.read_text().partition("\n## A database\n")[2].partition("\n## ")[0]
    sources = [path.read_text() for path in (PACKAGE / "toylog").glob("*.py")]
    shown = re.findall(r"```python\n(.*?)```", chapter, re.DOTALL)
    assert shown
    forms = [(part, indent(part, "    ")) for part in shown]
    assert [part for part, method in forms if not any(part in one or method in one for one in sources)] == []
