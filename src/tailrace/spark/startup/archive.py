"""The class archive: a file with the classes of Spark's JVM in their in-memory form, which the JVM maps. Driver.

A start of Spark loads and checks some 12,000 classes, which takes several seconds of CPU; the archive saves most of
this. Java calls such a file an application class-data sharing archive. The JVM ignores an archive made with another
Java, other jars or another class path. But it does not check the file's content, and crashes on a damaged file. The
name of an archive therefore contains digests of its inputs and of its bytes, and `usable` compares both. `make` gives
the file this name in one step, after the file is complete on disk and a session has run with it.
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
from tailrace.spark.capabilities import spark_home
from tailrace.spark.startup.java import cache_directory, find_java

COMMAND = "command.json"
"""File in which a training session describes its JVM: a JSON object with `java`, `options` and `path`."""

_FORM = b"2"
"""Version of the way in which archives are made; part of the digest in their names."""

_SECONDS = 600.0
_LOCK = "lock"
_WORK = "new-"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def directory() -> Path:
    """Return the directory of the archives: usually one file of some 100 MB."""
    return cache_directory() / "classes"


def flags(archive: Path | None) -> str:
    """Return Java's options for mapping `archive`, quoted for Spark's launcher; "" without an archive.

    A JVM with another class path ignores the archive without a warning.
    """
    return "" if archive is None else f"{shlex.quote(f'-XX:SharedArchiveFile={archive}')} -Xshare:auto -Xlog:cds*=off"


def usable(java: Path, spark: Path, folder: Path | None = None) -> Path | None:
    """Return the newest archive for the program `java` and the Spark in the directory `spark`; None without one.

    The archive was made with this Java and these jars, its bytes are unchanged, and no other user can write to it.
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
    """Make an archive for the Java and the Spark of this process's sessions, or return the existing one.

    Runs Spark twice, in separate processes: to list the classes that it loads, and to try the archive. Takes half a
    minute. Waits while another process makes one. Replaces archives of an earlier Java or Spark at the same paths.
    Raises PrerequisiteError if there is no Java, or if it makes no archive.
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
    """Make an archive in the directory `work` and run a session with it."""
    listed, made = work / "classes.lst", work / "classes.jsa"
    _train(work, shlex.quote(f"-XX:DumpLoadedClassList={listed}"), seconds)
    command = json.loads((work / COMMAND).read_text())
    dump = ["-Xshare:dump", f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={made}", "-Xlog:disable"]
    _run([command["java"], *command["options"], *dump, "-cp", command["path"]], os.environ, seconds)
    if not made.is_file():
        raise _failed("this Java makes none")
    # With -Xshare:on the JVM does not start unless it can map the archive.
    _train(work, f"-Xshare:on {shlex.quote(f'-XX:SharedArchiveFile={made}')}", seconds)
    return made


def _train(work: Path, options: str, seconds: float) -> None:
    """Run the queries of `tailrace.spark.training` in a session whose JVM gets `options` in addition."""
    (work / COMMAND).unlink(missing_ok=True)
    command = [sys.executable, "-m", "tailrace.spark.training", str(work), options]
    _run(command, {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}, seconds)


def _run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> None:
    """Run a command. Raises PrerequisiteError if it takes too long, or, with its last printed line, if it fails."""
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
    """Rename the file into `folder` in one step, and remove the archives that it replaces."""
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
    # A JVM that has mapped a removed archive keeps its mapping.
    for other in folder.glob(f"{name.rpartition('-')[0]}-*.jsa"):
        if other != kept:
            other.unlink(missing_ok=True)
    return kept


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Create `folder`, writable for this user alone, and hold its lock, at the latest until the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove the work directories of killed processes. The caller holds the lock."""
    for left in folder.glob(f"{_WORK}*"):
        shutil.rmtree(left, ignore_errors=True)


def _is_private(path: Path) -> bool:
    """Return True if only this user and root can write to `path`, and it is no symbolic link."""
    found = path.lstat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode)


def _named(name: str, archive: Path) -> str:
    """Return the file name of an archive: `name` and the digest of its bytes."""
    with archive.open("rb") as file:
        return f"{name}-{hashlib.file_digest(file, 'sha256').hexdigest()}.jsa"


def _name(java: Path, spark: Path) -> str:
    """Return two digests: of the paths of Java and Spark, and of their versions. Raises OSError if one is missing."""
    home = java.resolve(strict=True).parents[1]
    places = [home, spark.resolve()]
    files = [*(home / "lib").glob("**/libjvm.*"), home / "lib" / "modules", *sorted((spark / "jars").glob("*.jar"))]
    parts = [_FORM, (home / "release").read_bytes(), *(_described(file) for file in files)]
    return f"{_digest([str(place).encode() for place in places])[:12]}-{_digest(parts)[:20]}"


def _described(file: Path) -> bytes:
    # whole seconds, as the JVM compares them: a container image does not keep fractions
    found = file.stat()
    return f"{file.name} {found.st_size} {int(found.st_mtime)}".encode()


def _digest(parts: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
