"""Parts of random batches that all connectors share: the settings of events, and the images of rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tailrace.columns import Image
from tailrace.config.naming import TopicNaming

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
KEYS = 2
"""Number of columns at the start of a table that may be its key and are never absent."""


@st.composite
def modes(draw: Callable[..., Any]) -> dict[str, Any]:
    """Draw settings that every connector has, by their names in EventSettings."""
    return {
        "tombstones_on_delete": draw(st.booleans()),
        "decimal_handling_mode": draw(st.sampled_from(["precise", "precise", "double", "string"])),
        "time_precision_mode": draw(
            st.sampled_from(
                [
                    *("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds"),
                    *("nanoseconds", "structured"),
                ]
            )
        ),
        "binary_handling_mode": draw(st.sampled_from(["bytes", "base64", "base64-url-safe", "hex"])),
        "extended_headers_enabled": draw(st.booleans()),
        "key_schemas_enable": draw(st.booleans()),
        "value_schemas_enable": draw(st.booleans()),
        "replace_null_with_default": draw(st.booleans()),
        "naming": draw(st.sampled_from([TopicNaming(), TopicNaming(True, re.compile("(.*)"), "$1", "told")])),
        "run_id": "run",
    }


@st.composite
def images(draw: Callable[..., Any], texts: list[st.SearchStrategy[str]], present: list[bool]) -> Image:
    """Draw an image with a row for each item of `present`, all null where that is False.

    Values come from the column's texts; some are null or missing.
    """
    arrays: list[pa.Array] = []
    flags: list[Any] = []
    for number, strategy in enumerate(texts):
        values: list[bytes | None] = []
        missing: list[bool] = []
        for there in present:
            absent = not there or (number >= KEYS and draw(st.integers(0, 4)) == 0)
            values.append(None if absent else draw(strategy).encode())
            missing.append(there and absent and draw(st.integers(0, 3)) == 0)
        # A slice of a larger array, as a decoder may produce it.
        arrays.append(pa.array([b"other", *values, None], pa.binary()).slice(1, len(values)))
        flags.append(np.array(missing, np.bool_) if any(missing) else None)
    return Image(None if all(present) else np.array(present, np.bool_), arrays, flags)
