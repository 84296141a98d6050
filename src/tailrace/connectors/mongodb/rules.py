"""Checks of the MongoDB connector's options: the form of single options, and rules between several. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailrace.config import credentials
from tailrace.config.connector import ConfigDraft
from tailrace.config.rows import is_typed
from tailrace.connectors.mongodb.values.shell_json import strict_json

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^\[\]/,;:\s@]+)(?::[0-9]{1,5})?"
_HOSTS = re.compile(rf"(?:(?P<name>[^/,;\s]+)/)?(?P<hosts>{_HOST}(?:,{_HOST})*)")
_OVERRIDES = "snapshot.collection.filter.overrides"
_STREAM_ONLY = {
    "capture.scope": "deployment",
    "capture.target": None,
    "capture.mode.full.update.type": "lookup",
    "cursor.pipeline": None,
    "cursor.pipeline.order": "internal_first",
    "cursor.oversize.handling.mode": "fail",
    "cursor.oversize.skip.threshold": 0,
}
"""Options of change streams, with their defaults."""


def replica_set(hosts: str) -> tuple[str, str]:
    """Return the name of the replica set, which may be empty, and the part `host:port,host:port` of `mongodb.hosts`."""
    found = _HOSTS.fullmatch(hosts.strip())
    if found is None:
        raise ValueError("must be name/host:port,host:port")
    return found["name"] or "", found["hosts"]


def hosts_fault(text: str) -> str:
    """Return the fault of `mongodb.hosts`, or "". Debezium separates several replica sets by semicolons."""
    if ";" in text or text.count("/") > 1:
        return "names several replica sets; a pipeline reads one, or a sharded cluster through mongos"
    return "" if _HOSTS.fullmatch(text.strip()) else "must be name/host:port,host:port, not " + repr(text.strip())


def fields_fault(names: Sequence[str]) -> str:
    """Return the fault of `field.exclude.list`, or ""."""
    return next((f"must list database.collection.field, not {name!r}" for name in names if not _is_field(name)), "")


def renames_fault(entries: Sequence[str]) -> str:
    """Return the fault of `field.renames`, or ""."""
    for entry in entries:
        name, colon, new = entry.rpartition(":")
        if not colon or not _is_field(name) or not new or "." in new or new.startswith("$"):
            return f"must list database.collection.field:name, not {entry!r}"
    return ""


def _is_field(name: str) -> bool:
    parts = name.split(".")
    return len(parts) >= 3 and all(parts) and not any("*" in part for part in parts[2:])


def pipeline_fault(text: str) -> str:
    """Return the fault of `cursor.pipeline`, or ""."""
    try:
        stages = json.loads(strict_json(text))
    except ValueError as error:
        return str(error)
    named = isinstance(stages, list) and all(
        isinstance(stage, dict) and len(stage) == 1 and next(iter(stage)).startswith("$") for stage in stages
    )
    return "" if named else "must be a JSON array of stages, each an object with one name that begins with $"


def condition_fault(text: str) -> str:
    """Return the fault of a condition of `snapshot.collection.filter.overrides`, or ""."""
    try:
        condition = json.loads(strict_json(text))
    except ValueError as error:
        return str(error)
    return "" if isinstance(condition, dict) else "must be a JSON object"


def settle(draft: ConfigDraft) -> None:
    """Apply the default of capture.mode, adapt the naming strategy to names with a database, and check the rules
    between options."""
    values = draft.values
    if values["capture.mode"] is None:
        values["capture.mode"] = "oplog" if draft.event_format == "1.1" else "change_streams_update_full"
    for name in [name for name in values if name == "cursor.pipeline" or name.startswith(f"{_OVERRIDES}.")]:
        if values[name]:
            values[name] = strict_json(values[name])
    # Debezium's Default strategy for MongoDB puts the database into names, as the Schema strategy of others the schema.
    values["topic.naming.strategy"] = values["topic.naming.strategy"].replace(".Default", ".Schema")
    if is_typed(values) and draft.event_format == "1.1":
        draft.faults.append("rows = typed is not supported in the 1.1 format, whose updates are patches of documents")
    if not values["topic.prefix"]:
        draft.faults.append("topic.prefix is missing (mongodb.name in 1.x)")
    draft.faults += [*_server(draft), *_capture(draft), *_documents(values), *_tables(values)]


def _server(draft: ConfigDraft) -> Iterator[str]:
    values, given = draft.values, draft.given
    if values["mongodb.connection.string"] and values["mongodb.hosts"]:
        values["mongodb.hosts"] = None
        draft.idle.add("mongodb.hosts")
        draft.notices.append("mongodb.hosts has no effect: mongodb.connection.string names the servers.")
    elif not values["mongodb.connection.string"] and not values["mongodb.hosts"]:
        yield "mongodb.connection.string is missing (mongodb.hosts in 1.x)"
    string = values["mongodb.connection.string"] or "mongodb://"
    if not string.strip().startswith(("mongodb://", "mongodb+srv://")):
        # Do not show the string: it may hold a password.
        yield "mongodb.connection.string must begin with mongodb:// or mongodb+srv://"
    if values["mongodb.password"] and not values["mongodb.user"]:
        yield "mongodb.password is given without mongodb.user"
    if values["mongodb.password.command"] and not values["mongodb.user"]:
        yield "mongodb.password.command is given without mongodb.user"
    credentials.settle(draft, "mongodb.")
    if not values["mongodb.members.auto.discover"] and "," in (values["mongodb.hosts"] or ""):
        yield "mongodb.members.auto.discover = false needs one server in mongodb.hosts"
    secured = string.startswith("mongodb+srv://") or re.search(r"[?&;](?:tls|ssl)=true", string, re.IGNORECASE)
    for name in ("mongodb.ssl.keystore", "mongodb.ssl.truststore", "mongodb.ssl.invalid.hostname.allowed"):
        if values[name] and not values["mongodb.ssl.enabled"] and not secured:
            yield f"{name} needs mongodb.ssl.enabled = true"
    if "connect.max.attempts" not in given:
        for name in ("connect.backoff.initial.delay.ms", "connect.backoff.max.delay.ms"):
            if name in given:
                yield f"{name} needs connect.max.attempts"


def _capture(draft: ConfigDraft) -> Iterator[str]:
    values, event_format, mode = draft.values, draft.event_format, draft.values["capture.mode"]
    if mode == "oplog":
        if event_format != "1.1":
            yield "capture.mode = oplog needs event.format = 1.1: the oplog lacks what later formats show of an update"
        for name, default in _STREAM_ONLY.items():
            if values[name] != default:
                yield f"{name} needs a capture.mode that reads change streams"
    elif event_format == "1.1":
        yield f"capture.mode = {mode} needs event.format = 3: the patches of the format 1.1 are in the oplog only"
    if values["capture.mode.full.update.type"] == "post_image" and "update_full" not in mode:
        yield "capture.mode.full.update.type = post_image needs a capture.mode with update_full"
    scope, target = values["capture.scope"], values["capture.target"]
    if target and scope == "deployment":
        yield "capture.target needs capture.scope = database or collection"
    if scope != "deployment" and not target:
        yield f"capture.scope = {scope} needs capture.target"
    if target and scope == "collection" and not re.fullmatch(r"[^.]+\..+", target):
        yield "capture.target must be database.collection, as capture.scope = collection needs it"
    if target and scope == "database" and "." in target:
        yield "capture.target must be a database, as capture.scope = database needs it"
    skip = values["cursor.oversize.handling.mode"] == "skip"
    if skip and not values["cursor.oversize.skip.threshold"]:
        yield "cursor.oversize.handling.mode = skip needs cursor.oversize.skip.threshold"
    if values["cursor.oversize.skip.threshold"] and not skip:
        yield "cursor.oversize.skip.threshold needs cursor.oversize.handling.mode = skip"
    if skip and values["cursor.pipeline.order"] == "user_only":
        yield "cursor.oversize.handling.mode = skip is a stage that cursor.pipeline.order = user_only leaves out"
    if values["cursor.pipeline.order"] != "internal_first" and not values["cursor.pipeline"]:
        yield "cursor.pipeline.order needs cursor.pipeline"
    if event_format == "1.1" and values["signal.data.collection"]:
        yield "signal.data.collection needs event.format = 3: events of the format 1.1 have no mark for such reads"
    if event_format != "1.1" and values["source.struct.version"] == "v1":
        yield "source.struct.version = v1 needs event.format = 1.1"


def _tables(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of options that do not fit a sink of tables."""
    mode, blocks = values["capture.mode"], values["row.blocks"]
    if not blocks:
        return
    # imported here, since only blocks need numpy and pyarrow
    from tailrace.columns.blocks import EVERY

    if "update_full" not in mode:
        yield (
            f"capture.mode = {mode} has no documents after updates, and tables need them: set it to "
            "change_streams_update_full, best with capture.mode.full.update.type = post_image"
        )
    elif blocks == EVERY and values["capture.mode.full.update.type"] != "post_image":
        yield (
            "capture.mode.full.update.type = lookup reads documents some time after the update: every version "
            "of them needs post_image, and changeStreamPreAndPostImages of the collections"
        )
    if values["row.route"]:
        yield "route.regex cannot merge tables that hold documents"
    if values["cursor.oversize.handling.mode"] == "skip":
        yield "cursor.oversize.handling.mode = skip would leave changes out of the tables"


def _documents(values: Mapping[str, Any]) -> Iterator[str]:
    listed = values[_OVERRIDES]
    named = [name.removeprefix(f"{_OVERRIDES}.") for name in values if name.startswith(f"{_OVERRIDES}.")]
    yield from (
        f"{_OVERRIDES}.{name} is missing, and {_OVERRIDES} lists {name}" for name in listed if name not in named
    )
    yield from (
        f"{_OVERRIDES}.{name} is given, and {_OVERRIDES} does not list it" for name in named if name not in listed
    )
