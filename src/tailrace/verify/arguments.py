"""The arguments of `tailrace verify` and its own exit codes. Driver; does not import Spark."""

from __future__ import annotations

import argparse

DIFFERENT = 1
"""Exit code if a key differs or is undecided."""
FAILED = 13
"""Exit code of an error without a code of its own. Other commands use 1, which here means that tables differ."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, other than the configuration file."""
    add = parser.add_argument
    add("--table", metavar="NAME", action="append", default=[],
        help="schema.table to compare; repeatable; all captured ones when left out")  # fmt: skip
    add("--repair", action="store_true", help="mend exactly the rows that differ, then compare them again")
    add("--limit", metavar="N", type=int, default=20, help="show so many keys of a table at most; 20")
    add("--report", metavar="FILE", help="write all keys that differ there, a line of JSON each")
    add("--wait", metavar="SECONDS", type=float, default=60.0,
        help="how long keys that keep changing are compared again, and rows to be mended waited for; 60")  # fmt: skip
