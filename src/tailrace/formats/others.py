"""Encodings used within another encoding: the converters that a converter's options name. Any process."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.config.formats import KNOWN, format_of, is_known
from tailrace.errors import ConfigError
from tailrace.formats.base import ConfiguredEncoding, EncodingChoice


def other(converter: str, part: str, option: str, options: Mapping[str, str]) -> EncodingChoice:
    """Return the encoding of a converter with its options; `option` is the option that names it, without its part.

    Raises ConfigError.
    """
    if not is_known(converter):
        raise ConfigError(f"{part}.converter.{option} = {converter} is not supported.", "Name another one.")
    name = format_of(converter)
    found = KNOWN.own(name) if name in KNOWN.places else KNOWN.load(name)
    if isinstance(found, ConfiguredEncoding):
        taken = found.with_options(part, dict(options))
        if taken.in_headers:
            raise ConfigError(
                f"{part}.converter.{option.rstrip('.')} = {converter} puts ids into headers, which is not supported.",
                "Set its option apicurio.registry.headers.enabled to false: ids then stand at the head of the bytes.",
            )
        return taken
    return EncodingChoice(found, unknown=tuple(options))
