"""References in option values: `${env:NAME}`, `${file:PATH:KEY}`, `${NAME}` and `${NAME:default}`. Driver only."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tailrace.config.properties import parse_properties
from tailrace.errors import ConfigError

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")


def resolve(options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options with every reference replaced.

    `${env:NAME}` is a variable of the environment, `${file:PATH:KEY}` an entry of a .properties file,
    `${NAME}` another entry of `options` or else a variable, also in capitals with `_` for other characters, and
    `${NAME:default}` the same with a value to fall back to. A replacement is not searched again. Raises ConfigError
    that names each option whose reference cannot be replaced, never a value.
    """
    known = os.environ if environment is None else environment
    faults: list[str] = []
    resolved = {}
    for option, text in options.items():

        def replace(found: re.Match[str], option: str = option) -> str:
            value = _look_up(found.group(1), options, known)
            if value is None:
                faults.append(f"{option} refers to ${{{found.group(1)}}}, which is not there")
                return ""
            return value

        resolved[option] = _REFERENCE.sub(replace, text)
    if faults:
        raise ConfigError("; ".join(faults) + ".", "Set it in the environment or in the file that is named.")
    return resolved


def _look_up(reference: str, options: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    kind, colon, rest = reference.partition(":")
    if colon and kind == "env":
        return environment.get(rest)
    if colon and kind == "file":
        path, _, key = rest.rpartition(":")
        try:
            return parse_properties(Path(path).read_text()).get(key)
        except OSError:
            return None
    other = options.get(kind)
    if other is not None and not _REFERENCE.search(other):
        return other
    value = environment.get(kind)
    if value is None:
        value = environment.get(re.sub(r"[^A-Za-z0-9]", "_", kind).upper())
    if value is None and colon:
        return rest
    return value
