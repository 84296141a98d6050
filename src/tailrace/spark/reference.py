"""The type tables of the page about types: each database's types and the Spark types that its tasks produce.

`python -m tailrace.spark.reference` renews the tables between the page's marks. With `--check` it writes nothing and
exits with 1 if the page is out of date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.pandas.types import from_arrow_type

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.columns.typed import TYPED_COLUMNS, TypedRows
from tailrace.config import Config
from tailrace.connectors import registry
from tailrace.connectors.descriptor import load
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.table_plan import table_plan
from tailrace.events.typed_rows import table_kinds

PAGE = Path("docs", "reference", "types.md")
_BEGIN = "<!-- types of {}: written by `python -m tailrace.spark.reference`; do not edit -->"
_END = "<!-- end of types of {} -->"
_LEAST = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p", "rows": "typed"}


def table(name: str) -> str:
    """Return a connector's table in Markdown: each type that it lists, and the Spark type in typed rows."""
    descriptor = registry.find(name)
    listed: Any = load(descriptor.documented_types)
    config = registry.parse(name, _LEAST | _database(name))
    lines = [f"| {descriptor.title} | Spark |", "|---|---|"]
    lines += [f"| `{shown}` | `{_spark_type(column, config, listed.FORM)}` |" for shown, column in listed.LISTED]
    return "\n".join(lines)


def _database(name: str) -> dict[str, str]:
    """Return the option that names the database; empty if a session needs none."""
    traits = registry.find(name).traits
    if not traits.has_schemas:
        return {}
    return {"database.names" if traits.several_databases else "database.dbname": "d"}


def _spark_type(column: Column, config: Config, form: SourceForm) -> str:
    settings = EventSettings.from_options(config).as_typed(TypedRows(), TYPED_COLUMNS)
    schema = TableSchema(TableId("d", "s", "t"), (column,), ())
    kind = table_kinds(table_plan(schema, settings, form).layouts)["after"]
    return str(from_arrow_type(kind.field("v").type).simpleString())


def renew(text: str) -> str:
    """Return the page `text` with its tables renewed; raises ValueError if the marks of a table are missing."""
    for name in registry.OWN:
        if not registry.find(name).documented_types:
            continue
        begin, end = _BEGIN.format(name), _END.format(name)
        before, first, rest = text.partition(begin)
        _, last, after = rest.partition(end)
        if not first or not last:
            raise ValueError(f"the page lacks the marks {begin} and {end}")
        text = f"{before}{begin}\n{table(name)}\n{end}{after}"
    return text


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tailrace.spark.reference", description=__doc__)
    parser.add_argument("page", type=Path, nargs="?", default=PAGE)
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args(argv)
    text = arguments.page.read_text("utf-8")
    fresh = renew(text)
    if not arguments.check:
        arguments.page.write_text(fresh, "utf-8")
    return int(fresh != text and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
