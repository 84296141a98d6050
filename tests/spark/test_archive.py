"""Class archives with a real JVM: that it takes a whole one, and what it does with others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Spark's own, loaded by every session
_CLASS = "org.apache.spark.SparkContext "
_SHARED = "source: shared objects file"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's cache directory with an archive."""
    place = tmp_path_factory.mktemp("cache")
    command = [sys.executable, "-m", "tailrace.cli", "warm"]
    made = subprocess.run(command, env=environment(place), capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    assert Path(made.stdout.strip()) == archive(place)
    return place


def environment(cache: Path, **more: str) -> dict[str, str]:
    """Of a process that shares nothing with the Spark of this one."""
    given = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**given, "XDG_CACHE_HOME": str(cache), **more}


def archive(cache: Path) -> Path:
    (found,) = (cache / "tailrace" / "classes").glob("*.jsa")
    return found


def is_taken(cache: Path, work: Path, **more: str) -> bool:
    """Whether a session's JVM has taken its classes from the archive. It must run its queries, and print nothing."""
    listed = work / "loaded"
    options = f"-Xlog:class+load:file={listed}"
    command = [sys.executable, "-m", "tailrace.spark.training", str(work), options]
    done = subprocess.run(command, env=environment(cache, **more), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (line,) = (line for line in listed.read_text().splitlines() if _CLASS in line)
    return _SHARED in line


def test_a_session_takes_its_classes_from_the_archive(cache: Path, tmp_path: Path) -> None:
    assert is_taken(cache, tmp_path)


def test_a_session_with_another_class_path_goes_on_without_it(cache: Path, tmp_path: Path) -> None:
    jar = tmp_path / "conf"
    jar.mkdir()
    (jar / "spark-defaults.conf").write_text("")
    assert not is_taken(cache, tmp_path, SPARK_CONF_DIR=str(jar))


def test_a_session_leaves_a_truncated_one_alone(cache: Path, tmp_path: Path) -> None:
    """The JVM would map it, and crash where it is cut off."""
    whole = archive(cache)
    other = tmp_path / "cache" / "tailrace" / "classes"
    other.mkdir(parents=True)
    cut = other / whole.name
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    assert not is_taken(tmp_path / "cache", tmp_path)
