"""All tests, in parts that run three at a time: `python -m tests.lanes [OPTIONS OF PYTEST]`.

A test waits for its server, its workers or its planner for longer than it computes, so two cores do three at once.
Each part is a process of pytest with servers of its own. A process that has ended makes room for the next part: no
core waits while one part takes longer than was thought. How far each part is is shown at once, what else it prints
when it has ended; the last lines are the summaries of all. Ends with the exit code of pytest, of the first part that
failed.

Where TAILRACE_TESTS_UNTIL says a time, in seconds since 1970, no test begins after it: the run has failed then, and
shows what it has found so far.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock
from typing import TextIO

HERE = Path(__file__).parent
SERVER = "tdsserver"
"""The SQL Server of tests, a directory beside this one; its own tests are among the others."""
OTHERS: tuple[str, ...] = ()
"""The part of all directories that no part names."""
PARTS: Sequence[tuple[str, ...]] = (
    ("property",),
    OTHERS,
    ("simulation",),
    ("integration",),
    ("golden", "e2e", "spark"),
    ("chaos", "fuzz"),
    ("integration/mongodb", "integration/changetables", "extending"),
)
"""The directories of each part, in their order. Those that need Spark are few: each has a JVM to start.

The first ones compile nearly all kernels. Where none are kept yet, a query would otherwise wait for its planner and
each worker to compile the same ones, which takes longer than a test waits. Behind them the longest comes first.
A directory below one of another part is in its own.
"""
QUICK: Sequence[tuple[str, ...]] = (("unit",), OTHERS)
"""The same for the tests of `--quick`."""
AT_ONCE = 3
NOTHING_COLLECTED = 5
BRIEF = "-XX:TieredStopAtLevel=1"
"""For the JVMs of commands: each runs a few small queries, and the better compiler would take a third of its CPU."""

_PROGRESS = re.compile(r"\[ *\d+%\]\s*$")
_shown = Lock()


def main(options: list[str]) -> int:
    """Run all and wait for them; the exit code."""
    is_quick = "--quick" in options
    chosen = QUICK if is_quick else PARTS
    named = [tuple(name for name in part if (HERE / name).is_dir()) if part else others(chosen) for part in chosen]
    parts = [part for part in named if part]
    brief = f"{BRIEF} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".rstrip()
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": brief}
    with nullcontext() if is_quick else classes(environment), ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            ended = list(pool.map(lambda part: run(part, command(part, parts, options), environment), parts))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    print("\n".join(f"== {', '.join(part)}: {last}" for part, (_, last) in zip(parts, ended, strict=True)), flush=True)
    # a filter may leave nothing to one of them
    codes = [code for code, _ in ended]
    failed = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    return failed[0] if failed else min(codes)


def others(named: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The directories of tests that no part names."""
    chosen = {name for part in named for name in part}
    found = sorted(path.name for path in HERE.iterdir() if path.name not in chosen and any(path.glob("**/test_*.py")))
    return (*found, *([SERVER] if (HERE.parent / SERVER).is_dir() else []))


def command(part: tuple[str, ...], parts: Sequence[tuple[str, ...]], options: Sequence[str]) -> list[str]:
    """Pytest over the directories of a part, without those below them that are another part's."""
    places = [HERE.parent / name if name == SERVER else HERE / name for name in part]
    names = {name for other in parts if other is not part for name in other}
    apart = sorted(name for name in names if any(name.startswith(f"{mine}/") for mine in part))
    ignored = [f"--ignore={HERE / name}" for name in apart]
    return [sys.executable, "-m", "pytest", *map(str, places), *options, *ignored]


def run(part: tuple[str, ...], command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run one part and show what it prints; its exit code and its last line."""
    kept: list[str] = []
    last = "nothing"
    # a file, and no pipe: a process that outlives pytest would hold that open
    with (
        tempfile.NamedTemporaryFile("w+", encoding="utf-8", errors="replace") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=HERE.parent, env=environment) as process,
        open(file.name, encoding="utf-8", errors="replace") as reader,
    ):
        for line in lines(process, reader):
            last = line.strip() or last
            if _PROGRESS.search(line):
                with _shown:
                    print(line, end="", flush=True)
            else:
                kept.append(line)
    with _shown:
        print(f"\n== {', '.join(part)}\n{''.join(kept)}", flush=True)
    return process.returncode, last


def lines(process: subprocess.Popen[bytes], reader: TextIO) -> Iterator[str]:
    """The lines of a file that the process writes, as they come, until it has ended."""
    begun = ""
    while True:
        has_ended = process.poll() is not None
        for piece in iter(reader.readline, ""):
            begun += piece
            if begun.endswith("\n"):
                yield begun
                begun = ""
        if has_ended:
            break
        time.sleep(0.2)
    if begun:
        yield begun


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
