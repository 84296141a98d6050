"""The command `tailrace slots`: what keeps the database's log, and the drop of a slot that nobody needs. Driver."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tailrace.errors import ConfigError, PrerequisiteError

if TYPE_CHECKING:
    from tailrace.config.files import RunConfig


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
        raise ConfigError(
            f"{descriptor.title} has no replication slots.",
            "tailrace check FILE says how long it keeps its log, and whether that reaches the checkpoint.",
        )
    # a checkpoint elsewhere is not looked at, and counts as one that needs its slot
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


def _answer(name: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError(f"--drop {name} asks before it drops, and there is no terminal to answer on.", "Add --yes.")
    return input(f"Type the name of the slot to drop it ({name}): ").strip()
