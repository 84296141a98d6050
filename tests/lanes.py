"""All tests, in two processes side by side: `python -m tests.lanes [OPTIONS OF PYTEST]`.

A test waits for its server, its workers or its planner for about as long as it computes, so two cores do two at once.
Each process has servers of its own. What the first one prints is shown when it has ended; the last lines are the
summaries of both. Ends with the exit code of pytest, of the first process that failed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SERVER = "tdsserver"
"""The SQL Server of tests, a directory beside this one; its own tests are the second process's."""
FIRST = ("golden", "spark", "e2e", "chaos")
"""The directories of the first process, about half of the time; all others are the second one's."""
QUICK = ("unit",)
"""The same for the tests of `--quick`."""
NOTHING_COLLECTED = 5


def main(options: list[str]) -> int:
    """Run both and wait for them; the exit code."""
    chosen = QUICK if "--quick" in options else FIRST
    others = sorted(path.name for path in HERE.iterdir() if path.name not in chosen and any(path.glob("**/test_*.py")))
    others += [SERVER] if (HERE.parent / SERVER).is_dir() else []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as kept:
        first = subprocess.Popen(command(chosen, options), stdout=kept, stderr=subprocess.STDOUT, cwd=HERE.parent)
        second = subprocess.Popen(
            command(others, options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=HERE.parent,
            text=True,
            errors="replace",
        )
        assert second.stdout is not None
        print(f"== {', '.join(others)}; {', '.join(chosen)} are shown at the end", flush=True)
        last = ""
        for line in second.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
        codes = [first.wait(), second.wait()]
        kept.seek(0)
        text = kept.read()
    print(f"\n== {', '.join(chosen)}\n{text}")
    print(f"== {', '.join(others)}: {last}")
    print(f"== {', '.join(chosen)}: {(text.strip().splitlines() or ['nothing'])[-1]}", flush=True)
    # a filter may leave nothing to one of them
    failed = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    return failed[0] if failed else min(codes)


def command(directories: list[str] | tuple[str, ...], options: list[str]) -> list[str]:
    """Pytest over some of the directories."""
    places = [HERE.parent / name if name == SERVER else HERE / name for name in directories]
    return [sys.executable, "-m", "pytest", *map(str, places), *options]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
