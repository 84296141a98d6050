"""Config: a connector's options as typed values. `parse` makes one, `examine` reports on every option. No I/O."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.config import columns, connect, naming, processors, rows, signals
from tailrace.config.connector import ConfigDraft, Options, Traits
from tailrace.config.expressions import compile_expression
from tailrace.config.option import Kind, Option, holds_login
from tailrace.config.outcome import Outcome, attributed
from tailrace.config.transforms import transforms
from tailrace.errors import ConfigError

_log = logging.getLogger("tailrace")
_logged: set[str] = set()
_PREFIX = "topic.prefix"
_UNKNOWN = "tailrace.unknown.options"
_LIKE = 0.6
_CONNECTING = "connection.validation.timeout.ms"

Foreign = Callable[[str], str]
"""Returns the reason why an option that the connector lacks, named in lower case, has no effect; "" if unknown."""


@dataclass(frozen=True, slots=True, repr=False)
class Config(Mapping[str, Any]):
    """A connector's configuration: `config[name]` is the typed value, with the default applied. Picklable.

    `tailrace.config.option.Kind` names the types; an option without value or default is None. Rules decide some
    values: `topic.prefix` is the logical name, however it was given; `event.format` is the chosen format; and each
    connector has rules between its options. `traits` are the connector's. `given` has the texts of the given options,
    under their names in the table. Of these options, `hidden` are never shown and `idle` have no effect. `notices` are
    sentences about deprecated names and options without effect.
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
        """Return True if the user gave the option."""
        return name in self.given

    @property
    def connector(self) -> str:
        """The connector's name."""
        return self.traits.connector

    @property
    def texts(self) -> dict[str, str]:
        """The options that have an effect, as texts from which `parse` makes the same configuration.

        Contains the secrets. It includes the format, since the texts no longer show the names that chose it.
        """
        texts = {name: text for name, text in self.given.items() if name not in self.idle}
        return texts | {"event.format": self.event_format}

    @property
    def event_format(self) -> str:
        """The event format: a version of Debezium, `3` for today's."""
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


@dataclass(frozen=True, slots=True)
class ConfigExamination:
    """The result of examining options: the configuration, None if there are faults, and the outcome of each option.

    `outcomes` are in the order of the options, and include faults of single options. `implied` are options, as texts,
    that the names of others decide.
    """

    config: Config | None
    outcomes: tuple[Outcome, ...]
    faults: tuple[str, ...]
    notices: tuple[str, ...]
    implied: Mapping[str, str] = field(default_factory=dict)


def parse(traits: Traits, options: Options, given: Mapping[str, str], foreign: Foreign | None = None) -> Config:
    """Return the configuration of the texts `given`, for a connector with `traits` and `options`.

    Names are matched without regard to case. `foreign` knows names of other programs and connectors.

    Raises ConfigError with every fault in one message: unknown names with the nearest known one, invalid values, and
    unsupported options with the reason.
    """
    return demanded(examine(traits, options, given, foreign))


def demanded(examined: ConfigExamination) -> Config:
    """Return the examined configuration. Raises ConfigError with every fault in one message."""
    if examined.config is None:
        raise config_error(examined.faults)
    announce(examined.notices)
    return examined.config


def announce(notices: Collection[str]) -> None:
    """Log each notice once."""
    for notice in notices:
        if notice not in _logged:
            _logged.add(notice)
            _log.warning(notice)


def examine(
    traits: Traits,
    options: Options,
    given: Mapping[str, str],
    foreign: Foreign | None = None,
    unknown: Collection[str] = (),
) -> ConfigExamination:
    """Return the outcome of each option. Like `parse`, but returns faults instead of raising them, and logs nothing.

    `unknown` are the names in `given` whose texts are references that cannot be resolved yet. Their typed values are
    substitutes, and a configuration with these must never run.
    """
    reading = _Reading(options, given, foreign, unknown)
    for name, text in given.items():
        reading.take(name, text)
    values = reading.settle()
    chain = transforms(values, traits.transforms)
    reading.faults += chain.faults
    reading.notices += chain.notices
    outcomes, rest = attributed(reading.told(), reading.faults, unknown)
    left = {*rest, *(fault for fault in reading.faults if not _is_of(fault, unknown))}
    faults = tuple(fault for fault in reading.faults if fault in left)
    table = {name: reading.row(name) for name in reading.given}
    hidden = frozenset(name for name, row in table.items() if row.hides(name) or holds_login(reading.given[name]))
    idle = frozenset(name for name, row in table.items() if row.notice) | reading.idle
    made = None if faults else Config(traits, values, reading.given, tuple(reading.notices), hidden, idle)
    return ConfigExamination(made, tuple(outcomes.values()), faults, tuple(reading.notices), reading.implied)


def _is_of(fault: str, names: Collection[str]) -> bool:
    return any(fault.startswith((f"{name} ", f"{name}:")) for name in names)


def config_error(faults: Sequence[str]) -> ConfigError:
    """Return the error that reports all faults."""
    if len(faults) == 1:
        return ConfigError(f"{faults[0]}.", "Correct the configuration.")
    listed = "".join(f"\n  - {fault}" for fault in faults)
    return ConfigError(f"The configuration has {len(faults)} faults:{listed}\n", "Correct the configuration.")


def _likeness(name: str, other: str) -> float:
    """Return the similarity of two names, up to 1, also if their words are in another order; 0 below _LIKE."""
    found = 0.0
    for pair in ((name, other), (".".join(sorted(name.split("."))), ".".join(sorted(other.split("."))))):
        matcher = difflib.SequenceMatcher(None, *pair)
        # the first two bounds are cheap, for a name of any length
        if matcher.real_quick_ratio() >= _LIKE and matcher.quick_ratio() >= _LIKE:
            found = max(found, matcher.ratio())
    return found


class _Reading:
    """The state of one `parse`: the given options by their names in the table, their outcomes, and the faults."""

    def __init__(
        self, options: Options, given: Mapping[str, str], foreign: Foreign | None, unknown: Collection[str]
    ) -> None:
        self.options = options
        self.table = table = options.table
        self.given: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.faults: list[str] = []
        self.notices: list[str] = []
        self.outcomes: dict[str, Outcome] = {}
        self.idle: frozenset[str] = frozenset()
        self.implied: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._used: set[str] = set()
        self._foreign = foreign
        self._texts = given
        self._unknown = unknown
        plain = {name.strip().lower(): text.strip() for name, text in given.items()}
        self._newest = bool(plain.get(_PREFIX))
        self._is_lenient = plain.get(_UNKNOWN, "").lower() == "warn"
        self._logical = {alias.lower() for option in table if option.name == _PREFIX for alias in option.aliases}
        self._names = {option.name.lower(): option for option in table if not option.pattern}
        self._older = {old.lower(): option for option in table for old in option.deprecated_names}
        self._aliases = {alias.lower(): option for option in table for alias in option.aliases}

    def told(self) -> Iterator[Outcome]:
        """Yield the outcome of each option, including those from notices of rules between options."""
        for written, outcome in self.outcomes.items():
            start = f"{columns.without_salt(written.strip())} has no effect: "
            notice = next((notice for notice in self.notices if notice.startswith(start)), "")
            idle = outcome.state == "kept" and notice
            yield Outcome(written, "without effect", notice[len(start) :].rstrip(".")) if idle else outcome

    def row(self, name: str) -> Option:
        """Return the row of a given option: by exact name, then by pattern."""
        return self._names.get(name.lower()) or next(option for option in self.table if option.matches(name))

    def take(self, written: str, text: str) -> None:
        """Read one option."""
        name = written.strip()
        lower = name.lower()
        option = self._names.get(lower) or self._older.get(lower) or self._aliases.get(lower)
        if option is None:
            option = next((row for row in self.table if row.matches(name)), None)
        self.outcomes[written] = Outcome(written)
        if option is None and self._names.get(processors.FAMILY) is not None:
            name = processors.today(name, self._texts) or name
            option = next((row for row in self.table if row.matches(name)), None)
            if option is not None:
                self.outcomes[written] = Outcome(written, "translated", "", name)
        if option is None:
            self._take_unknown(written, lower)
            return
        if self._newest and lower in self._logical:
            self._pass_over(written, f"{_PREFIX} is given, and names the server")
            return
        canonical = name if option.pattern else option.name
        if not text.strip() and (option.kind not in (Kind.TEXT, Kind.SECRET) or option.choices or option.check):
            self.outcomes[written] = Outcome(written, "without effect", "it is empty")
            return
        if not self._is_first(canonical, written, text):
            return
        self._used.add(lower)
        is_older = lower in self._older
        if is_older:
            self.notices.append(f"{name} is the older name of {option.name}: use that.")
        if is_older or lower in self._aliases:
            self.outcomes[written] = Outcome(written, "translated", "", option.name)
        self._read(option, written, canonical, text)

    def _read(self, option: Option, written: str, canonical: str, text: str) -> None:
        """Read the value of an option."""
        name = written.strip()
        replaced = option.replacement(text)
        if replaced is not None:
            text, reason = replaced
            self.notices.append(f"{name} is taken as {text}: {reason}.")
            self.outcomes[written] = Outcome(written, "translated", reason, canonical, text)
        try:
            value = option.stand_in if written in self._unknown else option.parse(text)
        except ValueError as fault:
            shown = columns.without_salt(name)
            self.faults.append(f"{shown} has an invalid value" if option.hides(name) else f"{shown} {fault}")
            return
        if not self._usable(option, written, text, value):
            return
        self.given[canonical] = text
        self._written[canonical] = written
        self.values[canonical] = value

    def _take_unknown(self, written: str, lower: str) -> None:
        """Handle a name that the table does not have: note it as foreign, or as a fault."""
        shown = columns.without_salt(written.strip())
        reason = self._foreign(lower) if self._foreign is not None else ""
        if not reason and self._is_lenient:
            reason = f"it is not an option{self._nearest(lower)}, and {_UNKNOWN} = warn lets it pass"
        if reason:
            self._pass_over(written, reason)
        else:
            self.faults.append(f"{shown} is not an option{self._nearest(lower)}")

    def _pass_over(self, written: str, reason: str) -> None:
        self.outcomes[written] = Outcome(written, "without effect", reason)
        self.notices.append(f"{columns.without_salt(written.strip())} has no effect: {reason}.")

    def _is_first(self, canonical: str, written: str, text: str) -> bool:
        """Return True if the option was not given before. With topic.prefix, today's name takes precedence over an
        older one."""
        before = self._written.get(canonical)
        if before is None or self.given[canonical] == text:
            return True
        names = [before, written]
        newer = [name for name in names if name.strip().lower() == canonical.lower()]
        if not self._newest or len(newer) != 1:
            shown = columns.without_salt
            self.faults.append(f"{shown(before.strip())} and {shown(written.strip())} are one option and contradict "
                               "each other")  # fmt: skip
            return False
        older = next(name for name in names if name != newer[0])
        self._pass_over(older, f"{canonical} is given, and takes precedence")
        if older == before:
            self._used.discard(older.strip().lower())
        return newer[0] == written

    def _usable(self, option: Option, written: str, text: str, value: Any) -> bool:
        """Return True if a value has an effect here; else report that it is refused or idle."""
        name = written.strip()
        is_default = value == option.default or value in option.neutral
        if option.unsupported and not is_default:
            if text.strip():
                # a family may have unknown members, whose values are not shown
                shown = name if option.pattern or option.hides(name) else f"{name} = {text.strip()}"
                self.faults.append(f"{shown} is not supported: {option.unsupported}")
            return False
        if option.notice:
            if is_default:
                self.outcomes[written] = Outcome(written, "without effect", option.notice)
            else:
                self._pass_over(written, option.notice)
        return True

    def _nearest(self, lower: str) -> str:
        known = {**{row.name.lower(): row.name for row in self.table if not row.pattern}}
        known.update({alias: alias for alias in self._aliases})
        likeness, nearest = max((_likeness(lower, name), name) for name in known)
        return f"; the nearest is {known[nearest]}" if likeness >= _LIKE else ""

    def settle(self) -> dict[str, Any]:
        """Return all values with their defaults, after applying the rules between options."""
        options, given = self.options, self.values
        chosen = next(
            (value for name, value in options.generations.items() if name in self._used), options.event_format
        )
        if given.get("rows") == rows.TYPED:
            chosen = rows.GENERATION
        event_format = given.get("event.format") or chosen
        self._drop_orphans(given)
        values: dict[str, Any] = {}
        for option in self.table:
            if not option.pattern:
                old = event_format.startswith("1.") and option.default_1x is not None
                values[option.name] = option.default_1x if old else option.default
        if given.get("rows") == rows.TYPED and "skipped.operations" in values:
            # typed rows are for copies, and a copy without truncates would keep the truncated rows
            values["skipped.operations"] = frozenset()
        values.update(given)
        values["event.format"] = event_format
        for name in options.required:
            if not values[name] and self._written.get(name) not in self._unknown:
                self.faults.append(f"{name} is missing")
        if not values["topic.prefix"]:
            named = values.get("database.names") or [values.get("database.dbname")]
            values["topic.prefix"] = values["name"] or named[0] or ""
        if _CONNECTING in values and values[_CONNECTING] is None:
            values[_CONNECTING] = values["connect.timeout.ms"]
        values["snapshot.mode"] = options.modes.get(values["snapshot.mode"], values["snapshot.mode"])
        self._settle_converters(values)
        self._settle_field_names(values)
        self._settle_processors(values)
        self._check_lists(values)
        self.faults.extend(columns.faults(values))
        self.faults.extend(rows.faults(values))
        self.notices.extend(rows.notices(values, self.given))
        self.faults.extend(naming.faults(values, self.given))
        self._check_snapshot_mode(values)
        self.faults.extend(signals.settle(values, self.notices))
        draft = ConfigDraft(values, frozenset(self.given), event_format, used=frozenset(self._used))
        options.settle(draft)
        self.faults.extend(draft.faults)
        self.notices.extend(draft.notices)
        self.given.update(draft.implied)
        self.idle = frozenset(draft.idle)
        self.implied = draft.implied | {"event.format": event_format}
        return values

    def _drop_orphans(self, given: dict[str, Any]) -> None:
        """Drop the options of transforms and predicates that are not named, as Kafka Connect ignores them."""
        for family in ("transforms", "predicates", processors.FAMILY):
            named = given.get(family) or []
            for name in [name for name in given if name.lower().startswith(f"{family}.")]:
                owner, _, option = name[len(family) + 1 :].rpartition(".")
                if not any(name.startswith(f"{family}.{word}.") for word in named):
                    reason = f"{family} does not name {owner.partition('.')[0] or option}"
                elif option == "version" and owner.endswith(".plugin"):
                    reason = "there is one version of it"
                else:
                    continue
                del given[name], self.given[name]
                self._pass_over(self._written[name], reason)

    def _settle_converters(self, values: dict[str, Any]) -> None:
        for option in ("schemas.enable", "replace.null.with.default"):
            for part in ("key", "value", "header"):
                name = f"{part}.converter.{option}"
                if name in values and name not in self.given:
                    values[name] = values[f"converter.{option}"]
        found = connect.read_converters(values, self.given)
        self.faults += found.faults
        self.notices += found.notices
        for name, reason in found.idle:
            self._pass_over(self._written[name], reason)
            del self.given[name], values[name]
        nulls = "converter.replace.null.with.default"
        for part, keeps in found.keeps_nulls.items():
            values[f"{part}.{nulls}"] = not keeps
        if values[f"key.{nulls}"] != values[f"value.{nulls}"] and f"key.{nulls}" in self.given:
            self.faults.append(f"key.{nulls} must not differ from value.{nulls}")
        values["replace.null.with.default"] = values[f"value.{nulls}"]

    def _settle_processors(self, values: dict[str, Any]) -> None:
        made = processors.processors(values)
        self.faults += made.faults
        for name, reason in made.idle:
            self._pass_over(self._written[name], reason)
            del self.given[name], values[name]

    def _settle_field_names(self, values: dict[str, Any]) -> None:
        """Translate the 1.x switch into a mode of today's option."""
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
        """Check every pair of include and exclude lists, and every expression, except those of columns."""
        kinds = {option.name: option.kind for option in self.table}
        for name in [name for name in values if name.endswith((".include.list", ".exclude.list"))]:
            if name in columns.COLUMN_LISTS or kinds.get(name) is not Kind.EXPRESSIONS:
                continue
            other = name.replace(".include.", ".exclude.")
            if name != other and values[name] and values.get(other):
                self.faults.append(f"{name} and {other} exclude each other: give one of them")
            # With literal matching, names need not be expressions.
            literal = values.get("filters.match.mode") == "literal"
            for expression in () if literal else values[name] or ():
                try:
                    compile_expression(expression)
                except ValueError as fault:
                    self.faults.append(f"{name}: {fault}")
