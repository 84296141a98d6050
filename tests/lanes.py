"""All tests, in parts that run three at a time: `python -m tests.lanes [--quick | --full] [--part NAME] [OPTIONS]`.

A test waits for its server, its workers or its planner longer than it computes, so two cores run three parts at once.
Each part is a process of pytest with its own servers; OPTIONS are pytest's. When a process has ended, the next part
starts. The progress of each part is shown at once, its other output when it has ended. At the end follow the seconds of
each part and of the slowest tests; build/tests/durations.tsv has those of all tests. The exit code is pytest's, of the
first part that failed.

`--full` runs everything at its full size, which takes hours (`make test-all`). Its parts can be run alone (`--part`,
more than once). An interrupted run can be continued: a part that has passed at this commit is not run again, unless
`--again` is given. build/tests/full.tsv lists the parts that have passed at each commit.

If TAILRACE_TESTS_UNTIL holds a time, in seconds since 1970, no test begins after it; the run has then failed, and shows
its results so far.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TextIO

from tests import durations

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "tests"
SERVER = "tdsserver"
"""The directory of the SQL Server of tests, beside this one. Its own tests run with the others."""
AT_ONCE = 3
NOTHING_COLLECTED = 5
BRIEF = "-XX:TieredStopAtLevel=1"
"""Option for the JVMs of commands: each runs a few small queries, and the better compiler would take a third of its
CPU."""

_PROGRESS = re.compile(r"\[ *\d+%\]\s*$")
_SUMMARY = re.compile(r"(?:\d+ [a-z]+|no tests ran)\b.* in [\d.]+s")
"""In pytest's last line, which lines of libraries at the end of the process may follow."""
_FAILED = re.compile(r"((?:FAILED|ERROR) \S+::\S+)")
"""The beginning of a line in pytest's short summary."""
_shown = Lock()


@dataclass(frozen=True, slots=True)
class Part:
    """The tests that one process of pytest runs.

    `places` are directories or files of this directory, without what other parts name below them. A part without places
    has all directories that no part names.
    """

    name: str
    places: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


PARTS: Sequence[Part] = (
    Part("integration", ("integration",)),
    Part(
        "tables",
        (
            "integration/changetables/test_tables.py",
            "integration/changetables/test_verify.py",
            "integration/mongodb/test_tables.py",
            "integration/mongodb/test_verify.py",
            "integration/test_altered_tables.py",
            "integration/test_coverage.py",
            "integration/test_moments.py",
            "integration/test_rereads.py",
            "integration/test_table_crashes.py",
            "integration/test_table_formats.py",
            "integration/test_tables.py",
            "integration/test_verify.py",
            "spark/test_iceberg.py",
            "spark/test_stored.py",
            "spark/test_table_maintenance.py",
            "spark/test_table_model.py",
            "spark/test_table_positions.py",
            "spark/test_table_rebuild.py",
            "spark/test_table_writers.py",
            "spark/test_transactions.py",
            "spark/test_verify_rows.py",
            "spark/test_verify_tables.py",
        ),
    ),
    Part(
        "spark",
        (
            "e2e",
            "extending",
            "golden/test_through_spark.py",
            "integration/changetables/test_read.py",
            "integration/changetables/test_spark.py",
            "integration/changetables/test_typed.py",
            "integration/db2/test_spark.py",
            "integration/mongodb/test_read.py",
            "integration/mongodb/test_typed.py",
            "integration/postgres/test_document_delivery.py",
            "integration/postgres/test_hostile_signals.py",
            "integration/postgres/test_row_columns.py",
            "integration/postgres/test_typed.py",
            "integration/test_jdbc.py",
            "integration/test_kafka_topics.py",
            "integration/test_reselected.py",
            "integration/test_run.py",
            "integration/test_secrets.py",
            "integration/test_signal_topic.py",
            "integration/test_sinks.py",
            "integration/tls/test_kafka.py",
            "integration/tls/test_kafka_tokens.py",
            "spark",
        ),
    ),
    Part("databases", ("integration/mongodb", "integration/changetables", "integration/binlog", "contract")),
    Part("units"),
    Part("golden", ("golden",)),
    Part("simulation", ("simulation",)),
    Part("chaos", ("chaos", "fuzz")),
    Part("property", ("property",)),
)
"""The parts, the slowest first.

Few parts need Spark: each has to start a JVM, which then takes a minute of CPU for the first use of everything. So the
tests that use Spark are in two parts, those of tables in one of them. A mix of chaos has a JVM of its own.
"""
QUICK: Sequence[Part] = (
    Part("unit", ("unit",)),
    Part("others"),
    Part(
        "events", ("unit/binlog", "unit/changetables", "unit/events", "unit/formats", "unit/mongodb", "unit/postgres")
    ),
)
"""The parts of `--quick`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a part: pytest's exit code, its last line, the duration in seconds, and the tests that failed."""

    code: int
    last: str
    seconds: float
    failed: Sequence[str] = ()


def main(arguments: list[str]) -> int:
    """Run the parts, show the durations, and return the exit code."""
    options = list(arguments)
    parts = QUICK if "--quick" in options else PARTS
    again, named = _taken(options)
    if unknown := set(named) - {part.name for part in parts}:
        print(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in parts)}")
        return 2
    chosen = [part for part in parts if not named or part.name in named]
    passed = Passed(BUILD / "full.tsv", commit()) if "--full" in options else None
    if passed is not None and not again:
        for part in chosen:
            if part.name in passed:
                print(f"== {part.name}: passed at this commit before; --again runs it again", flush=True)
        chosen = [part for part in chosen if part.name not in passed]
    shutil.rmtree(BUILD / "durations", ignore_errors=True)
    (BUILD / "durations").mkdir(parents=True)
    brief = f"{BRIEF} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".rstrip()
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": brief}
    ended: dict[str, Ended] = {}
    if "--quick" not in options and not named:
        ended["kernels"] = compiled(environment)
    with nullcontext() if "--quick" in options else classes(environment), ThreadPoolExecutor(AT_ONCE) as pool:

        def one(part: Part) -> None:
            found = places(part, parts)
            if not found:
                return
            ended[part.name] = run(part, command(part, parts, found, options), environment)
            # An option of pytest may leave out tests of the part, which then has not passed as a whole.
            if passed is not None and options == ["--full"] and ended[part.name].code == 0:
                passed.add(part.name)

        try:
            list(pool.map(one, chosen))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    told(ended)
    return exit_code(found.code for found in ended.values())


def _taken(options: list[str]) -> tuple[bool, list[str]]:
    """Take the options of this program out of the arguments: whether parts run again, and the names of the parts."""
    again = "--again" in options
    if again:
        options.remove("--again")
    named = []
    while "--part" in options:
        at = options.index("--part")
        named += options[at + 1 : at + 2]
        del options[at : at + 2]
    return again, named


def exit_code(codes: Iterable[int]) -> int:
    """Return the exit code of the first part that failed, else 0. The options may leave a part without tests."""
    found = list(codes)
    failed = [code for code in found if code not in (0, NOTHING_COLLECTED)]
    return failed[0] if failed else min(found, default=0)


def commit() -> str:
    """Return the commit of the tree; "" if the tree has changes or is not a clone."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=HERE.parent, capture_output=True, text=True, check=True).stdout

    try:
        return "" if git("status", "--porcelain").strip() else git("rev-parse", "HEAD").strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Passed:
    """The parts that have passed at a commit, kept in a file from one run to the next."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path, self._commit = path, commit
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        self._names = {name for name, at, _ in (line.split("\t") for line in lines) if at == commit and commit}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """Record that a part has passed at this commit and time."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            print(name, self._commit or "changed", time.strftime("%Y-%m-%d %H:%M"), sep="\t", file=file)


def places(part: Part, parts: Sequence[Part]) -> list[Path]:
    """Return the existing directories and files of a part."""
    if part.places:
        return [HERE / name for name in part.places if (HERE / name).exists()]
    named = {name for other in parts for name in other.places}
    found = sorted(path for path in HERE.iterdir() if path.name not in named and any(path.glob("**/test_*.py")))
    return [*found, *([HERE.parent / SERVER] if (HERE.parent / SERVER).is_dir() else [])]


def command(part: Part, parts: Sequence[Part], found: Sequence[Path], options: Sequence[str]) -> list[str]:
    """Return the command of a part: pytest over its places, without those of other parts."""
    names = {name for other in parts if other is not part for name in other.places}
    apart = sorted(name for name in names if any(name.startswith(f"{mine}/") for mine in part.places))
    ignored = [f"--ignore={HERE / name}" for name in apart]
    return [sys.executable, "-m", "pytest", *map(str, found), *part.options, *options, *ignored]


def run(part: Part, command: Sequence[str], environment: Mapping[str, str]) -> Ended:
    """Run one part and show its output."""
    began = time.monotonic()
    kept: list[str] = []
    last = summary = ""
    given = {**environment, durations.FILE: str(BUILD / "durations" / f"{part.name}.jsonl")}
    # A file and not a pipe, because a process that outlives pytest would keep the pipe open.
    with (
        tempfile.NamedTemporaryFile("w+", encoding="utf-8", errors="replace") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=HERE.parent, env=given) as process,
        open(file.name, encoding="utf-8", errors="replace") as reader,
    ):
        for line in lines(process, reader):
            last = line.strip() or last
            summary = last if _SUMMARY.search(last) else summary
            if _PROGRESS.search(line):
                with _shown:
                    print(line, end="", flush=True)
            else:
                kept.append(line)
    with _shown:
        print(f"\n== {part.name}\n{''.join(kept)}", flush=True)
    failed = [match[1] for line in kept if (match := _FAILED.match(line))]
    return Ended(process.returncode, summary or last or "nothing", time.monotonic() - began, failed)


def lines(process: subprocess.Popen[bytes], reader: TextIO) -> Iterator[str]:
    """Yield the lines of a file that the process writes, as they come, until the process has ended."""
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


def compiled(environment: Mapping[str, str]) -> Ended:
    """Compile missing kernels, because the tests would compile the same ones in many processes at once."""
    began = time.monotonic()
    print("== kernels: compiling those that are not kept yet", flush=True)
    asked = [sys.executable, "-m", "tests.kernels"]
    done = subprocess.run(asked, cwd=HERE.parent, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return Ended(done.returncode, done.stdout.strip().rpartition("\n")[2], time.monotonic() - began)


def told(ended: Mapping[str, Ended]) -> None:
    """Print the seconds of the slowest tests, and of each part with its last line; at last the tests that failed."""
    durations.told(BUILD / "durations", BUILD / "durations.tsv")
    print("== the parts")
    for name, part in ended.items():
        print(f"{part.seconds:8.0f} s  {name}: {part.last}")
    # Last, because whoever reads a long log looks at its end, and some readers keep only that.
    for part in ended.values():
        for test in part.failed:
            print(test)
    print(end="", flush=True)


@contextmanager
def classes(environment: Mapping[str, str]) -> Iterator[None]:
    """Make the archive of Java classes in the background: with it, the start of a JVM takes a quarter less CPU."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace.command.cli", "warm"],
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
        # Including the JVMs that it runs.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
