"""ExtractField: replaces the key or the value with one of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tailrace.columns.logical import ABSENT
from tailrace.records.layout import Constant, RecordLayout
from tailrace.records.nodes import at, with_defaults
from tailrace.records.transform import RefusedRecord, Rewritten
from tailrace.transforms.key_or_value import KEY, VALUE, defaults, is_missing, part, with_part
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class ExtractField:
    """A tailrace.records.transform.Transform. `path` has one name, or several of nested structs.

    If `fills`, a field of a struct that is null gets its default, as the converter does for nulls.
    """

    which: str
    path: tuple[str, ...]
    defaults: bool
    fills: bool = True

    def with_nulls(self, filled: bool) -> ExtractField:
        """Return the transform for a converter that replaces nulls with defaults (`filled`), or does not."""
        return replace(self, fills=filled)

    def rewrite(self, record: RecordLayout) -> Rewritten:
        node = part(record, self.which)
        if node is None:
            return record
        if node.type.connect != "struct":
            raise RefusedRecord(f"ExtractField needs fields, and the {self.which} is not a struct")
        found = at(node, self.path)
        if found is None:
            raise RefusedRecord(f"ExtractField finds no field {'.'.join(self.path)} in the {self.which}")
        if (
            isinstance(found, Constant)
            and is_missing(found)
            and self.fills
            and found.type.default not in (ABSENT, None)
        ):
            # of a struct that is null, so that the converter decides
            found = replace(found, value=found.type.default)
        return with_part(record, self.which, with_defaults(found) if self.defaults else found)


def _path(text: str) -> tuple[str, ...]:
    """Split a path at its dots; a step between backticks may hold dots."""
    steps: list[str] = []
    rest = text
    while rest:
        if rest.startswith("`"):
            end = next((at for at in range(1, len(rest)) if rest[at] == "`" and rest[at + 1 : at + 2] in ("", ".")), 0)
            if end:
                steps.append(rest[1:end])
                rest = rest[end + 2 :]
                continue
        step, _, rest = rest.partition(".")
        steps.append(step)
    return tuple(steps)


def _extract_field(which: str, options: Mapping[str, str]) -> ExtractField:
    given = OptionReader(options)
    field = given.required("field")
    nested = given.word("field.syntax.version", "v1", ("v1", "v2")) == "v2"
    found = ExtractField(which, _path(field) if nested else (field,), defaults(given))
    given.done()
    return found


of_key, of_value = partial(_extract_field, KEY), partial(_extract_field, VALUE)
"""Make the transform from its options, for keys and for values."""
