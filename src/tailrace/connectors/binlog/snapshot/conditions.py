"""Conditions of signals in the SQL of MySQL and MariaDB. No I/O."""

from __future__ import annotations

import re

from tailrace.snapshot import conditions

_NAME = re.compile(r"`[^`'\"()\\;#/-]*`")
_TWOFOLD = re.compile(r"\\|#|/\*|--")


def fault(sql: str) -> str:
    """Return why `sql` cannot be one condition or one select, as the rest of a sentence; "" if it can.

    Texts with comments or escapes are refused, since these servers do not read them as in standard SQL.
    """
    plain = _NAME.sub(" x ", sql)
    if "`" in plain:
        return "it has a backtick that can be read in two ways"
    found = _TWOFOLD.search(plain)
    if found:
        return f"it has {found[0]}, which can be read in two ways"
    return conditions.fault(plain, brackets=False)
