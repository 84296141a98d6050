"""The log line that functions are being compiled, which happens once per installation and takes long. Planner,
worker."""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path
from typing import Any

MARK = "TAILRACE_COMPILING"
"""The environment variable that names a file. The first process of a run that compiles a function creates the file."""

_log = logging.getLogger("tailrace")


@cache
def announce_compiling() -> None:
    """Log a line when this process compiles a function of tailrace that numba's cache does not have."""
    from numba.core import caching

    kept: Any = caching.Cache
    find = kept.load_overload

    def found(self: Any, *arguments: Any) -> Any:
        result = find(self, *arguments)
        if result is None and str(self._py_func.__module__).startswith("tailrace."):
            _announce()
        return result

    kept.load_overload = found


@cache
def _announce() -> None:
    mark = os.environ.get(MARK, "")
    if mark:
        try:
            Path(mark).touch(exist_ok=False)
        except FileExistsError:
            return
        except OSError:
            pass
    _log.info("Functions are compiled, once for this installation: the first batch takes a minute or so longer.")
