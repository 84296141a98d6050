"""`python -m bench.observation`: what measuring a query costs, in whole queries with and without it, in turn.

The product has no switch for its metrics. So a copy of it gets one: a file, at whose sight tasks count nothing and
write no report, and the planner adds nothing up and writes no numbers. Both sides of a pair are queries of one Spark
session over one backlog, so that nothing else differs. A ratio above 1 means that measuring takes that much longer, or
that much more time of the CPU.

Whole queries differ by more than measuring costs. With `--inside` the copy measures the functions themselves instead:
the CPU time of all calls in planner and tasks, as a share of all CPU time of the query.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.pairs import CASES, HERE, WARM, Side

SWITCH = "TAILRACE_BENCH_UNMEASURED"
"""Environment variable: the file at whose sight nothing is measured."""

_OFF = f"""

import os as _os
import functools as _functools


def _is_off():
    return _os.path.exists(_os.environ["{SWITCH}"])
"""
_TALLY = """

_clear = Tally.clear
_is_silent = [False]


def _begin(self):
    _is_silent[0] = _is_off()
    _clear(self)


Tally.clear = _begin
for _name in ("count", "count_tables", "count_batch", "count_times", "note_times", "quarantine"):
    def _quiet(self, *given, _real=getattr(Tally, _name), **named):
        return None if _is_silent[0] else _real(self, *given, **named)
    setattr(Tally, _name, _quiet)
"""
_REPORTS = """

_write = ReportPlace.write
ReportPlace.write = lambda self, tally, began_s: None if _is_off() else _write(self, tally, began_s)
"""
_MEASURES = """

for _name in ("committed", "planned", "write", "sample"):
    def _quiet(self, *given, _real=getattr(PlannerMeasures, _name)):
        return None if _is_off() else _real(self, *given)
    setattr(PlannerMeasures, _name, _quiet)
"""
_PATCHES = {"metrics/tally.py": _TALLY, "metrics/reports.py": _REPORTS, "spark/measures.py": _MEASURES}
SPENT = "TAILRACE_BENCH_SPENT"
"""Environment variable: the directory in which each process notes the CPU time of its calls that measure."""
_TIMED = """

import os as _os
import time as _time


def _timed(kind, names):
    for name in names:
        def wrapped(self, *given, _real=getattr(kind, name), _name=name, **named):
            began = _time.thread_time_ns()
            try:
                return _real(self, *given, **named)
            finally:
                line = f"{kind.__name__}.{_name} {_time.thread_time_ns() - began}\\n"
                with open(_os.path.join(_os.environ["SPENT"], str(_os.getpid())), "a") as file:
                    file.write(line)
        setattr(kind, name, wrapped)


"""
_CALLS = {
    "metrics/tally.py": "_timed(Tally, ('clear', 'count_batch', 'count_tables', 'count_bytes'))\n",
    "metrics/reports.py": "_timed(ReportPlace, ('write',))\n_timed(Reports, ('places',))\n",
    "spark/measures.py": "_timed(PlannerMeasures, ('committed', 'planned', 'write', 'sample'))\n",
}
"""The outermost functions that measure, by their modules. What notes a time takes longer than many of them."""


def switchable(folder: Path) -> None:
    """Write a copy of this checkout into `folder`, whose metrics have a switch."""
    _copy(folder, {name: _OFF + patch for name, patch in _PATCHES.items()})


def timed(folder: Path) -> None:
    """Write a copy of this checkout into `folder`, which notes the CPU time of its metrics."""
    _copy(folder, {name: _TIMED.replace("SPENT", SPENT) + calls for name, calls in _CALLS.items()})


def _copy(folder: Path, patches: Mapping[str, str]) -> None:
    for name in ("src", "bench", "tests", "tdsserver", "tools"):
        shutil.copytree(HERE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "cases", "*.egg-info"))
    for name, patch in patches.items():
        with (folder / "src" / "tailrace" / name).open("a", encoding="utf-8") as file:
            file.write(patch)


def inside(case: str, rows: int, rounds: int) -> None:
    """Print the CPU time of the calls that measure in some queries, by function, and their share of all CPU time."""
    with ExitStack() as stack:
        folder, notes = (Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-b-"))) for _ in "ab")
        timed(folder)
        os.environ[SPENT] = str(notes)
        side = Side(folder, rows, "", "")
        stack.callback(side.close)
        side.answer()
        for _ in range(WARM):
            side.run(case)
        shutil.rmtree(notes)
        notes.mkdir()
        cpu = sum(side.run(case)["cpu"] for _ in range(rounds)) * 1e9
        spent: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        for file in notes.iterdir():
            for name, took in map(str.split, file.read_text().splitlines()):
                spent[name] += int(took)
                calls[name] += 1
        for name, spent_ns in spent.most_common():
            print(f"{case:<22} {name:<28} {calls[name]:6} calls {spent_ns / 1e6:9.1f} ms {100 * spent_ns / cpu:7.3f} %")
        total = spent.total()
        print(f"{case:<22} {'all':<28} {calls.total():6} calls {total / 1e6:9.1f} ms {100 * total / cpu:7.3f} %")


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for and print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.observation", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="inserted rows; half of them are updated")
    parser.add_argument("--rounds", type=int, default=12, help="pairs of each case")
    known = [case for case in CASES if case != "stream_kafka"]
    parser.add_argument("--only", choices=known, action="append", help="one case; may be given several times")
    parser.add_argument("--inside", action="store_true", help="the CPU time of the functions that measure instead")
    asked = parser.parse_args(words)
    if asked.inside:
        for case in asked.only or ["stream_noop_topic"]:
            inside(case, asked.rows, asked.rounds)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-bench-")))
        switchable(folder)
        file = folder / "unmeasured"
        os.environ[SWITCH] = str(file)
        side = Side(folder, asked.rows, "", "")
        stack.callback(side.close)
        side.answer()

        def run(case: str, *, is_measured: bool) -> dict[str, float]:
            file.unlink(missing_ok=True)
            if not is_measured:
                file.touch()
            return side.run(case)

        print(f"{'case':<22} {'s with':>7} {'s without':>9} {'ratio':>6} {'low':>6} {'high':>6} {'CPU':>6}", flush=True)
        for case in asked.only or ["stream_noop_topic"]:
            for number in range(WARM):
                run(case, is_measured=bool(number % 2))
            pairs = []
            for number in range(asked.rounds):
                found = {one: run(case, is_measured=one) for one in ((True, False) if number % 2 else (False, True))}
                pairs.append((found[True], found[False]))
            seconds = sorted(one["seconds"] / two["seconds"] for one, two in pairs)
            cpu = statistics.median(one["cpu"] / two["cpu"] for one, two in pairs)
            with_, without = (statistics.median(pair[which]["seconds"] for pair in pairs) for which in (0, 1))
            quarter = len(seconds) // 4
            print(
                f"{case:<22} {with_:7.2f} {without:9.2f} {statistics.median(seconds):6.3f} {seconds[quarter]:6.3f} "
                f"{seconds[-1 - quarter]:6.3f} {cpu:6.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
