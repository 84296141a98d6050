"""The transforms that a configuration names, made of their options. No I/O, any process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.errors import ConfigError
from tailrace.extensions import Extensions

KNOWN = Extensions("tailrace.transforms", "transform", {}, ConfigError)
"""Transforms by the text of `transforms.<name>.type`."""

_PREDICATES = ("predicate", "negate")


def transforms(values: Mapping[str, Any]) -> tuple[tuple[Any, ...], list[str]]:
    """The transforms in their order, and what is wrong with them; `values` are the configuration's.

    Faults name options and never their values.
    """
    names: list[str] = values.get("transforms") or []
    options = {name: str(text).strip() for name, text in values.items() if name.lower().startswith("transforms.")}
    faults: list[str] = []
    made: list[Any] = []
    for name in names:
        start = f"transforms.{name}."
        own = {option.removeprefix(start): options.pop(option) for option in list(options) if option.startswith(start)}
        kind = own.pop("type", "")
        refused = [option for option in _PREDICATES if option in own]
        faults += [f"{start}{option} is not supported: predicates are not available yet" for option in refused]
        if not kind:
            faults.append(f"{start}type is missing")
        elif not refused:
            try:
                made.append(_made(kind, own))
            except ConfigError as error:
                faults.append(f"{start}type = {kind} is not supported: {error.message.rstrip('.')}")
    faults += [f"{name} belongs to no transform that transforms names" for name in options]
    return tuple(made), faults


def _made(kind: str, options: Mapping[str, str]) -> Any:
    made = KNOWN.load(kind)(options)
    missing = [part for part in ("route", "rewrite") if not callable(getattr(made, part, None))]
    if missing:
        raise ConfigError(f"It is no transform, for it has no {' and no '.join(missing)}.", "Mend its package.")
    return made
