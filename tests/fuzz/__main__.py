"""`python -m tests.fuzz` feeds damaged input to every part that reads foreign bytes."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.fuzz.machine import run
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Run the targets one after another. Return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for each target (10)")
    parser.add_argument("--most", type=int, default=0, help="inputs of each target that end it sooner")
    parser.add_argument("--only", default="", help=f"only these, of {', '.join(TARGETS)}")
    parser.add_argument("--seed", type=int, default=None, help="what the choices are made of; a new one by default")
    parser.add_argument("--folder", type=Path, default=None, help="where inputs with findings are put")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    folder = given.folder or Path(tempfile.mkdtemp(prefix="tailrace-fuzz-"))
    names = [name.strip() for name in given.only.split(",") if name.strip()] or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    print(f"seed {seed}, findings in {folder}", flush=True)
    found = False
    for name in names:
        report = run(name, given.minutes * 60, seed, folder, given.most)
        print(
            f"{name:<13} {report.seconds:8.0f} s {report.inputs:10,} inputs {len(report.findings):4} findings",
            flush=True,
        )
        for text, path in report.findings:
            print(f"\n--- {path}\n{text}", flush=True)
        found = found or bool(report.findings)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
