"""Paths of tables, and their names in Spark's catalog. Driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.config.naming import replacement_fault
from tailrace.errors import SinkError
from tailrace.events.table_routing import Routing
from tailrace.sinks.base import Settings
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.positions import NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = (
    "table.name.format",
    "catalog.name.format",
    "route.regex",
    "route.replacement",
    "route.key.field.name",
    "route.key.enforce.uniqueness",
)
FIELD = "__dbz__physicalTableIdentifier"
"""The column with the source table of each row in a table that several tables share; named as in
ByLogicalTableRouter."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PLACE = re.compile(r"\$\{([^}]*)\}")
_PARTS = ("database", "schema", "table")

Table = tuple[str, str, str]
"""A table of the source: database, schema, table."""

Known = dict[str, tuple[str, Table, bool]]
"""Targets by path in lower case: the path, the source's table, and True if other tables are routed into it."""


@dataclass(frozen=True, slots=True)
class TableNames:
    """The rules for the names of tables.

    `folder` is the pattern of a table's directory, and `catalog` of its name in Spark's catalog, "" for none. `routing`
    routes several tables of the source into one; None if each table has its own target.
    """

    folder: str
    catalog: str
    routing: Routing | None

    @classmethod
    def of(cls, given: Settings) -> TableNames:
        """Read the options. Raises SinkError."""
        made = {"table.name.format": "${schema}.${table}", "catalog.name.format": ""}
        for name, default in made.items():
            made[name] = given.text(name, default)
            for part in _PLACE.findall(made[name]):
                if part not in _PARTS:
                    raise given.wrong(name, f"has ${{{part}}}: known are ${{database}}, ${{schema}}, ${{table}}")
        catalog = made["catalog.name.format"]
        if catalog and catalog.count(".") != 1:
            raise given.wrong("catalog.name.format", "must be the name of a database, a dot and the name of a table")
        return cls(made["table.name.format"], catalog, _routing(given))

    def path(self, root: str, table: Table) -> str:
        """Return the path of a table."""
        return f"{root}/{statements.folder(_filled(self.folder, table))}"

    def demand_alone(self, path: str, table: Table, known: Known, routed: bool = False) -> None:
        """Add a table to `known`. Raises SinkError if another table has this path, or one that differs only in case.

        `routed` is True if other tables of the source are routed into this one.
        """
        source = ".".join(table)
        if path.rpartition("/")[2].lower() == NAME:
            raise SinkError(f"{source} would be written over {NAME}.", "Change debezium.sink.tables.table.name.format.")
        other, of, was_routed = known.setdefault(path.lower(), (path, table, routed))
        if (other, of) != (path, table):
            how = f"one target, {path}" if other == path else f"targets that differ only in case, {other} and {path}"
            raise SinkError(
                f"{'.'.join(of)} and {source} have {how}.",
                "Set debezium.sink.tables.table.name.format to tell them apart, or route one of them to another name.",
            )
        if routed != was_routed:
            raise SinkError(
                f"{source} has rows of its own, and others are routed to it.",
                "Let debezium.sink.tables.route.regex match it too, or route the others to another name.",
            )

    def register(self, spark: SparkSession, path: str, table: Table) -> None:
        """Register an existing table in Spark's catalog. Raises SinkError if the name belongs to another table."""
        if not self.catalog:
            return
        database, name = (statements.quoted(_filled(part, table)) for part in self.catalog.split("."))
        called = f"{database}.{name}"
        if not spark.catalog.tableExists(called):
            spark.sql(f"create database if not exists {database}")
            spark.sql(f"create table if not exists {called} using delta location {statements.literal(path)}")
        known = spark.sql(f"describe detail {called}").collect()[0]["location"]
        if _qualified(spark, known) != _qualified(spark, path):
            raise SinkError(
                f"Spark's catalog knows {called} as a table at {known}.",
                "Change debezium.sink.tables.catalog.name.format, or drop that table from the catalog.",
            )


def absolute(path: str) -> str:
    """Return a path as table formats need it: absolute, or with a scheme."""
    path = path.rstrip("/") or "/"
    return path if _SCHEME.match(path) else str(Path(path).absolute())


def _filled(text: str, table: Table) -> str:
    named = dict(zip(_PARTS, table, strict=True))
    return _PLACE.sub(lambda found: named[found[1]], text)


def _qualified(spark: SparkSession, path: str) -> str:
    """Return a path with its scheme."""
    made: Any = spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    system = made.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return str(system.makeQualified(made).toString()).rstrip("/")


def _routing(given: Settings) -> Routing | None:
    regex, replacement = given.text("route.regex"), given.text("route.replacement")
    if bool(regex) != bool(replacement):
        raise given.wrong("route.regex", "and route.replacement need each other")
    field, unique = given.text("route.key.field.name", FIELD), given.boolean("route.key.enforce.uniqueness", True)
    if not regex:
        return None
    fault = replacement_fault("regex", regex, "replacement", replacement)
    if fault:
        raise given.wrong("route", f"is wrong: {fault}")
    return Routing(regex, replacement, field if unique else "")
