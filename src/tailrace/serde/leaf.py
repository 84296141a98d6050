"""Compiled functions that kernels call for each value. Worker."""

from __future__ import annotations

from tailrace.compiled import kernel

leaf = kernel(leaf=True)
