"""The command `tailrace jars`, which fetches the jars of sinks into a directory, and the option `--jars`. Driver."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailrace.config.jar import Jar
from tailrace.connectors.findings import Finding
from tailrace.errors import ConfigError, PrerequisiteError


def add_command(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the command `jars` to the commands of `tailrace`."""
    made = commands.add_parser("jars", parents=[shared], help="fetch the jars that sinks need into a directory")
    made.add_argument("--to", metavar="DIR", required=True, help="the directory; name it by --jars where they are used")
    made.add_argument("--sink", metavar="NAME", action="append", default=[], help="this sink's alone; repeatable")
    add_option(made)
    made.set_defaults(command=_jars)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option --jars, which names the source of jars, to a command."""
    parser.add_argument(
        "--jars", metavar="DIR|URL", help="a directory with the sinks' jars, or a Maven repository that has them"
    )


def apply(arguments: argparse.Namespace) -> None:
    """Put the option --jars into the environment of this process, which the processes that it starts inherit."""
    if getattr(arguments, "jars", None):
        from tailrace.spark.startup.jars import JARS

        os.environ[JARS] = arguments.jars


def check(wanted: Sequence[Jar]) -> list[Finding]:
    """Return an error if the directory of jars lacks some that are `wanted`, else a finding with the jars to fetch."""
    from tailrace.spark.capabilities import is_brought
    from tailrace.spark.startup.jars import awaited

    if is_brought():
        return []
    try:
        names = awaited(wanted)
    except PrerequisiteError as error:
        return [Finding("error", "jars", error.message, error.remedy)]
    return [Finding("ok", "jars", f"To be fetched at the first start: {', '.join(names)}.")] if names else []


def _jars(arguments: argparse.Namespace) -> int:
    from tailrace.spark.startup.jars import files_of

    wanted = needed(arguments.sink)
    target = Path(arguments.to).expanduser()
    found = files_of(wanted)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path in found:
            place = target / path.name
            if place.exists() and place.samefile(path):
                continue
            # whole or not at all: the directory may be in use
            fresh = place.with_name(f"{place.name}.{os.getpid()}")
            shutil.copyfile(path, fresh)
            fresh.replace(place)
    except OSError as error:
        raise ConfigError(f"The directory {target} cannot be written: {error.strerror}.", "Name another.") from None
    print("\n".join(str(target / path.name) for path in found))
    return 0


def needed(names: Sequence[str]) -> list[Jar]:
    """Return the jars of the sinks `names`, or of all sinks if `names` is empty, without duplicates.

    Raises SinkError for an unknown sink.
    """
    from tailrace import sinks
    from tailrace.sinks.tables.formats.detection import FORMATS

    found: list[Jar] = []
    for name in names or sinks.names():
        found += [*sinks.KNOWN.load(name).jars, *sinks.KNOWN.load(name).further_jars]
        if name == "tables":
            found += [jar for table_format in FORMATS.values() for jar in table_format.jars]
    return list(dict.fromkeys(found))
