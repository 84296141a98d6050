"""A run says once that functions are compiled, whichever of its processes compiles first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging, sys
sys.path.insert(0, sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(message)s")
from tailrace.spark.startup.compiling import announce_compiling
announce_compiling()
import tailrace.added as added
assert (added.one(1), added.other(1)) == (2, 3)
"""
ADDED = """
import numba
@numba.njit(cache=True)
def one(value): return value + 1
@numba.njit(cache=True)
def other(value): return value + 2
"""


def test_one_line_for_all_functions_and_processes_and_none_from_the_cache(tmp_path: Path) -> None:
    (tmp_path / "tailrace_added.py").write_text(ADDED)
    script = SCRIPT.replace("import tailrace.added as added", NAMED)

    def said(mark: str) -> list[str]:
        environment = {
            **os.environ,
            "TAILRACE_COMPILING": str(tmp_path / mark),
            "NUMBA_CACHE_DIR": str(tmp_path / mark[0]),
        }
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [line for line in done.stderr.splitlines() if line.startswith("Functions are compiled")]

    assert len(said("a-first")) == 1
    # from the cache
    assert said("a-again") == []
    # another cache, and a mark that another process has made
    (tmp_path / "b-first").touch()
    assert said("b-first") == []


NAMED = """
import importlib.util
found = importlib.util.spec_from_file_location("tailrace.added", sys.argv[1] + "/tailrace_added.py")
added = importlib.util.module_from_spec(found)
sys.modules["tailrace.added"] = added
found.loader.exec_module(added)
"""
