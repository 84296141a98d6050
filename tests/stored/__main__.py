"""Write what the present version leaves on disk: `python -m tests.stored`. Refuses to replace what is there."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from tailrace import __version__, sinks
from tailrace.connectors import registry
from tailrace.demo.embedded import THROWAWAY, Server
from tailrace.pipeline import Pipeline
from tests.fuzz.stored import sample_offsets
from tests.stored import HERE

ROWS = """
create table t (id int primary key, amount numeric(10, 2), name text);
insert into t select i, i * 1.5, 'row ' || i from generate_series(1, 20) i;
"""
CHANGES = """
update t set name = 'new ' || name where id % 3 = 0;
delete from t where id % 5 = 1;
insert into t values (21, null, 'late');
"""
OPTIONS = {"topic.prefix": "stored", "slot.name": "stored", "table.include.list": "public.t"}


def entries(server: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the entries of the pipeline: its server's options, and its directories below `folder`."""
    source = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        **OPTIONS,
        **server,
        "checkpoint.location": str(folder / "checkpoint"),
    }
    sink = {"type": "tables", "tables.format": "delta", "tables.path": str(folder / "tables")}
    return {f"debezium.source.{name}": text for name, text in source.items()} | {
        f"debezium.sink.{name}": text for name, text in sink.items()
    }


def run(made: dict[str, str], spark: Any = None) -> None:
    """Run the pipeline up to the end of the log."""
    pipeline = Pipeline(registry.from_entries(made, sinks=sinks.names()), spark)
    try:
        pipeline.start(available_now=True).awaitTermination()
    finally:
        pipeline.stop()


def main() -> int:
    target = HERE / __version__
    if target.exists():
        print(f"{target} is there, and what a version has written never changes", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="tailrace-stored-") as name, Server(settings=THROWAWAY) as server:
        folder = Path(name)
        login = {"database.hostname": server.host, "database.port": str(server.port), "database.user": server.user}
        made = entries(login | {"database.password": server.password, "database.dbname": "postgres"}, folder)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(ROWS)
            run(made)
            connection.execute(CHANGES)
            run(made)
            rows = connection.execute("select id, amount::text, name from t order by id").fetchall()
        unwanted = shutil.ignore_patterns("*.crc", "*.lock", "_tailrace*")
        for part in ("checkpoint", "tables"):
            shutil.copytree(folder / part, target / part, ignore=unwanted)
    (target / "rows.json").write_text(json.dumps(rows, indent=0) + "\n", "utf-8")
    offsets = [[kind.__name__, fields] for kind, fields in sample_offsets()]
    (target / "offsets.json").write_text(json.dumps(offsets, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
