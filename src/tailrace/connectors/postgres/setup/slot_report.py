"""A report of the log that replication slots keep, with the reasons, for `tailrace slots`; and the drop of a slot.

Driver.
"""

from __future__ import annotations

import time
from contextlib import closing

from tailrace.config import Config
from tailrace.connectors.findings import Finding, Level
from tailrace.connectors.postgres.log import retention
from tailrace.connectors.postgres.log.retention import Rate, SlotLog
from tailrace.connectors.postgres.server.connection import connect, explained
from tailrace.errors import PrerequisiteError

_LOOKS = 4


@explained
def report(config: Config, seconds: float, *, has_checkpoint: bool) -> list[Finding]:
    """Return a finding for each slot; see descriptor.Slots."""
    rates: dict[str, Rate] = {}
    with closing(connect(config)) as connection:
        for look in range(_LOOKS if seconds else 1):
            if look:
                time.sleep(seconds / (_LOOKS - 1))
            found = retention.read(connection, config)
            now = time.monotonic()
            for slot in found:
                rates.setdefault(slot.name, Rate()).note(now, slot.retained)
        findings = []
        for slot in found:
            held = list(retention.causes(connection, slot))
            level: Level = (
                "error" if slot.reason else "warning" if held or _is_high(config, slot, rates[slot.name]) else "ok"
            )
            text = retention.told(slot, rates[slot.name])
            why = "".join(f"; {one}" for one, _ in held)
            findings.append(
                Finding(
                    level,
                    slot.name,
                    f"{text[0].upper()}{text[1:]}{_owner(config, slot, has_checkpoint)}{why}.",
                    " ".join(remedy for _, remedy in held),
                )
            )
    return findings or [Finding("ok", "slots", "The server has no replication slot.")]


@explained
def droppable(config: Config, name: str, *, has_checkpoint: bool) -> Finding:
    """Return what would be dropped; see descriptor.Slots."""
    with closing(connect(config)) as connection:
        found = retention.read(connection, config, name)
    if not found:
        raise PrerequisiteError(f"There is no replication slot {name}.", "tailrace slots FILE lists them.")
    slot = found[0]
    if slot.pid is not None:
        raise PrerequisiteError(
            f"The replication slot {name} is being read by the server process {slot.pid}.",
            "Stop its reader first, if it is given up.",
        )
    if slot.kind != "logical":
        raise PrerequisiteError(
            f"The replication slot {name} is one of a standby or a backup, which no pipeline made.",
            f"If that is given up: select pg_drop_replication_slot('{name}').",
        )
    if name == config["slot.name"] and has_checkpoint and not slot.reason:
        raise PrerequisiteError(
            f"The checkpoint of this pipeline needs the replication slot {name}.",
            "To give the pipeline up, delete the checkpoint first.",
        )
    text = f"{retention.told(slot, Rate())}{_owner(config, slot, has_checkpoint)}; dropping it frees that log, and"
    return Finding("warning", name, f"{text[0].upper()}{text[1:]} whoever reads it must begin again.")


@explained
def drop(config: Config, name: str) -> None:
    """Drop the slot."""
    with closing(connect(config)) as connection:
        retention.drop(connection, name)


def _owner(config: Config, slot: SlotLog, has_checkpoint: bool) -> str:
    if slot.name == config["slot.name"]:
        return " for this pipeline" + ("" if has_checkpoint else ", which has no checkpoint here")
    if slot.kind != "logical":
        return " for a standby or a backup"
    return f" for another reader of the database {slot.database}"


def _is_high(config: Config, slot: SlotLog, rate: Rate) -> bool:
    threshold, left = config["slot.warn.percent"], rate.seconds_left(slot)
    is_full = bool(threshold) and slot.percent is not None and slot.percent >= threshold
    return is_full or (left is not None and left < config["slot.warn.ahead.ms"] / 1000)
