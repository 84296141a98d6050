"""The arguments of `tailrace verify` and its own exit codes. Driver; imports nothing of Spark's."""

from __future__ import annotations

import argparse

DIFFERENT = 1
"""Exit code where a key differs, or is not decided."""
FAILED = 13
"""Exit code of a failure that has none of its own: elsewhere 1, which says here that tables differ."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command, beside the file."""
    add = parser.add_argument
    add("--table", metavar="NAME", action="append", default=[],
        help="schema.table to compare; repeatable; all captured ones when left out")  # fmt: skip
    add("--repair", action="store_true", help="mend exactly the rows that differ, then compare them again")
    add("--limit", metavar="N", type=int, default=20, help="show so many keys of a table at most; 20")
    add("--report", metavar="FILE", help="write all keys that differ there, a line of JSON each")
    add("--wait", metavar="SECONDS", type=float, default=60.0,
        help="how long keys that keep changing are compared again, and rows to be mended waited for; 60")  # fmt: skip
