"""Runs of a fuzz target in a process of its own, which may crash, and the inputs of its findings.

A target is a function of bytes that returns or raises one of the product's own errors. Everything else is a finding:
another exception (including Difference), the end of the process, or more than `MOST_SECONDS` of computing for an input.
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.errors import TailraceError
from tests.fuzz.mutation import MOST_BYTES, Mutator

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
MOST_SECONDS = 10
"""Limit of computing time, not of wall time, because a machine may be busy."""
_MOST_SECONDS_OF_FIRST = 300
"""Limit for the first inputs of a run, which also compile missing kernels."""
_MOST_FINDINGS = 40
_MOST_KEPT = 4000
_MEMORY = 3 << 30
# The state that outlives a crash: the number of inputs, the length of the current one, and the input.
_HEAD = 16


class Difference(AssertionError):
    """The compiled way and the plain way give different results."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function to fuzz. `seeds` are valid inputs. `run` takes any input, and may return a word that classifies the
    result.

    A new word marks an interesting input. `words` are inserted into inputs at random.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Report:
    """The result of one run: the number of inputs, and for each finding its text and the file with its input."""

    inputs: int = 0
    seconds: float = 0.0
    findings: list[tuple[str, Path]] = field(default_factory=list)


def corpus(name: str) -> list[bytes]:
    """Return the kept inputs for a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*")) if path.is_file()]


def run(name: str, seconds: float, seed: int, folder: Path, most: int = 0) -> Report:
    """Feed the target for some seconds, in another process. Inputs of findings are left in `folder`.

    `most` inputs, unless 0, end the run sooner, so that the findings of a seed do not depend on the machine's speed.
    """
    return run_several((name,), seconds, seed, folder, most)[name]


def run_several(names: Sequence[str], seconds: float, seed: int, folder: Path, most: int = 0) -> dict[str, Report]:
    """Feed targets one after another in one other process, each for some seconds and as `run` does.

    If the process crashes, the targets after the current one are not fed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    states = {name: folder / f"{name}-{seed}.state" for name in names}
    for state in states.values():
        state.write_bytes(bytes(_HEAD + MOST_BYTES))
    command = [sys.executable, "-m", "tests.fuzz.machine", ",".join(names), str(seconds), str(seed), str(folder)]
    child = subprocess.run(
        [*command, str(most)], cwd=HERE.parents[1], capture_output=True, text=True, errors="replace", check=False
    )
    reports = {name: Report() for name in names}
    ended = set()
    for line in child.stdout.splitlines():
        head, _, text = line.partition("\t")
        word, _, rest = head.partition(" ")
        if word == "FINDING":
            name, _, path = rest.partition(" ")
            reports[name].findings.append((text.replace("\\n", "\n"), Path(path)))
        elif word == "ENDED":
            ended.add(rest)
            reports[rest].seconds = float(text)
    for name, state in states.items():
        kept = state.read_bytes()
        state.unlink()
        reports[name].inputs = int.from_bytes(kept[:8], "little")
        if name not in ended and ended == set(names[: names.index(name)]):
            size = int.from_bytes(kept[8:_HEAD], "little")
            reports[name].findings.append(_crash(child, kept[_HEAD : _HEAD + size], folder / f"{name}-{seed}-crash"))
    return reports


def _crash(child: subprocess.CompletedProcess[str], data: bytes, path: Path) -> tuple[str, Path]:
    """Return the finding of a process that has ended before its last target, while it worked on `data`."""
    path.write_bytes(data)
    what = f"it took more than {MOST_SECONDS} s" if -child.returncode == signal.SIGPROF else "the process ended"
    return f"{what} (exit code {child.returncode})\n{child.stderr[-4000:]}", path


class _State:
    """The number of inputs and the current input, in memory that a parent can read."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.inputs = 0

    def begin(self, data: bytes) -> None:
        self.inputs += 1
        self._memory[:_HEAD] = self.inputs.to_bytes(8, "little") + len(data).to_bytes(8, "little")
        self._memory[_HEAD : _HEAD + len(data)] = data


def feed(
    target: Target, seconds: float, seed: int, folder: Path, state: _State, most: int = 0
) -> list[tuple[str, Path]]:
    """Feed one target in this process. Return the findings, each kind once."""
    # Each thread of numpy and pyarrow takes address space.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # A crash is a finding and needs no core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chosen = random.Random(f"{target.name} {seed}")
    mutator = Mutator(chosen, target.words)
    pool = [data[:MOST_BYTES] for data in (*target.seeds(), *corpus(target.name))]
    findings: dict[str, tuple[str, Path]] = {}
    known: set[object] = set()

    limit = _MOST_SECONDS_OF_FIRST

    def one(data: bytes) -> bool:
        """Run one input. Return True if its result is new."""
        state.begin(data)
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            word: object = target.run(data)
        except TailraceError as error:
            word = type(error).__name__, "".join(letter for letter in error.message if not letter.isdigit())[:200]
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = (
                str(error).split("\n")[0][:60] if isinstance(error, Difference) else f"{place.filename}:{place.lineno}"
            )
            kind = f"{type(error).__name__} {text}"
            if kind not in findings and len(findings) < _MOST_FINDINGS:
                path = folder / f"{target.name}-{seed}-{len(findings)}"
                path.write_bytes(data)
                findings[kind] = "".join(traceback.format_exception(error)), path
            return False
        if word in known:
            return False
        known.add(word)
        return True

    # The first inputs compile or load the kernels.
    for data in pool:
        one(data)
    limit = MOST_SECONDS
    until = time.monotonic() + seconds
    while time.monotonic() < until and (not most or state.inputs < most):
        data = mutator.damaged(pool)
        if one(data) and len(pool) < _MOST_KEPT:
            pool.append(data)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return list(findings.values())


def main(names: Sequence[str], seconds: float, seed: int, folder: Path, most: int) -> int:
    """Run some targets. Print the findings of each, and when it has ended."""
    from tests.fuzz.targets import TARGETS

    os.environ.setdefault("TZ", "UTC")
    with suppress(KeyboardInterrupt):
        for name in names:
            began = time.monotonic()
            state = _State(folder / f"{name}-{seed}.state")
            for text, path in feed(TARGETS[name], seconds, seed, folder, state, most):
                line = text.replace("\n", "\\n")
                print(f"FINDING {name} {path}\t{line}", flush=True)
            print(f"ENDED {name}\t{time.monotonic() - began:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].split(","), float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5])))
