"""Log lines: a time and a level, JSON, priorities for the journal, and the same form in processes that follow."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator

import pytest

from tailrace.process import log_lines

LOG = logging.getLogger("tailrace")


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the loggers of the test's process back what they had."""
    monkeypatch.setenv("TAILRACE_LOG", "")
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    root = logging.getLogger()
    kept = LOG.handlers, LOG.level, root.handlers
    yield
    LOG.handlers, root.handlers = kept[0], kept[2]
    LOG.setLevel(kept[1])


def test_a_line_has_a_time_and_a_level_and_an_error_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show()
    LOG.info("begun")
    LOG.error("It is gone.", extra={"remedy": "Bring it back."})
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"{time} INFO begun\n{time} ERROR It is gone\.\n  Bring it back\.\n", capsys.readouterr().err)


def test_json_has_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show("json")
    LOG.error("It is\ngone.", extra={"remedy": "Bring it back.", "exit_code": 5})
    logging.getLogger("other").warning("beside")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", first.pop("timestamp"))
    assert first == {
        "level": "ERROR", "logger": "tailrace", "message": "It is\ngone.", "remedy": "Bring it back.", "exit_code": 5,
    }  # fmt: skip
    assert (second["logger"], second["message"]) == ("other", "beside")


def test_the_journal_gets_a_priority_for_each_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
    log_lines.show()
    LOG.error("It is gone.", extra={"remedy": "Bring it back."})
    LOG.warning("late")
    assert capsys.readouterr().err == "<3>It is gone.\n<3>  Bring it back.\n<4>late\n"
    monkeypatch.setenv("JOURNAL_STREAM", "1:1")
    assert not log_lines.is_journal()


def test_a_process_that_follows_writes_as_the_driver_does(capsys: pytest.CaptureFixture[str]) -> None:
    log_lines.show("json", logging.INFO)
    root, LOG.handlers = logging.getLogger(), []
    root.handlers = []
    log_lines.follow()
    LOG.info("from the planner")
    assert json.loads(capsys.readouterr().err)["message"] == "from the planner"


def test_without_a_driver_that_shows_lines_only_warnings_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers, LOG.handlers = [], []
    log_lines.follow()
    LOG.info("quiet")
    LOG.warning("loud")
    assert capsys.readouterr().err.endswith(" WARNING loud\n")
    # A process with handlers of its own keeps them.
    LOG.handlers = [kept := logging.NullHandler()]
    log_lines.follow()
    assert LOG.handlers == [kept]


def test_stacks_are_hidden_unless_the_option_or_debug_says_otherwise() -> None:
    LOG.setLevel(logging.INFO)
    log_lines.hide_stacks(hidden=False)
    assert not os.environ["SPARK_HIDE_TRACEBACK"]
    LOG.setLevel(logging.DEBUG)
    log_lines.hide_stacks(hidden=True)
    assert not os.environ["SPARK_HIDE_TRACEBACK"]
    LOG.setLevel(logging.INFO)
    log_lines.hide_stacks(hidden=True)
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"
