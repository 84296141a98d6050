"""A process's temporary directories are removed when it ends; those of a killed process with the next start."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.process import temporary

PREFIX = "tailrace-sockets-"
OWNER = f"""
import sys, tempfile
from tailrace.process import temporary
tempfile.tempdir = sys.argv[1]
print(temporary.folder({PREFIX!r}), flush=True)
sys.stdin.read()
"""


def started(folder: Path) -> subprocess.Popen[str]:
    """Run a process that has a directory and prints its path."""
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def owner(tmp_path: Path) -> subprocess.Popen[str]:
    """Return a process that has a directory."""
    return started(tmp_path)


def line(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(
    owner: subprocess.Popen[str], tmp_path: Path
) -> None:
    theirs = line(owner)
    (theirs / "socket").touch()
    others = tmp_path / f"{PREFIX}of-nobody"
    others.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(theirs)
    mine = Path(temporary.folder(PREFIX))
    assert mine.stat().st_mode & 0o077 == 0
    assert (theirs / "socket").exists()
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    assert theirs.exists()
    with started(tmp_path) as next_one:
        assert line(next_one).exists()
        assert not theirs.exists()
        assert mine.exists()
        # The owner is unknown.
        assert others.exists()
        next_one.communicate("")


def test_a_process_looks_once_for_what_others_left(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    monkeypatch.setattr(temporary, "sweep", looks.append)
    folders = {temporary.folder(PREFIX), temporary.folder(PREFIX), temporary.folder(f"{PREFIX}other-")}
    assert len(folders) == 3
    assert looks == [PREFIX, f"{PREFIX}other-"]


def test_a_process_that_ends_removes_its_own(owner: subprocess.Popen[str]) -> None:
    theirs = line(owner)
    assert theirs.exists()
    owner.communicate("")
    assert owner.returncode == 0
    assert not theirs.exists()
