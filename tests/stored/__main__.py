"""Write what the present version leaves on disk: `python -m tests.stored`. Leaves what is there as it is."""

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
from tests.stored import FORMATS, HERE, MOUNTED, mount

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


def entries(server: dict[str, str], folder: Path, form: str) -> dict[str, str]:
    """Return the entries of the pipeline: its server's options, and its directories below `folder`."""
    source = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        **OPTIONS,
        **server,
        "checkpoint.location": str(folder / "checkpoint"),
    }
    sink = {
        "type": "tables",
        "tables.format": form,
        "tables.path": MOUNTED if form == "iceberg" else f"{folder}/tables",
    }
    return {f"debezium.source.{name}": text for name, text in source.items()} | {
        f"debezium.sink.{name}": text for name, text in sink.items()
    }


def run(made: dict[str, str], folder: Path) -> None:
    """Run the pipeline up to the end of the log."""
    conf = {f"spark.hadoop.{name}": text for name, text in mount(folder / "tables").items()}
    pipeline = Pipeline(registry.from_entries(made, sinks=sinks.names()), conf=conf)
    try:
        pipeline.start(available_now=True).awaitTermination()
    finally:
        pipeline.stop()


def main() -> int:
    target = HERE / __version__
    for form, place in FORMATS.items():
        if not (target / place / "tables").exists():
            rows = _write(form, target / place)
            (target / "rows.json").write_text(json.dumps(rows, indent=0) + "\n", "utf-8")
    if not (target / "offsets.json").exists():
        offsets = [[kind.__name__, fields] for kind, fields in sample_offsets()]
        (target / "offsets.json").write_text(json.dumps(offsets, indent=1) + "\n", "utf-8")
    return 0


def _write(form: str, target: Path) -> list[Any]:
    """Write the checkpoint and the tables of a format. Return the rows of the table."""
    with tempfile.TemporaryDirectory(prefix="tailrace-stored-") as name, Server(settings=THROWAWAY) as server:
        folder = Path(name)
        (folder / "tables").mkdir()
        login = {"database.hostname": server.host, "database.port": str(server.port), "database.user": server.user}
        made = entries(login | {"database.password": server.password, "database.dbname": "postgres"}, folder, form)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(ROWS)
            run(made, folder)
            connection.execute(CHANGES)
            run(made, folder)
            rows = connection.execute("select id, amount::text, name from t order by id").fetchall()
        unwanted = shutil.ignore_patterns("*.crc", "*.lock", "_tailrace*")
        for part in ("checkpoint", "tables"):
            shutil.copytree(folder / part, target / part, ignore=unwanted)
    return rows


if __name__ == "__main__":
    sys.exit(main())
