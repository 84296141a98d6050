"""Config: a connector's options as typed values, and `parse`, which makes one and collects every fault. No I/O."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config import columns, naming, signals
from tailrace.config.connector import Draft, Options, Traits
from tailrace.config.expressions import compile_expression
from tailrace.config.formats import format_of
from tailrace.config.option import Kind, Option
from tailrace.config.transforms import transforms
from tailrace.errors import ConfigError

_log = logging.getLogger("tailrace")
_logged: set[str] = set()
_PREFIX = "topic.prefix"


@dataclass(frozen=True, slots=True, repr=False)
class Config(Mapping[str, Any]):
    """A connector's configuration: `config[name]` is the typed value, with the default applied. Picklable.

    The types are those of `tailrace.config.option.Kind`; an option without value or default is None. Some values
    are settled beyond the table: `topic.prefix` is the logical name however it was given, `event.format` is the
    chosen format, and each connector settles what its own options say together.
    `traits` are the connector's. `given` holds the option texts as they were given, under the names of the table;
    `hidden` are those of them whose texts are never shown, `idle` those that have no effect; `notices` the sentences
    about deprecated names and options without effect.
    """

    traits: Traits
    typed: dict[str, Any]
    given: dict[str, str]
    notices: tuple[str, ...] = field(default=(), compare=False)
    hidden: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Any:
        return self.typed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.typed)

    def __len__(self) -> int:
        return len(self.typed)

    def is_set(self, name: str) -> bool:
        """Whether the user gave the option himself."""
        return name in self.given

    @property
    def connector(self) -> str:
        """The connector's name."""
        return self.traits.connector

    @property
    def texts(self) -> dict[str, str]:
        """The options as texts that `parse` makes the same configuration of, without those that have no effect.

        Holds the secrets. The format goes with them: under which names the options were given, and with them the
        generation, is not to be seen any more.
        """
        texts = {name: text for name, text in self.given.items() if name not in self.idle}
        return texts | {"event.format": self.event_format}

    @property
    def event_format(self) -> str:
        """The version of the connector's document, or `3`: whose wire format is written."""
        return str(self.typed["event.format"])

    @property
    def logical_name(self) -> str:
        """The server's logical name: the first part of topics and schema names."""
        return str(self.typed["topic.prefix"])

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{columns.without_salt(n)}={'***' if n in self.hidden else v!r}" for n, v in sorted(self.given.items())
        )
        return f"Config({self.connector}: {shown})"


def parse(traits: Traits, options: Options, given: Mapping[str, str]) -> Config:
    """The configuration that the texts `given` describe, for a connector with `traits` and `options`.

    Names are matched without regard to case.

    Raises ConfigError with every fault in one message: unknown names with the nearest known one, broken values,
    options that are not supported with the reason.
    """
    reading = _Reading(options)
    newest = any(name.strip().lower() == _PREFIX and text.strip() for name, text in given.items())
    for name, text in given.items():
        if newest and name.strip().lower() in reading.older_names:
            reading.notices.append(f"{name.strip()} has no effect: {_PREFIX} is given, and names the server.")
        else:
            reading.take(name.strip(), text)
    values = reading.settle()
    if traits.rewrites_layouts:
        made = transforms(values)
        reading.faults += made.faults
        reading.notices += made.notices
    else:
        reading.faults += _before_transforms(values)
    if reading.faults:
        raise _config_error(reading.faults)
    for notice in reading.notices:
        if notice not in _logged:
            _logged.add(notice)
            _log.warning(notice)
    rows = {name: reading.row(name) for name in reading.given}
    hidden = frozenset(name for name, row in rows.items() if row.hides(name))
    idle = frozenset(name for name, row in rows.items() if row.notice)
    return Config(traits, values, reading.given, tuple(reading.notices), hidden, idle)


def _before_transforms(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with the formats of a connector that has transforms of its own, which take JSON."""
    if not values["transforms"]:
        return []
    named = (f"{part}.converter" for part in ("key", "value"))
    return [f"{name} = {values[name]} is not supported: the transform takes JSON" for name in named
            if format_of(values[name]) != "json"]  # fmt: skip


def _config_error(faults: list[str]) -> ConfigError:
    if len(faults) == 1:
        return ConfigError(f"{faults[0]}.", "Correct the configuration.")
    listed = "".join(f"\n  - {fault}" for fault in faults)
    return ConfigError(f"The configuration has {len(faults)} faults:{listed}\n", "Correct the configuration.")


class _Reading:
    """The state of one `parse`: what was given under which name, and what is wrong with it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.table = table = options.table
        self.given: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.faults: list[str] = []
        self.notices: list[str] = []
        self._written: dict[str, str] = {}
        self._used: set[str] = set()
        self.older_names = {alias.lower() for option in table if option.name == _PREFIX for alias in option.aliases}
        self._names = {option.name.lower(): option for option in table if not option.pattern}
        self._older = {old.lower(): option for option in table for old in option.deprecated_names}
        self._aliases = {alias.lower(): option for option in table for alias in option.aliases}

    def row(self, name: str) -> Option:
        """The row of an option that was given: the one of its name, else that of its family."""
        return self._names.get(name.lower()) or next(option for option in self.table if option.matches(name))

    def take(self, name: str, text: str) -> None:
        """Read one option as it was written."""
        lower = name.lower()
        option = self._names.get(lower) or self._older.get(lower) or self._aliases.get(lower)
        if option is None:
            option = next((row for row in self.table if row.matches(name)), None)
        if option is None:
            self.faults.append(f"{columns.without_salt(name)} is not an option{self._nearest(lower)}")
            return
        shown = columns.without_salt(name)
        canonical = name if option.pattern else option.name
        if not text.strip() and option.kind not in (Kind.TEXT, Kind.SECRET):
            return
        if canonical in self.given and self.given[canonical] != text:
            self.faults.append(
                f"{columns.without_salt(self._written[canonical])} and {shown} are one option and contradict each other"
            )
            return
        self._used.add(lower)
        if lower in self._older:
            self.notices.append(f"{name} is the older name of {option.name}: use that.")
        try:
            value = option.parse(text)
        except ValueError as fault:
            self.faults.append(f"{shown} has a value that is not taken" if option.hides(name) else f"{shown} {fault}")
            return
        if not self._usable(option, name, text, value):
            return
        self.given[canonical] = text
        self._written[canonical] = name
        self.values[canonical] = value

    def _usable(self, option: Option, name: str, text: str, value: Any) -> bool:
        """Whether a value that was read has an effect here; says so when it is refused or has none."""
        is_default = value == option.default or value in option.neutral
        if option.unsupported and not is_default:
            if text.strip():
                # a family has members that nobody here knows of
                shown = name if option.pattern or option.hides(name) else f"{name} = {text.strip()}"
                self.faults.append(f"{shown} is not supported: {option.unsupported}")
            return False
        if option.notice and not is_default:
            self.notices.append(f"{name} has no effect: {option.notice}.")
        return True

    def _nearest(self, lower: str) -> str:
        known = {**{row.name.lower(): row.name for row in self.table if not row.pattern}}
        known.update({alias: alias for alias in self._aliases})
        close = difflib.get_close_matches(lower, known, n=1, cutoff=0.6)
        return f"; the nearest is {known[close[0]]}" if close else ""

    def settle(self) -> dict[str, Any]:
        """All values with their defaults, after the rules that concern several options."""
        options, given = self.options, self.values
        chosen = next(
            (value for name, value in options.generations.items() if name in self._used), options.event_format
        )
        event_format = given.get("event.format") or chosen
        values: dict[str, Any] = {}
        for option in self.table:
            if not option.pattern:
                old = event_format.startswith("1.") and option.default_1x is not None
                values[option.name] = option.default_1x if old else option.default
        values.update(given)
        values["event.format"] = event_format
        for name in options.required:
            if not values[name]:
                self.faults.append(f"{name} is missing")
        if not values["topic.prefix"]:
            named = values.get("database.names") or [values.get("database.dbname")]
            values["topic.prefix"] = values["name"] or named[0] or ""
        values["snapshot.mode"] = options.modes.get(values["snapshot.mode"], values["snapshot.mode"])
        self._settle_converters(values)
        self._settle_field_names(values)
        self._check_lists(values)
        self.faults.extend(columns.faults(values))
        self.faults.extend(naming.faults(values, self.given))
        self._check_snapshot_mode(values)
        self.faults.extend(signals.settle(values))
        draft = Draft(values, frozenset(self.given), event_format, used=frozenset(self._used))
        options.settle(draft)
        self.faults.extend(draft.faults)
        self.notices.extend(draft.notices)
        self.given.update(draft.implied)
        return values

    def _settle_converters(self, values: dict[str, Any]) -> None:
        for option in ("schemas.enable", "replace.null.with.default"):
            for part in ("key", "value", "header"):
                name = f"{part}.converter.{option}"
                if name in values and name not in self.given:
                    values[name] = values[f"converter.{option}"]
        nulls = "converter.replace.null.with.default"
        if values[f"key.{nulls}"] != values[f"value.{nulls}"] and f"key.{nulls}" in self.given:
            self.faults.append(f"key.{nulls} must not differ from value.{nulls}")
        values["replace.null.with.default"] = values[f"value.{nulls}"]

    def _settle_field_names(self, values: dict[str, Any]) -> None:
        """The 1.x switch stands for one mode of today's option."""
        if not values.get("sanitize.field.names"):
            return
        mode = "field.name.adjustment.mode"
        if mode in self.given and values[mode] != "avro":
            self.faults.append(f"sanitize.field.names contradicts {mode} = {values[mode]}: leave it out")
        values[mode] = "avro"
        self.notices.append(f"sanitize.field.names is the older way to say {mode}=avro: use that.")

    def _check_snapshot_mode(self, values: dict[str, Any]) -> None:
        based = "snapshot.mode.configuration.based"
        idle = not (values[f"{based}.snapshot.data"] or values[f"{based}.start.stream"])
        if values["snapshot.mode"] == "configuration_based" and idle:
            self.faults.append(
                f"snapshot.mode = configuration_based does nothing unless {based}.snapshot.data or "
                f"{based}.start.stream is true"
            )

    def _check_lists(self, values: dict[str, Any]) -> None:
        """Every pair of an include and an exclude list, and every expression; columns have a check of their own."""
        kinds = {option.name: option.kind for option in self.table}
        for name in [name for name in values if name.endswith((".include.list", ".exclude.list"))]:
            if name in columns.COLUMN_LISTS or kinds.get(name) is not Kind.EXPRESSIONS:
                continue
            other = name.replace(".include.", ".exclude.")
            if name != other and values[name] and values.get(other):
                self.faults.append(f"{name} and {other} exclude each other: give one of them")
            # Names as they are need not be expressions.
            literal = values.get("filters.match.mode") == "literal"
            for expression in () if literal else values[name] or ():
                try:
                    compile_expression(expression)
                except ValueError as fault:
                    self.faults.append(f"{name}: {fault}")
