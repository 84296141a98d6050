"""Texts that Arrow changes before a family converts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tailrace.columns.logical import LogicalType
from tailrace.kernels.programs import Fragment
from tailrace.values.conversion import Family, TypedColumn
from tailrace.values.texts import ShownValues, Texts


@dataclass(frozen=True, slots=True)
class PreparedFamily(Family):
    """The family of a column changed by `prepare`, which raises pa.ArrowInvalid for a text that is not of its kind."""

    prepare: Callable[[pa.Array], pa.Array]
    family: Family

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int] | None:
        prepared = self._prepared(texts)
        return None if prepared is None else self.family.json(prepared, shown)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        prepared = self._prepared(texts)
        return None if prepared is None else self.family.arrow(prepared, logical, of)

    def _prepared(self, texts: Texts) -> Texts | None:
        try:
            return texts.replaced(self.prepare(texts.column))
        except pa.ArrowInvalid:
            # Arrow does not say which text it is.
            return None
