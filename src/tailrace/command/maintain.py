"""Commands for the tables of the sink `tables`: `tailrace rebuild` and `tailrace maintain`. Driver."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.command import jars
from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.sinks.tables.formats.base import TableFormat

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def add_commands(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the commands `rebuild` and `maintain` to the commands of `tailrace`."""
    made = commands.add_parser(
        "rebuild", parents=[shared], help="rebuild tables of the mode latest or history from a log",
        description="Rebuild tables of the mode latest or history from tables of the mode log.",
    )  # fmt: skip
    made.add_argument("source", metavar="FROM_PATH", help="path of a pipeline with debezium.sink.tables.mode=log")
    made.add_argument("target", metavar="TO_PATH", help="path of the new tables")
    made.add_argument("--mode", choices=("latest", "history"), required=True, help="mode of the new tables")
    made.add_argument("--at", metavar="POSITION|TIME", help="end of the rebuild; a time as 2024-02-03T04:05:06, in UTC")
    made.add_argument(
        "--table", metavar="NAME", action="append", default=[], help="rebuild only this table; repeatable"
    )
    made.add_argument("--upsert-keep-deletes", action="store_true", help="keep deleted rows, as the sink's option does")
    made.add_argument("--unknown-values", choices=("stop", "null"), default="stop", help="as the sink's option does")
    jars.add_option(made)
    made.set_defaults(command=_rebuild)

    kept = commands.add_parser(
        "maintain", parents=[shared], help="compact the files of tables, remove old ones",
        description="Compact the files of a pipeline's tables, and remove old ones. The pipeline may run meanwhile.",
    )  # fmt: skip
    kept.add_argument("place", metavar="FILE|PATH", help="a pipeline's file, or the path of its tables")
    kept.add_argument("--optimize", action="store_true", help="compact small files")
    kept.add_argument("--vacuum", action="store_true", help="remove old moments, and files that no other moment needs")
    kept.add_argument("--retain", metavar="HOURS", help="keep moments of the last HOURS, 1 to 168; default: 168")
    jars.add_option(kept)
    kept.set_defaults(command=_maintain)


def _rebuild(arguments: argparse.Namespace) -> int:
    from tailrace.sinks.tables.names import absolute
    from tailrace.sinks.tables.rebuild import RebuildRequest, rebuild

    keeps = arguments.upsert_keep_deletes
    if keeps and arguments.mode != "latest":
        raise ConfigError("--upsert-keep-deletes is only for --mode latest.", "Leave it out.")
    wanted = RebuildRequest(arguments.mode, moment(arguments.at), arguments.table, keeps, arguments.unknown_values)
    source, target = absolute(arguments.source), absolute(arguments.target)
    with _session(source) as spark:
        names = rebuild(spark, source, target, wanted)
    print("\n".join(f"{name}: {arguments.mode}, {target}/{name}" for name in names))
    return 0


def _maintain(arguments: argparse.Namespace) -> int:
    from tailrace.sinks.tables.formats.delta import LONGEST
    from tailrace.sinks.tables.maintain import MaintenanceWork, maintain

    if not arguments.optimize and not arguments.vacuum:
        raise ConfigError("tailrace maintain has nothing to do.", "Give --optimize, --vacuum, or both.")
    text = arguments.retain or str(LONGEST)
    if not text.isdecimal() or not 1 <= int(text) <= LONGEST:
        raise ConfigError(f"--retain must be a whole number of hours between 1 and {LONGEST}.", "Correct it.")
    path = _path_of(arguments.place)
    with _session(path) as spark:
        print("\n".join(maintain(spark, path, MaintenanceWork(arguments.optimize, arguments.vacuum, int(text)))))
    return 0


def _path_of(place: str) -> str:
    """Return the path of the tables. `place` is this path, or the file of a pipeline that names it."""
    from tailrace.sinks.tables.names import absolute

    if not Path(place).is_file():
        return absolute(place)
    from tailrace import sinks
    from tailrace.connectors import registry

    run = registry.read(place, {}, sinks=sinks.names())
    if run.sink.name != "tables":
        raise ConfigError(f"{place} has the sink {run.sink.name}, which keeps no tables.", "Name another file.")
    return absolute(run.sink.options["path"])


def moment(text: str | None) -> str | datetime | None:
    """Parse the text as a time if it looks like one, else return it as a position. Raises ConfigError."""
    if text is None or not _TIME.match(text):
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--at {text} is not a time.", "Write it as 2024-02-03T04:05:06.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@contextmanager
def _session(path: str) -> Iterator[SparkSession]:
    """Yield a session set up for the tables under `path`; stop it at the end unless it ran before."""
    from pyspark.sql import SparkSession

    from tailrace.spark.session import session

    formats = _formats(path)
    needed = [jar for table_format in formats for jar in table_format.jars]
    settings = {name: text for table_format in formats for name, text in table_format.settings.items()}
    before = SparkSession.getActiveSession()
    spark = session(settings, jars=needed, log_level="off")
    try:
        if len(formats) == 1:
            formats[0].demand(spark)
        yield spark
    finally:
        if before is None:
            spark.stop()


def _formats(path: str) -> list[TableFormat]:
    """Return the formats that the tables under `path` may have: their own format on a local disk, else all formats."""
    from tailrace.sinks.tables.formats.detection import FORMATS
    from tailrace.sinks.tables.positions import NAME

    place = Path(path.removeprefix("file:"), NAME)
    known = list(FORMATS.values())
    return [table_format for table_format in known if (place / table_format.marker).is_dir()] or known
