"""The class archive: the classes of Spark's JVM as it has them in memory, in one file that each start maps. Driver.

A start of Spark loads and checks some 12,000 classes, which takes several seconds of CPU. Java calls such a file an
application class-data sharing archive. The JVM maps it where Java, jars and class path are those that it was made with,
and does without where they are not; but it believes what the file holds, and crashes over one that is damaged. So a
file counts only under a name that says what it was made of and what its bytes are (`usable`). It gets that name in one
step, when it is on disk as a whole and a session has run with it (`make`).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import PrerequisiteError
from tailrace.spark.gateway import spark_home
from tailrace.spark.java import cache_directory, find_java

COMMAND = "command.json"
"""Where a training session writes the JVM that it has run in: an object with `java`, `options` and `path`."""

_FORM = b"2"
"""Another one for archives that are made in another way."""

_SECONDS = 600.0
_LOCK = "lock"
_WORK = "new-"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def directory() -> Path:
    """Where archives are kept, as a rule a single one of some 100 MB."""
    return cache_directory() / "classes"


def flags(archive: Path | None) -> str:
    """Java's options for a JVM that maps `archive`, as Spark's launcher takes them; empty without one.

    A JVM to which the archive does not apply, since its class path is another one, says nothing of it.
    """
    return "" if archive is None else f"{shlex.quote(f'-XX:SharedArchiveFile={archive}')} -Xshare:auto -Xlog:cds*=off"


def usable(java: Path, spark: Path, folder: Path | None = None) -> Path | None:
    """The newest archive for the program `java` and the Spark in the directory `spark`; None where there is none.

    It was made with this Java and these jars, is as it was made to the last byte, and nobody else can write to it.
    """
    folder = folder or directory()
    try:
        if not _is_private(folder):
            return None
        name = _name(java, spark)
        found = sorted(folder.glob(f"{name}-*.jsa"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return next((path for path in found if _is_private(path) and path.name == _named(name, path)), None)
    except OSError:
        return None


def make(folder: Path | None = None, seconds: float = _SECONDS) -> Path:
    """An archive for the Java and the Spark that sessions of this process would have; the one that is there, if any.

    Runs Spark twice, in processes of its own: to see which classes it loads, and to try the archive. Takes half a
    minute. Whoever comes while another process does the same waits for it. Replaces archives of an earlier Java or
    Spark in the same places. Raises PrerequisiteError where there is no Java, or where it makes no archive.
    """
    java, _ = find_java()
    spark = spark_home()
    folder = folder or directory()
    try:
        with _alone(folder):
            _sweep(folder)
            found = usable(java, spark, folder)
            if found is not None:
                return found
            work = Path(tempfile.mkdtemp(prefix=_WORK, dir=folder))
            try:
                made = _made(work, seconds)
                return _keep(made, _name(java, spark), folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise _failed(f"{error.strerror or error} ({folder})") from None


def _made(work: Path, seconds: float) -> Path:
    """A new archive in the directory `work` that a session has run with."""
    listed, made = work / "classes.lst", work / "classes.jsa"
    _train(work, shlex.quote(f"-XX:DumpLoadedClassList={listed}"), seconds)
    command = json.loads((work / COMMAND).read_text())
    dump = ["-Xshare:dump", f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={made}", "-Xlog:disable"]
    _run([command["java"], *command["options"], *dump, "-cp", command["path"]], os.environ, seconds)
    if not made.is_file():
        raise _failed("this Java makes none")
    # Without this archive such a JVM does not start.
    _train(work, f"-Xshare:on {shlex.quote(f'-XX:SharedArchiveFile={made}')}", seconds)
    return made


def _train(work: Path, options: str, seconds: float) -> None:
    """Run a session whose JVM has further options, and the queries of `tailrace.spark.training` in it."""
    (work / COMMAND).unlink(missing_ok=True)
    command = [sys.executable, "-m", "tailrace.spark.training", str(work), options]
    _run(command, {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}, seconds)


def _run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> None:
    """Raises PrerequisiteError, with the last line that it has printed, where the command fails or takes too long."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise _failed(f"it was not made within {seconds:.0f} s") from None
    if done.returncode:
        printed = (done.stderr + done.stdout).decode(errors="replace").strip().splitlines()
        raise _failed(printed[-1] if printed else f"exit code {done.returncode}")


def _failed(why: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"No class archive was made: {why}.", "Nothing needs it: without one, sessions take longer to start."
    )


def _keep(made: Path, name: str, folder: Path) -> Path:
    """Give the file its name in `folder`, in one step, and remove what it replaces."""
    with made.open("rb+") as file:
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    kept = folder / _named(name, made)
    made.rename(kept)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    # A JVM that has mapped one of these keeps it.
    for other in folder.glob(f"{name.rpartition('-')[0]}-*.jsa"):
        if other != kept:
            other.unlink(missing_ok=True)
    return kept


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, which is made for this user to write to; it ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove what processes have left that were killed; called with the lock."""
    for left in folder.glob(f"{_WORK}*"):
        shutil.rmtree(left, ignore_errors=True)


def _is_private(path: Path) -> bool:
    """Whether nobody but this user and root can write to it."""
    found = path.lstat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode)


def _named(name: str, archive: Path) -> str:
    """The name of an archive with these bytes."""
    with archive.open("rb") as file:
        return f"{name}-{hashlib.file_digest(file, 'sha256').hexdigest()}.jsa"


def _name(java: Path, spark: Path) -> str:
    """Where Java and Spark are, and which they are: two digests. Raises OSError where they cannot be looked at."""
    home = java.resolve(strict=True).parents[1]
    places = [home, spark.resolve()]
    files = [*(home / "lib").glob("**/libjvm.*"), home / "lib" / "modules", *sorted((spark / "jars").glob("*.jar"))]
    parts = [_FORM, (home / "release").read_bytes(), *(_described(file) for file in files)]
    return f"{_digest([str(place).encode() for place in places])[:12]}-{_digest(parts)[:20]}"


def _described(file: Path) -> bytes:
    # whole seconds, as the JVM compares them: an image of a container keeps no more
    found = file.stat()
    return f"{file.name} {found.st_size} {int(found.st_mtime)}".encode()


def _digest(parts: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
