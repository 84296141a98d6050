"""A real JVM accepts a complete class archive, and, in a full run, does the expected with others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extent import turn

# Spark's own class, which every session loads.
_CLASS = "org.apache.spark.SparkContext "
_SHARED = "source: shared objects file"


@pytest.fixture(scope="module")
def archive() -> Path:
    """Return the archive of `tailrace warm`, made once, because that takes longer than the tests."""
    command = [sys.executable, "-m", "tailrace.command.cli", "warm"]
    made = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    found = Path(made.stdout.strip())
    assert found.is_file()
    return found


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process that shares nothing with this one's Spark."""
    given = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**given, **more}


def is_taken(work: Path, **more: str) -> bool:
    """Return True if a session's JVM has loaded its classes from the archive.

    The session must run its queries and print nothing.
    """
    listed = work / "loaded"
    options = f"-Xlog:class+load:file={listed}"
    command = [sys.executable, "-m", "tailrace.spark.training", str(work), options]
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (line,) = (line for line in listed.read_text().splitlines() if _CLASS in line)
    return _SHARED in line


@turn(2, 6)
@pytest.mark.usefixtures("archive")
def test_a_session_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    assert is_taken(tmp_path)


@pytest.mark.full
@pytest.mark.usefixtures("archive")
def test_a_session_with_another_class_path_goes_on_without_it(tmp_path: Path) -> None:
    jar = tmp_path / "conf"
    jar.mkdir()
    (jar / "spark-defaults.conf").write_text("")
    assert not is_taken(tmp_path, SPARK_CONF_DIR=str(jar))


@pytest.mark.full
def test_a_session_leaves_a_truncated_one_alone(archive: Path, tmp_path: Path) -> None:
    """The JVM would map a truncated archive, and crash at its end."""
    other = tmp_path / "cache" / "tailrace" / "classes"
    other.mkdir(parents=True)
    (other / archive.name).write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    assert not is_taken(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
