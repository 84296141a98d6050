"""All tests, in three processes side by side: `python -m tests.lanes [OPTIONS OF PYTEST]`.

A test waits for its server, its workers or its planner for longer than it computes, so two cores do three at once.
Each process has servers of its own. What the first ones print is shown when they have ended; the last lines are the
summaries of all. Ends with the exit code of pytest, of the first process that failed.

Where TAILRACE_TESTS_UNTIL says a time, in seconds since 1970, no test begins after it: the run has failed then, and
shows what it has found so far.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
SERVER = "tdsserver"
"""The SQL Server of tests, a directory beside this one; its own tests are the last process's."""
LANES = (("golden", "e2e", "spark"), ("integration",))
"""The directories of each process but the last one, which has all others: most of them need no Spark and no server."""
APART = ("integration/changetables", "integration/mongodb")
"""Directories below those of a process that the last one has all the same: it would end long before the others."""
QUICK = (("unit",),)
"""The same for the tests of `--quick`."""
NOTHING_COLLECTED = 5
BRIEF = "-XX:TieredStopAtLevel=1"
"""For the JVMs of commands: each runs a few small queries, and the better compiler would take a third of its CPU."""


def main(options: list[str]) -> int:
    """Run all and wait for them; the exit code."""
    is_quick = "--quick" in options
    lanes = list(QUICK if is_quick else LANES)
    apart = [] if is_quick else [name for name in APART if (HERE / name).is_dir()]
    chosen = {name for lane in lanes for name in lane}
    others = sorted(path.name for path in HERE.iterdir() if path.name not in chosen and any(path.glob("**/test_*.py")))
    others += [*apart, *([SERVER] if (HERE.parent / SERVER).is_dir() else [])]
    brief = f"{BRIEF} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".rstrip()
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": brief}
    with ExitStack() as files:
        if not is_quick:
            files.enter_context(classes(environment))
        running = []
        for lane in lanes:
            kept = files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))
            options_of = command(lane, [*options, *(f"--ignore={HERE / name}" for name in apart)])
            process = subprocess.Popen(
                options_of, stdout=kept, stderr=subprocess.STDOUT, cwd=HERE.parent, env=environment
            )
            running.append((", ".join(lane), process, kept))
        with subprocess.Popen(
            command(others, options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=HERE.parent,
            env=environment,
            text=True,
            errors="replace",
        ) as shown:
            print(f"== {', '.join(others)}; the others are shown at the end", flush=True)
            summaries = [f"== {', '.join(others)}: {follow(shown)}"]
        codes = [shown.wait()]
        for name, process, kept in running:
            codes.append(process.wait())
            kept.seek(0)
            text = kept.read()
            print(f"\n== {name}\n{text}")
            summaries.append(f"== {name}: {(text.strip().splitlines() or ['nothing'])[-1]}")
    print("\n".join(summaries), flush=True)
    # a filter may leave nothing to one of them
    failed = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    return failed[0] if failed else min(codes)


@contextmanager
def classes(environment: Mapping[str, str]) -> Iterator[None]:
    """Make the archive of Java's classes meanwhile: a JVM that starts when it is there takes a quarter of CPU less."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace.cli", "warm"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=HERE.parent,
        env=environment,
        start_new_session=True,
    )
    try:
        yield
    finally:
        # with the JVMs that it runs
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def follow(process: subprocess.Popen[str]) -> str:
    """Print what the process prints, line by line; its last line."""
    assert process.stdout is not None
    last = "nothing"
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    return last


def command(directories: list[str] | tuple[str, ...], options: list[str]) -> list[str]:
    """Pytest over some of the directories."""
    places = [HERE.parent / name if name == SERVER else HERE / name for name in directories]
    return [sys.executable, "-m", "pytest", *map(str, places), *options]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
