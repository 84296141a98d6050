"""The command `tailrace slots`: shows what keeps the database's log and for how long; drops an unused slot. Driver."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tailrace.errors import ConfigError, PrerequisiteError, TailraceError

if TYPE_CHECKING:
    from tailrace.config.files import RunConfig
    from tailrace.connectors.findings import Finding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, other than the configuration file."""
    add = parser.add_argument
    add("--seconds", type=float, default=3.0, help="how long to watch the log grow for a forecast; default 3")
    add("--drop", metavar="NAME", help="drop this slot, after a question; never one that is being read")
    add("--yes", action="store_true", help="with --drop: answer the question, for scripts")


def run(pipeline: RunConfig, arguments: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from tailrace.command import migrate
    from tailrace.connectors.registry import find

    if not 0 <= arguments.seconds <= 3600:
        raise ConfigError("--seconds must lie between 0 and 3600.", "Correct it.")
    if arguments.yes and not arguments.drop:
        raise ConfigError("--yes needs --drop.", "Leave it out.")
    descriptor = find(pipeline.source.connector)
    part = descriptor.load_slots()
    if part is None:
        if arguments.drop:
            raise ConfigError(
                f"{descriptor.title} has no replication slots.", "Leave --drop out, to see how long it keeps its log."
            )
        counted, _ = migrate.show(_kept(pipeline))
        print(counted)
        return 0
    # a checkpoint that is in no local directory counts as existing, so its slot is needed
    folder = pipeline.checkpoint
    has_checkpoint = folder is None or (folder / "offsets").is_dir()
    if not arguments.drop:
        counted, _ = migrate.show(part.report(pipeline.source, arguments.seconds, has_checkpoint=has_checkpoint))
        print(counted)
        return 0
    name = arguments.drop
    migrate.show([part.droppable(pipeline.source, name, has_checkpoint=has_checkpoint)])
    if not arguments.yes and _answer(name) != name:
        print("Nothing was dropped.")
        return PrerequisiteError.exit_code
    part.drop(pipeline.source, name)
    print(f"The slot {name} was dropped.")
    return 0


def _kept(pipeline: RunConfig) -> Iterator[Finding]:
    """Yield findings: how long the server keeps its log, and how far the pipeline is behind."""
    from tailrace.connectors.findings import Finding
    from tailrace.connectors.registry import find
    from tailrace.log.retention import duration, told

    descriptor = find(pipeline.source.connector)
    retaining = descriptor.load_retention()
    if retaining is None:
        raise ConfigError(f"{descriptor.title} does not tell how long it keeps its log.", "Ask its operators.")
    found, now = retaining(pipeline.source), time.time()
    if found.oldest_s is not None:
        yield Finding("ok", "oldest", f"The oldest change in the log is {duration(now - found.oldest_s)} old.")
    if found.lasts_s is None:
        yield Finding("ok", "kept", "The log is kept until somebody removes it, or the server does not tell how long.")
    else:
        yield Finding("ok", "kept", f"A change that is written now is kept for {duration(found.lasts_s)}.")
    behind_s = _behind(pipeline, now)
    if behind_s is None:
        yield Finding("ok", "behind", "How far the pipeline is behind is not known: no run has told it yet.")
        return
    behind = dataclasses.replace(found, behind_s=behind_s)
    if behind.percent is None:
        yield Finding("ok", "behind", f"The pipeline is {duration(behind_s)} behind.")
        return
    text, warned = told(behind), pipeline.source["log.warn.percent"]
    is_near = bool(warned) and behind.percent >= warned
    yield Finding(
        "warning" if is_near else "ok", "behind", f"{text[0].upper()}{text[1:]}.",
        f"Start the pipeline, or let it catch up; raise {found.setting}." if is_near else "",
    )  # fmt: skip


def _behind(pipeline: RunConfig, now: float) -> float | None:
    """Return the pipeline's lag in seconds: the lag in its status file, plus the file's age. None if unknown."""
    from tailrace.monitoring.status_file import last_state

    if pipeline.checkpoint is None:
        return None
    try:
        state = last_state(pipeline.checkpoint, is_running=True)
    except TailraceError:
        return None
    stored_s: float | None = state["log"].get("behind_s")
    return None if stored_s is None else stored_s + max(now - state["at_s"], 0.0)


def _answer(name: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError(f"--drop {name} asks before it drops, and there is no terminal to answer on.", "Add --yes.")
    return input(f"Type the name of the slot to drop it ({name}): ").strip()
