"""Encodings that another one is made with: the converters that a converter's options name. Any process."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.config.formats import KNOWN, format_of, is_known
from tailrace.errors import ConfigError
from tailrace.formats.base import Configured, Taken


def other(converter: str, part: str, option: str, options: Mapping[str, str]) -> Taken:
    """The encoding of a converter with its options, which begin with `option` in those of the one that names it.

    Raises ConfigError.
    """
    if not is_known(converter):
        raise ConfigError(f"{part}.converter.{option.rstrip('.')} = {converter} is not supported.", "Name another one.")
    name = format_of(converter)
    found = KNOWN.own(name) if name in KNOWN.places else KNOWN.load(name)
    taken = found.with_options(part, dict(options)) if isinstance(found, Configured) else Taken(found)
    return taken
