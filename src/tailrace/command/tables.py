"""The command `tailrace tables`: lists the tables of a running pipeline, or sends it a signal about some. Driver."""

from __future__ import annotations

import argparse
import json
import uuid
from typing import TYPE_CHECKING

from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from tailrace.config.files import RunConfig

_SIGNALS = {
    "add": "add-tables",
    "remove": "remove-tables",
    "resnapshot": "execute-snapshot",
    "pause": "pause-tables",
    "resume": "resume-tables",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action; the file follows, and then the names."""
    parser.add_argument("action", metavar="ACTION", choices=("list", *_SIGNALS), help=", ".join(("list", *_SIGNALS)))


def add_names(parser: argparse.ArgumentParser) -> None:
    """Add the tables' names, after the file."""
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="schema.table, or a regular expression over such names"
    )


def run(pipeline: RunConfig, arguments: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from tailrace.connectors import signalling
    from tailrace.connectors.checkpoint import stored_offset
    from tailrace.connectors.registry import find
    from tailrace.snapshot.signals import Signal

    action, descriptor = arguments.action, find(pipeline.source.connector)
    listing = descriptor.load_listing()
    if listing is None and action in ("list", "add", "remove"):
        raise ConfigError(
            f"The tables of a pipeline from {descriptor.title} cannot be listed, added or removed while it runs.",
            "Edit the lists, and start it again with the same checkpoint.",
        )
    if action == "list":
        if arguments.names:
            raise ConfigError("tailrace tables list takes no names.", "Leave them out.")
        if pipeline.checkpoint is None:
            raise ConfigError(
                f"The checkpoint {pipeline.checkpoint_location} is not in a local file system, so its tables cannot be "
                "listed.",
                "Ask the pipeline itself: http.port gives it /status.",
            )
        assert listing is not None
        found = listing(pipeline.source, stored_offset(pipeline.checkpoint))
        width = max((len(name) for name, _ in found), default=0)
        print("\n".join(f"{name:<{width}}  {words}" for name, words in found) or "No table is captured.")
        return 0
    if not arguments.names:
        raise ConfigError(f"tailrace tables {action} needs the name of a table.", "Write schema.table.")
    data = {"data-collections": arguments.names} | ({"type": "incremental"} if action == "resnapshot" else {})
    print(signalling.send(pipeline.source, Signal(str(uuid.uuid4()), _SIGNALS[action], json.dumps(data))))
    return 0
