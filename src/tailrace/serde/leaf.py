"""How the functions are compiled that kernels call for each value. Worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_Leaf = TypeVar("_Leaf", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def leaf(function: _Leaf) -> _Leaf:
    """The function, compiled on first use; it may not make arrays.

    It does not count references to those that it is given, since its callers hold them. Counting is atomic: it took
    half of the time of the kernels of dates and integers.
    """
    return cast(_Leaf, njit(**_OPTIONS)(function))
