"""Planners and workers whose JVM has gone end without a stack trace; other failures are reported as ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.spark.startup.python import worker_python

REFUSED = """\
from pyspark.errors import PySparkRuntimeError
raise PySparkRuntimeError(errorClass="CANNOT_OPEN_SOCKET", messageParameters={"errors": "gone"})
"""
DAEMON = """\
import traceback
try:
    raise {}
except OSError:
    traceback.print_exc()
"""
LIBRARY = """\
import traceback
def tell():
    try:
        raise BrokenPipeError("of a library")
    except OSError:
        traceback.print_exc()
"""


def told(folder: Path, text: str) -> str:
    """Return the stderr of a module of this text, started like PySpark's modules."""
    (folder / "started.py").write_text(text)
    (folder / "library.py").write_text(LIBRARY)
    python = worker_python()
    assert python != sys.executable
    done = subprocess.run(
        [python, "-m", "started", "one", "two"],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "raise BrokenPipeError",
        "raise ConnectionResetError",
        REFUSED,
        DAEMON.format("BrokenPipeError"),
        "import sys; assert sys.argv[1:] == ['one', 'two'] and __name__ == '__main__'; import library",
    ],
)
def test_who_is_left_alone_says_nothing(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("raise ValueError('told')", "ValueError: told"),
        ("raise OSError('told')", "OSError: told"),
        (DAEMON.format("OSError('told')"), "OSError: told"),
        ("import library; library.tell()", "BrokenPipeError: of a library"),
    ],
)
def test_other_failures_are_told(tmp_path: Path, text: str, last: str) -> None:
    assert told(tmp_path, text).strip().endswith(last)
