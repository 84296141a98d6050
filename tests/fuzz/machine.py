"""Runs a target in a process of its own, which may crash, and keeps what it crashed on.

A target is a function of bytes that ends, or raises one of the product's own errors. Anything else is a finding:
another exception (a Difference among them), the end of the process, more than `MOST_SECONDS` of computing for an input.
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
"""Of computing, not of the clock: a machine may be busy with others."""
_MOST_SECONDS_OF_FIRST = 300
"""Of the inputs that a run begins with: they compile what is not compiled yet."""
_MOST_FINDINGS = 40
_MOST_KEPT = 4000
_MEMORY = 3 << 30
# The state that outlives a crash: the number of inputs, the length of the current one, and the input.
_HEAD = 16


class Difference(AssertionError):
    """The compiled way and the plain one do not give the same."""


@dataclass(frozen=True, slots=True)
class Target:
    """`seeds` are valid inputs; `run` takes any, and may give a word for what came of it, by which new ones are known.

    `words` are put into inputs here and there.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Report:
    """What one run came to: the number of inputs, and for each finding its text and the file that holds its input."""

    inputs: int = 0
    seconds: float = 0.0
    findings: list[tuple[str, Path]] = field(default_factory=list)


def corpus(name: str) -> list[bytes]:
    """The inputs that are kept for a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*")) if path.is_file()]


def run(name: str, seconds: float, seed: int, folder: Path, most: int = 0) -> Report:
    """Feed the target for so long, in another process. Inputs with findings are left in `folder`.

    `most` inputs, if it is not 0, end the run sooner: what a seed finds does not depend on the machine's pace then.
    """
    return run_several((name,), seconds, seed, folder, most)[name]


def run_several(names: Sequence[str], seconds: float, seed: int, folder: Path, most: int = 0) -> dict[str, Report]:
    """Feed targets one after another in one other process, each for so long and as `run` does.

    Where the process crashes, the targets behind the one at work are fed nothing.
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
    """The finding of a process that has ended before its last target had, and was at work at `data`."""
    path.write_bytes(data)
    what = f"it took more than {MOST_SECONDS} s" if -child.returncode == signal.SIGPROF else "the process ended"
    return f"{what} (exit code {child.returncode})\n{child.stderr[-4000:]}", path


class _State:
    """The number of inputs and the current one, where a parent finds them."""

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
    """The findings of this process, each kind once."""
    # numpy and pyarrow take address space by the thread
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # a crash is a finding and needs no file of its own
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chosen = random.Random(f"{target.name} {seed}")
    mutator = Mutator(chosen, target.words)
    pool = [data[:MOST_BYTES] for data in (*target.seeds(), *corpus(target.name))]
    findings: dict[str, tuple[str, Path]] = {}
    known: set[object] = set()

    limit = _MOST_SECONDS_OF_FIRST

    def one(data: bytes) -> bool:
        """Whether what came of it is new."""
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

    # The first ones compile or load the kernels.
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
    """The process of some targets; says what each has found, and when it has ended."""
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
