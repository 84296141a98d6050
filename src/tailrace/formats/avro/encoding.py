"""The encoding Avro: a layout is compiled to literals with leaves between them, behind what names its schema. Worker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.assembly.json_text import quoted
from tailrace.assembly.programs import KINDS, Fragment, Programs
from tailrace.buffers import binary_array
from tailrace.columns.logical import STRING, LogicalType
from tailrace.formats.arrow import array_of, computed
from tailrace.formats.assembled import AssembledBlock, Assembly, Hole
from tailrace.formats.avro.options import Options, options_of
from tailrace.formats.avro.pieces import array_piece, joined, json_piece, takes_arrow
from tailrace.formats.avro.schema import Rules, full_name, schema_text
from tailrace.formats.avro.values import branches, writer
from tailrace.formats.base import Notes
from tailrace.formats.json.pieces import spread
from tailrace.formats.registry.ids import Ids
from tailrace.records.columns import Columns, Same, Written
from tailrace.records.layout import CHANGE, RECORD, Column, Computed, Constant, ImageColumn, Node, Struct, Text
from tailrace.values.arrow import arrow_type_of, typed
from tailrace.values.fragments import column_fragment, integers_fragment


@dataclass(frozen=True, slots=True)
class Avro:
    """See formats.base.Encoding. `options` are None until the converter's are given."""

    kind: str
    options: Options | None = None

    def with_options(self, part: str, given: Mapping[str, str]) -> Avro:
        """See formats.base.Configured."""
        return Avro(self.kind, options_of(self.kind, part, given))

    def notes(self, given: Mapping[str, str]) -> Notes:
        """See formats.base.Configured."""
        return Notes()
