"""The check and the migration of a Debezium file: `tailrace check --offline` and `tailrace migrate`. Driver.

Neither command connects to a server or prints values of the file's entries, any of which may hold a secret. If the
connector can go on behind an offset of Debezium, `migrate` reads it from the file that the entries name, and prints it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tailrace import sinks
from tailrace.columns import TableId
from tailrace.command.stored_offsets import UnreadableOffsets, offset_of
from tailrace.config.columns import without_salt
from tailrace.config.config import Config
from tailrace.config.files import Examination, RunConfig, read_entries
from tailrace.config.formats import format_of
from tailrace.config.outcome import Outcome
from tailrace.config.secrets import resolve
from tailrace.connectors import registry
from tailrace.connectors.findings import SHOWN, Finding
from tailrace.errors import ConfigError, SinkError
from tailrace.events import names
from tailrace.events.event_settings import TODAY, EventSettings
from tailrace.sinks.base import Sink

_LITERAL = re.compile(r"(?:[\w$ \-]|\\\.|\.)+")
_SOURCE = "debezium.source."
_START = "capture.start.offset"
_OFFSETS = "offset.storage.file.filename"
_STATES = ("kept", "translated", "without effect", "refused")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a file: its examination, its sink (None if it cannot be opened), and its faults."""

    examination: Examination
    sink: Sink | None
    faults: tuple[str, ...]

    @property
    def passes(self) -> bool:
        """True if the file makes a pipeline."""
        return not self.faults


def judge(entries: Mapping[str, str]) -> Judgement:
    """Examine the entries of a file, and open its sink. Raises ConfigError for an unknown connector."""
    examination = registry.examine_entries(entries, sinks=sinks.names())
    if examination.run is None:
        return Judgement(examination, None, examination.faults)
    try:
        sink = sinks.open(examination.run.sink.name, examination.run.sink.options, examination.run.source)
    except (SinkError, ConfigError) as error:
        # An unresolved reference in the sink's entries may have caused the error.
        is_known = not any(name.startswith("debezium.sink.") for name in examination.waiting)
        return Judgement(examination, None, (error.message.rstrip("."),) if is_known else ())
    return Judgement(examination, sink, ())


def check(entries: Mapping[str, str]) -> int:
    """Print the findings for a file; return the exit code, 0 or 2."""
    judgement = judge(entries)
    counted, _ = show(_findings(judgement))
    print(f"{counted} No server was asked.")
    return 0 if judgement.passes else ConfigError.exit_code


def show(findings: Iterable[Finding]) -> tuple[str, bool]:
    """Print findings; return a sentence with the number of errors and warnings, and True if there are errors."""
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.level] += 1
        print(f"{finding.level:<8} {finding.subject:<14} {finding.text}")
        if finding.remedy:
            print(f"{'':<8} {'':<14} → {finding.remedy}")
    return f"{_count(counts['error'], 'error')}, {_count(counts['warning'], 'warning')}.", counts["error"] > 0


def _findings(judgement: Judgement) -> Iterator[Finding]:
    examination, run, sink = judgement.examination, judgement.examination.run, judgement.sink
    if run is not None and judgement.passes:
        yield summary(run, sink)
    for fault in judgement.faults:
        yield Finding("error", "configuration", f"{fault}.")
    for notice in examination.notices:
        yield Finding("warning", "configuration", notice)
    for entry in examination.waiting:
        yield Finding("warning", "reference", f"{_shown(entry)} refers to a value that is missing.", "A run needs it.")
    if sink is not None:
        yield from sink.missing()


def summary(run: RunConfig, sink: Sink | None) -> Finding:
    """Describe a pipeline in one sentence."""
    text = f"{run.name}: {run.source.connector} to {run.sink.name}, format {run.source.event_format}"
    return Finding("ok", "configuration", f"{text}, {sink.delivery}." if sink is not None else f"{text}.")


def migrate(path: str | Path, *, write: bool = False) -> int:
    """Print the outcome of each entry of a file, its events and its topics; return the exit code.

    With `write` also write the cleaned file beside it. The code is 0, or 2 if the file is refused; then nothing is
    written. Raises ConfigError if the file cannot be read, or if the cleaned file exists.
    """
    entries = read_entries(path)
    judgement = judge(entries)
    offset_lines, start = _stored_offset(judgement.examination)
    for line in (*_outcomes(judgement), "", *_result(judgement), *offset_lines):
        print(line)
    if not judgement.passes:
        return ConfigError.exit_code
    if write:
        target = cleaned_path(path)
        names = {name.lower() for name in start}
        kept = {name: text for name, text in cleaned(judgement.examination).items() if name.lower() not in names}
        write_new(target, rendered(path, kept | start))
        print(f"{'written':<15} {target}")
    return 0


def _outcomes(judgement: Judgement) -> Iterator[str]:
    examination = judgement.examination
    for outcome in examination.outcomes:
        yield f"{outcome.state:<15} {_outcome(outcome, outcome.name in examination.waiting)}"
    counts: Counter[str] = Counter(outcome.state for outcome in examination.outcomes)
    counted = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    yield ""
    yield f"{_count(len(examination.outcomes), 'entry', 'entries')}: {counted or 'nothing'}."


def _outcome(outcome: Outcome, is_waiting: bool) -> str:
    name = _shown(outcome.name)
    if outcome.state == "refused":
        return f"{name} {outcome.text}"
    if outcome.state == "translated":
        becomes = _shown(outcome.becomes or outcome.name)
        value = "" if outcome.value is None else f" = {outcome.value}"
        return f"{name} → {becomes}{value}" + (f": {outcome.text}" if outcome.text else "")
    if is_waiting:
        return f"{name}, which refers to a value that is missing; a run needs it"
    return f"{name}: {outcome.text}" if outcome.text else name


def _result(judgement: Judgement) -> Iterator[str]:
    """Yield lines about faults, connector, events, topics and sink."""
    run = judgement.examination.run
    refusals = {outcome.text for outcome in judgement.examination.outcomes if outcome.state == "refused"}
    for fault in judgement.faults:
        if not any(text and fault.endswith(text) for text in refusals):
            yield f"{'refused':<15} {fault}"
    if run is None:
        return
    config = run.source
    yield f"{'connector':<15} {registry.find(config.connector).title}"
    yield f"{'format':<15} {config.event_format}: {_generation(judgement.examination, config)}"
    for part in ("key", "value", "header"):
        yield f"{part + 's':<15} {_encoding(config, part)}"
    for number, line in enumerate(_topics(config)):
        yield f"{'' if number else 'topics':<15} {line}"
    if judgement.sink is not None:
        yield f"{'sink':<15} {run.sink.name}, {judgement.sink.delivery}"
        yield from (f"{'':<15} {finding.text} {finding.remedy}" for finding in judgement.sink.missing())
    if "debezium.sink.type" not in judgement.examination.entries:
        yield f"{'':<15} no sink is named; name one in debezium.sink.type"


def _stored_offset(examination: Examination) -> tuple[list[str], dict[str, str]]:
    """Return lines about the offset that Debezium has stored, and the entries with which a run goes on behind it.

    Both are empty if the connector takes over no offsets, or if the file names a start or no storage of offsets.
    """
    run = examination.run
    given = {name.removeprefix(_SOURCE).lower(): name for name in examination.entries}
    if run is None or _START not in run.source or _START in given:
        return [], {}
    storage = examination.entries.get(given.get("offset.storage", ""), "").rpartition(".")[2]
    entry = given.get(_OFFSETS)
    if entry is None:
        if not storage:
            return [], {}
        why = f"offset.storage = {storage} keeps it elsewhere; give it to {_START}"
        return [f"{'position':<15} Debezium's offset is not read: {why}"], {}
    if entry in examination.waiting:
        return [f"{'position':<15} Debezium's offset is not read: {entry} refers to a value that is missing"], {}
    file = resolve(examination.entries, expressions=entry.startswith(_SOURCE), waiting=[])[entry]
    try:
        offset = offset_of(file, run.name, run.source.logical_name)
        option = next(option for option in registry.table(run.source.connector) if option.name == _START)
        if fault := option.check(offset) if option.check is not None else "":
            raise UnreadableOffsets(f"the offset {fault}")
    except UnreadableOffsets as why:
        return [f"{'position':<15} Debezium's offset in the file of {_OFFSETS} is not taken over: {why}"], {}
    prefix = _SOURCE if entry.startswith(_SOURCE) else ""
    start = {f"{prefix}snapshot.mode": "no_data", f"{prefix}{_START}": offset}
    lines = [
        f"{'position':<15} {_START} = {offset}",
        f"{'':<15} with snapshot.mode = no_data: a run without a checkpoint goes on behind Debezium's last record.",
        f"{'':<15} Stop Debezium before you read its offset.",
    ]
    return lines, start


def _generation(examination: Examination, config: Config) -> str:
    events = "today's Debezium" if config.event_format == TODAY else f"Debezium {config.event_format}"
    given = {name.rpartition("source.")[2].lower() for name in examination.entries}
    if "event.format" in given:
        why = "event.format says so"
    else:
        generations = registry.find(config.connector).load_options().generations
        named = [name for name, form in generations.items() if form == config.event_format and name in given]
        if named:
            why = f"{named[0]} is given"
        elif generations:
            why = "nothing names another generation"
        else:
            why = "that is this connector's default"
    return f"events of {events}, as {why}"


def _encoding(config: Config, part: str) -> str:
    name = f"{part}.converter"
    word = format_of(str(config[name]))
    if word != "json":
        return word
    return f"json, {'with' if config[f'{name}.schemas.enable'] else 'without'} schemas"


def _topics(config: Config) -> Iterator[str]:
    """Yield lines about the topics of the configured tables and of other records."""
    settings = EventSettings.from_options(config)
    tables = _tables(config)
    for table in tables[:SHOWN]:
        yield f"{names.topic(settings, table)}, of {table}"
    if len(tables) > SHOWN:
        yield f"and {len(tables) - SHOWN} more"
    if not tables:
        known = {option.name for option in registry.table(config.connector)}
        # without schemas the database takes their place
        schema = "SCHEMA" if "schema.include.list" in known else "DATABASE"
        kind = "collection" if "collection.include.list" in known else "table"
        example = names.own_topic(settings, TableId("DATABASE", schema, kind.upper()))
        yield f"{example}, for each captured {kind}"
    if config["transforms"]:
        yield f"as far as the transforms {', '.join(config['transforms'])} leave records there"
    if config["heartbeat.interval.ms"]:
        yield f"{names.heartbeat_topic(settings)}, of heartbeats"
    if config["provide.transaction.metadata"]:
        yield f"{names.transaction_topic(settings)}, of transactions"
    if settings.notification_topic:
        yield f"{settings.notification_topic}, of notifications"


def _tables(config: Config) -> list[TableId]:
    """Return the tables of the include list; none if the list holds regular expressions."""
    listed = config.get("table.include.list") or config.get("collection.include.list") or []
    if not all(_LITERAL.fullmatch(name) for name in listed):
        return []
    databases = config.get("database.names") or [config.get("database.dbname") or ""]
    parts = [name.replace("\\.", ".").split(".", 1) for name in listed]
    return [TableId(database, *pair) for database in databases for pair in parts if len(pair) == 2]


def cleaned_path(path: str | Path) -> Path:
    """Return the path of the cleaned file for `path`."""
    given = Path(path)
    return given.with_name(f"{given.stem}.tailrace{given.suffix}")


def cleaned(examination: Examination) -> dict[str, str]:
    """Return the effective entries of a file, with their texts, under today's names.

    Settings that an older name implies, such as the event format, become entries of their own.
    """
    found: dict[str, str] = {}
    for outcome in examination.outcomes:
        if outcome.state in ("kept", "translated"):
            text = examination.entries[outcome.name]
            found[outcome.becomes or outcome.name] = text if outcome.value is None else outcome.value
    present = {name.lower() for name in found}
    return found | {name: text for name, text in examination.implied.items() if name.lower() not in present}


def rendered(path: str | Path, entries: Mapping[str, str]) -> str:
    """Return entries as the text of a file of the kind of `path`: JSON or .properties."""
    if Path(path).read_text("utf-8-sig").lstrip().startswith(("{", "[")):
        config = dict(entries)
        named = {"name": config.pop("name")} if "name" in config else {}
        document = named | {"config": config} if named else config
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return "".join(line(name, text) for name, text in entries.items())


def line(name: str, text: str) -> str:
    """Return an entry as a line of a .properties file."""
    return f"{_escaped(name, is_name=True)}={_escaped(text)}\n"


_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def _escaped(text: str, *, is_name: bool = False) -> str:
    """Escape a name or value for a .properties file."""
    made = "".join(_ESCAPES.get(char, char) for char in text)
    if is_name:
        return re.sub(r"([=: ]|^[#!])", r"\\\1", made)
    return f"\\{made}" if made.startswith(" ") else made


def write_new(path: Path, text: str) -> None:
    """Write a file that only its owner may read: it may hold secrets."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"The file {path} already exists.", "Move it away.") from None
    except OSError as error:
        raise ConfigError(f"The file {path} cannot be written: {error.strerror}.", "Check the directory.") from None


def _shown(name: str) -> str:
    """Return an entry's name without a salt in it."""
    head, found, option = name.partition("column.mask.")
    return head + without_salt(found + option) if found else name


def _count(number: int, word: str, words: str = "") -> str:
    return f"{number} {word if number == 1 else words or word + 's'}"
