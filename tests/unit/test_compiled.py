"""Compiled functions are kept in a writable place, and work without one."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "tailrace"
SCRIPT = """
import os
import tailrace.values.integers
print(os.environ["NUMBA_CACHE_DIR"])
"""


def imported(package: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if name not in ("HOME", "NUMBA_CACHE_DIR")}
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(
        command,
        env=kept | {"PYTHONPATH": str(package.parent)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def closed(folder: Path) -> Path:
    """Return a copy of the package beside which nothing can be written, not even by root."""
    package = folder / "site" / "tailrace"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for directory in (package, *(path for path in package.rglob("*") if path.is_dir())):
        (directory / "__pycache__").touch()
    return package


def test_kernels_load_where_neither_the_source_nor_a_home_can_be_written(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    nowhere = {"XDG_CACHE_HOME": "/dev/null/cache", "NUMBA_CACHE_DIR": "/dev/null/numba", "TMPDIR": str(temporary)}
    package = closed(tmp_path)
    done = imported(package, **nowhere)
    assert done.returncode == 0, done.stderr
    place = Path(done.stdout.strip())
    assert place.parent == temporary
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    # Others could have put code there that would be executed.
    place.chmod(0o777)
    done = imported(package, **nowhere)
    assert done.returncode == 0, done.stderr
    other = Path(done.stdout.strip())
    assert other != place
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_a_place_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    done = imported(closed(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "given"))
    assert done.stdout.strip() == str(tmp_path / "given"), done.stderr


SHAPES = """
from typing import NamedTuple
class {name}(NamedTuple):
    value: int
"""
CALLER = """
import kept.shapes
from tailrace.kernels.compiled import kernel

@kernel
def doubled(shape):
    return 2 * shape.value
"""


def test_a_cache_that_names_what_is_gone_counts_as_none(tmp_path: Path) -> None:
    # As after an update that leaves the caches of the previous version.
    package = tmp_path / "site" / "kept"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "caller.py").write_text(CALLER)
    for name in ("Before", "After"):
        (package / "shapes.py").write_text(SHAPES.format(name=name))
        script = f"from kept import caller, shapes; print(caller.doubled(shapes.{name}(21)))"
        done = subprocess.run(
            [sys.executable, "-B", "-c", script],
            env=os.environ
            | {"PYTHONPATH": f"{SOURCE.parent}:{package.parent}", "NUMBA_CACHE_DIR": str(tmp_path / "n")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "42\n", done.stderr
        assert list((tmp_path / "n").rglob("*.nbi"))


FACTORS = """
from tailrace.kernels.compiled import kernel
from kept.constants import FACTOR

@kernel
def factor():
    return FACTOR
"""
TIMES = """
from tailrace.kernels.compiled import kernel
from kept.factors import (
    factor as one,  # by another name
)

@kernel
def times(value):
    return one() * value
"""


def test_a_cache_of_what_calls_a_kernel_that_has_changed_counts_as_none(tmp_path: Path) -> None:
    # As after an update that leaves the caller's own source unchanged.
    package = tmp_path / "site" / "kept"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "factors.py").write_text(FACTORS)
    (package / "times.py").write_text(TIMES)
    for factor in (2, 3, 3):
        (package / "constants.py").write_text(f"FACTOR = {factor}\n")
        script = (
            "from kept.times import times; found = times(7); "
            "print(found, sum(times.stats.cache_hits.values()), sum(times.stats.cache_misses.values()))"
        )
        done = subprocess.run(
            [sys.executable, "-B", "-c", script],
            env=os.environ
            | {"PYTHONPATH": f"{SOURCE.parent}:{package.parent}", "NUMBA_CACHE_DIR": str(tmp_path / "n")},
            capture_output=True,
            text=True,
            check=False,
        )
        hits = 1 if (package / "seen").exists() and (package / "seen").read_text() == str(factor) else 0
        assert done.stdout == f"{7 * factor} {hits} {1 - hits}\n", done.stderr
        (package / "seen").write_text(str(factor))
