"""Typed rows: records as Arrow structs, each leaf in the Arrow type of its schema."""

from __future__ import annotations

from tailrace.formats.typed.encoding import TYPED

__all__ = ["TYPED"]
