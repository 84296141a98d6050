"""The right class archive is used, and unfinished ones are removed. No JVM runs here."""

from __future__ import annotations

import datetime
import errno
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tailrace.command import cli
from tailrace.errors import PrerequisiteError
from tailrace.spark.startup import archive
from tests.extent import sized

Run = Callable[[Sequence[str], Mapping[str, str], float], None]


class Machine:
    """A Java, a Spark and a directory of archives in `root`; the commands of `make` are simulated."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.folder = root / "classes"
        self.java = root / "java" / "bin" / "java"
        self.spark = root / "spark"
        files = (
            "java/bin/java",
            "java/lib/modules",
            "java/lib/server/libjvm.so",
            "spark/jars/a.jar",
            "spark/jars/b.jar",
        )
        for name in (*files, "java/release"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
        monkeypatch.setattr(archive, "find_java", lambda: (self.java, 17))
        monkeypatch.setattr(archive, "spark_home", lambda: self.spark)
        self.plays(monkeypatch, self.run)

    def plays(self, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
        monkeypatch.setattr(archive, "_run", run)

    def run(self, command: Sequence[str], environment: Mapping[str, str], seconds: float) -> None:
        """Write the files of a training session and of a JVM that dumps."""
        if "-Xshare:dump" in command:
            (made,) = (part.partition("=")[2] for part in command if part.startswith("-XX:SharedArchiveFile="))
            Path(made).write_bytes(b"the classes")
            with (self.root / "dumps").open("a") as dumps:
                dumps.write("one\n")
            return
        work = Path(command[3])
        (work / archive.COMMAND).write_text(json.dumps({"java": "java", "options": ["-Xmx2g"], "path": "a.jar"}))

    def usable(self) -> Path | None:
        return archive.usable(self.java, self.spark, self.folder)

    def make(self) -> Path:
        return archive.make(self.folder)

    def left(self) -> list[str]:
        """Return the files in the directory except the lock."""
        return sorted(path.name for path in self.folder.iterdir() if path.name != "lock")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_an_archive_that_was_made_counts_and_is_not_made_again(machine: Machine) -> None:
    assert machine.usable() is None
    made = machine.make()
    assert machine.usable() == made
    assert made.read_bytes() == b"the classes"
    assert machine.make() == made
    assert machine.left() == [made.name]
    assert (machine.root / "dumps").read_text() == "one\n"


def test_java_is_given_the_archive_and_goes_on_without_it() -> None:
    assert archive.flags(None) == ""
    assert archive.flags(Path("/a/b.jsa")) == "-XX:SharedArchiveFile=/a/b.jsa -Xshare:auto -Xlog:cds*=off"
    assert archive.flags(Path("/a b/c.jsa")).startswith("'-XX:SharedArchiveFile=/a b/c.jsa' ")


@pytest.mark.parametrize("length", [0, 1, 5, 10])
def test_a_truncated_archive_does_not_count(machine: Machine, length: int) -> None:
    made = machine.make()
    os.truncate(made, length)
    assert machine.usable() is None
    # It is replaced.
    assert machine.make().read_bytes() == b"the classes"
    assert len(machine.left()) == 1


def test_an_archive_with_one_other_byte_does_not_count(machine: Machine) -> None:
    made = machine.make()
    made.write_bytes(b"the classeS")
    assert machine.usable() is None


def grown(path: Path) -> None:
    path.write_text(path.read_text() + "+")


def later(path: Path) -> None:
    os.utime(path, (1, 1))


@pytest.mark.parametrize("change", [grown, later])
@pytest.mark.parametrize("name", ["java/lib/modules", "java/lib/server/libjvm.so", "spark/jars/a.jar"])
def test_another_java_or_spark_in_the_same_place_has_none(
    machine: Machine, name: str, change: Callable[[Path], None]
) -> None:
    before = machine.make()
    change(machine.root / name)
    assert machine.usable() is None
    after = machine.make()
    assert machine.usable() == after != before
    # The archives of the earlier version are gone.
    assert machine.left() == [after.name]


@pytest.mark.parametrize("name", ["java/release", "spark/jars/b.jar"])
def test_a_java_or_spark_that_lacks_a_file_has_none(machine: Machine, name: str) -> None:
    machine.make()
    (machine.root / name).unlink()
    assert machine.usable() is None


def test_a_further_jar_of_spark_leaves_none(machine: Machine) -> None:
    machine.make()
    (machine.spark / "jars" / "c.jar").touch()
    assert machine.usable() is None


def test_a_java_in_another_place_has_its_own(machine: Machine) -> None:
    first = machine.make()
    shutil.copytree(machine.root / "java", machine.root / "other")
    machine.java = machine.root / "other" / "bin" / "java"
    assert machine.usable() is None
    second = machine.make()
    assert machine.left() == sorted([first.name, second.name])


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_what_others_can_write_to_does_not_count(machine: Machine, bit: int) -> None:
    made = machine.make()
    for path, mode in ((made, 0o644), (machine.folder, 0o755)):
        path.chmod(mode | bit)
        assert machine.usable() is None
        path.chmod(mode)
        assert machine.usable() == made


def test_a_link_does_not_count(machine: Machine) -> None:
    made = machine.make()
    made.rename(machine.root / "elsewhere")
    made.symlink_to(machine.root / "elsewhere")
    assert machine.usable() is None


def test_a_directory_that_cannot_be_read_has_none(machine: Machine) -> None:
    machine.folder.write_text("a file")
    assert machine.usable() is None
    with pytest.raises(PrerequisiteError, match=r"No class archive was made: .*classes"):
        machine.make()


@pytest.mark.parametrize("failing", ["-XX:DumpLoadedClassList=", "-Xshare:dump", "-Xshare:on"])
def test_a_step_that_fails_leaves_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """The JVM that writes the archive ends, as on a full disk, or a JVM with a damaged archive does not start."""

    def run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> None:
        machine.run(command, environment, seconds)
        if any(failing in part for part in command):
            raise archive._failed("No space left on device")

    machine.plays(monkeypatch, run)
    with pytest.raises(PrerequisiteError, match="No space left on device"):
        machine.make()
    assert machine.left() == []
    assert machine.usable() is None


@pytest.mark.parametrize("call", ["fsync", "fchmod", "mkdtemp", "rename"])
def test_a_disk_that_is_full_leaves_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place: Any = {"mkdtemp": tempfile, "rename": Path}.get(call, os)
    with monkeypatch.context() as patched:
        patched.setattr(place, call, refuse)
        with pytest.raises(PrerequisiteError, match="No space left on device"):
            machine.make()
    assert machine.left() == []
    assert machine.usable() is None
    assert machine.make() == machine.usable()


def test_a_java_that_makes_none_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> None:
        if "-Xshare:dump" not in command:
            machine.run(command, environment, seconds)

    machine.plays(monkeypatch, run)
    with pytest.raises(PrerequisiteError, match="this Java makes none"):
        machine.make()
    assert machine.left() == []


def child(work: Callable[[], object]) -> int:
    """Run `work` in a child process. Return its process id; its exit code is 0 if nothing was raised."""
    made = os.fork()
    if made == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return made


def code_of(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def killed_at(line: int, work: Callable[[], object]) -> int:
    """Run `work` in a process that is killed before its `line`th line in the module. Return the exit code.

    No exception handler runs, and nothing is closed.
    """
    passed = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal passed
        if frame.f_code.co_filename != archive.__file__:
            return None
        if event == "line":
            passed += 1
            if passed == line:
                os._exit(9)
        return count

    def traced() -> None:
        sys.settrace(count)
        work()

    return code_of(child(traced))


STEP = sized(4, 1)
"""A short run kills before every fourth line, and begins with another line each day."""


def test_a_process_that_is_killed_leaves_nothing_that_counts(machine: Machine) -> None:
    """Whatever the line, a complete archive or none is left, and the next process makes one."""
    expected = machine.make()
    shutil.rmtree(machine.folder)
    line, code = datetime.date.today().toordinal() % STEP - STEP + 1, 9
    while code == 9:
        line += STEP
        code = killed_at(line, machine.make)
        found = machine.usable() if machine.folder.exists() else None
        assert found in (None, expected), line
        assert found is None or found.read_bytes() == b"the classes", line
        if line // STEP % 10 == 0:
            assert machine.make() == expected
            assert machine.left() == [expected.name]
        shutil.rmtree(machine.folder, ignore_errors=True)
    assert code == 0
    assert line > 50


def test_of_several_processes_at_once_one_makes_it(machine: Machine) -> None:
    processes = [child(machine.make) for _ in range(5)]
    assert [code_of(process) for process in processes] == [0] * 5
    assert (machine.root / "dumps").read_text() == "one\n"
    assert machine.usable() is not None
    assert len(machine.left()) == 1


def test_a_session_that_starts_meanwhile_takes_what_is_whole(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an archive is replaced, one of the two is found, or none."""
    machine.make()
    (machine.spark / "jars" / "a.jar").write_text("another one")
    maker = child(machine.make)
    found: set[bytes | None] = set()
    while os.waitpid(maker, os.WNOHANG) == (0, 0):
        path = machine.usable()
        found.add(None if path is None else path.read_bytes())
        time.sleep(0)
    assert found <= {None, b"the classes"}
    assert machine.usable() is not None


def test_what_a_command_says_when_it_fails_is_in_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=r"No class archive was made: the last line\."):
        archive._run(["sh", "-c", "echo first >&2; echo the last line >&2; exit 3"], os.environ, 60)
    with pytest.raises(PrerequisiteError, match="exit code 3"):
        archive._run(["sh", "-c", "exit 3"], os.environ, 60)
    with pytest.raises(PrerequisiteError, match="not made within 0 s"):
        archive._run(["sleep", "60"], os.environ, 0.1)


def test_the_command_shows_where_it_is(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archive, "directory", lambda: machine.folder)
    assert cli.main(["warm"]) == 0
    assert capsys.readouterr().out == f"{machine.usable()}\n"
    monkeypatch.setattr(archive, "_run", lambda *_: (_ for _ in ()).throw(archive._failed("no room")))
    shutil.rmtree(machine.folder)
    assert cli.main(["warm"]) == 4
    assert "No class archive was made: no room." in capsys.readouterr().err
