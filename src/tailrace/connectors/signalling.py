"""The command `tailrace signal`: makes a signal from arguments and sends it by an enabled channel. Driver.

Before sending, the command parses the signal as the pipeline would, so that mistakes show here and not in a log.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailrace.config import Config
from tailrace.errors import ConfigError
from tailrace.snapshot import signals
from tailrace.snapshot.conditions import FORBIDDEN
from tailrace.snapshot.signals import MalformedSignal, Signal, to_json

_ORDER = ("source", "kafka", "file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, other than the configuration file."""
    parser.add_argument("action", metavar="ACTION", choices=signals.TYPES, help=", ".join(signals.TYPES))
    add = parser.add_argument
    add(
        "--table",
        metavar="NAME",
        action="append",
        default=[],
        help="table to read or to stop, as schema.table, database.collection or a regular expression over such names; "
        "repeatable",
    )
    add(
        "--filter",
        metavar="NAME=SQL",
        action="append",
        default=[],
        help="read only the rows for which an SQL condition holds, or the documents that a query in JSON finds; "
        "repeatable",
    )
    add("--surrogate-key", metavar="COLUMN", help="order the rows by this column instead of the key")
    add(
        "--type",
        metavar="TYPE",
        choices=("incremental", "blocking"),
        help="incremental (beside the stream; default) or blocking",
    )
    add("--message", metavar="TEXT", help="text of a log signal; {} stands for the position in the log")
    add("--id", metavar="ID", help="id of the signal; default: a new UUID")
    add("--channel", metavar="CHANNEL", choices=_ORDER,
        help="source, kafka or file; default: the first one that is enabled and configured")  # fmt: skip


def from_arguments(arguments: argparse.Namespace) -> Signal:
    """Return the signal that the arguments describe. Raises ConfigError for arguments that do not fit its type."""
    given = {
        name: value
        for name in ("table", "filter", "surrogate_key", "type", "message")
        if (value := getattr(arguments, name))
    }
    for name in given:
        if name not in _TAKEN[arguments.action]:
            taken = ", ".join(f"--{other}" for other in _TAKEN[arguments.action]) or "none but --id and --channel"
            raise ConfigError(
                f"--{name.replace('_', '-')} does not belong to {arguments.action}.",
                f"It takes {taken.replace('_', '-')}.",
            )
    for name in _NEEDED.get(arguments.action, ()):
        if name not in given:
            raise ConfigError(f"{arguments.action} needs --{name}.", "tailrace signal --help shows the arguments.")
    data: dict[str, Any] = {}
    if arguments.action == "log":
        data["message"] = given["message"]
    else:
        if arguments.action in ("execute-snapshot", "stop-snapshot"):
            data["type"] = given.get("type", "incremental")
        if "table" in given:
            data["data-collections"] = given["table"]
        if "filter" in given:
            data["additional-conditions"] = [_condition(entry) for entry in given["filter"]]
        if "surrogate_key" in given:
            data["surrogate-key"] = given["surrogate_key"]
    signal = Signal(arguments.id or str(uuid.uuid4()), arguments.action, json.dumps(data) if data else None)
    demand_valid(signal)
    return signal


def demand_valid(signal: Signal) -> None:
    """Raise ConfigError for a signal that every pipeline would refuse."""
    try:
        action = signals.read(signal)
        for entry in getattr(action, "collections", ()):
            signals.matching(entry, ())
        for entry, _ in getattr(action, "conditions", ()):
            signals.matching(entry, ())
    except MalformedSignal as fault:
        raise ConfigError(f"The signal would be refused: {fault}.", "Correct its type and data.") from None


_OF_TABLES = ("add-tables", "remove-tables", "pause-tables", "resume-tables")
_TAKEN: dict[str, tuple[str, ...]] = {
    "execute-snapshot": ("table", "filter", "surrogate_key", "type"),
    "stop-snapshot": ("table",),
    **dict.fromkeys(_OF_TABLES, ("table",)),
    "pause-snapshot": (),
    "resume-snapshot": (),
    "log": ("message",),
}
_NEEDED: dict[str, tuple[str, ...]] = {
    "execute-snapshot": ("table",),
    **dict.fromkeys(_OF_TABLES, ("table",)),
    "log": ("message",),
}


def _condition(entry: str) -> dict[str, str]:
    """Parse `NAME=SQL`; a name in double quotes may hold an equals sign."""
    at = 0
    inside = False
    while at < len(entry) and (inside or entry[at] != "="):
        inside ^= entry[at] == '"'
        at += 1
    name, sql = entry[:at].strip(), entry[at + 1 :].strip()
    if not name or not sql:
        raise ConfigError("--filter has no NAME=SQL.", "Write --filter 'public.orders=id > 1000'.")
    return {"data-collection": name, "filter": sql}


def usable(config: Config) -> list[str]:
    """Return the enabled and configured channels, in order of preference."""
    enabled: Sequence[str] = config["signal.enabled.channels"]
    return [name for name in _ORDER if name in enabled and (name != "source" or config["signal.data.collection"])]


def demand_channel(config: Config) -> None:
    """Raise ConfigError if no channel for signals is enabled and configured."""
    if not usable(config):
        raise ConfigError(
            "The configuration has no channel for signals.",
            "Name a table in signal.data.collection, or kafka or file in signal.enabled.channels.",
        )


def send(config: Config, signal: Signal, channel: str | None = None) -> str:
    """Send the signal; return a sentence for the user.

    Raises ConfigError if the configuration has no such channel, or if the signal would be refused, and the channel's
    errors.
    """
    demand_valid(signal)
    channels = usable(config)
    if channel is None:
        demand_channel(config)
    chosen = channel or channels[0]
    if chosen not in channels:
        raise ConfigError(
            f"The channel {chosen} is not enabled, so that the signal would not be read.",
            f"Name it in signal.enabled.channels{' and a table in signal.data.collection' * (chosen == 'source')}.",
        )
    action = signals.read(signal)
    if isinstance(action, signals.ExecuteSnapshot) and action.conditions and not config["signal.filters.enabled"]:
        raise ConfigError(f"The signal would be refused: {FORBIDDEN}.", "Leave --filter out, or enable conditions.")
    named = f"{signal.type} {signal.id}"
    if chosen == "source":
        from tailrace.connectors.registry import find

        connector = find(config.connector)
        return f"{named}: a {connector.signal_place} {connector.load_send_signal()(config, signal)}."
    if chosen == "kafka":
        from tailrace.snapshot import kafka

        kafka.send(config, signal)
        return f"{named}: a record of the topic {config['signal.kafka.topic']}."
    path = Path(config["signal.file"])
    append(path, signal)
    return f"{named}: a line of {path}."


def append(path: Path, signal: Signal) -> None:
    """Append the signal to a file as a line of its own. Raises ConfigError if the file cannot be written."""
    try:
        with path.open("ab+") as file:
            size = file.seek(0, 2)
            broken = False
            if size:
                file.seek(size - 1)
                broken = file.read(1) != b"\n"
            file.write(f"{chr(10) * broken}{to_json(signal)}\n".encode())
    except OSError as error:
        raise ConfigError(
            f"The file {path} of signal.file cannot be written: {error.strerror}.", "Check its name and its rights."
        ) from None
