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
        help="compare only this schema.table; repeatable")  # fmt: skip
    add("--repair", action="store_true", help="repair the rows that differ, then compare again")
    add("--limit", metavar="N", type=int, default=20, help="show at most N keys of a table; default: 20")
    add("--report", metavar="FILE", help="write all keys that differ to this file, one JSON object per line")
    add("--wait", metavar="SECONDS", type=float, default=60.0,
        help="time for comparing keys that change, and for the repair; default: 60")  # fmt: skip
