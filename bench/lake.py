"""Changes into the sink `tables`, beside the MERGE of the tutorials and beside no sink. Driver.

All queries read from copies of the slot of the pipeline `latest`, since the position of a slot decides how much log the
server reads before it. The stream is the same for all. The table holds a fifth as many keys as there are changes, and
each round changes some of the keys again and again. Of ten transactions eight update rows, one deletes its rows, and
the next inserts them again.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from bench import drain
from bench.tables import plain
from bench.workload import TRANSACTION, Workload
from tailrace.connectors.registry import from_entries
from tailrace.pipeline import Pipeline
from tailrace.sinks.console import NoopSink
from tailrace.sinks.tables.formats.detection import found_at

TABLE = plain("lake")
SHARES = {"all": 1, "few": 100}
"""The workloads by name, each with N: every Nth key is changed."""
MODES = ("latest", "history", "log")
ICEBERG = "iceberg"
"""The name of the mode latest in the second format."""
_WARM_UP = 3
"""Rounds beside the tutorials' MERGE that do not count, since the JVM compiles meanwhile. `latest` runs much code for a
short time and becomes faster until the third or fourth round; the tutorials' MERGE is a long loop and needs two."""
_LEAST = TRANSACTION
"""The fewest keys that are changed, so that no transaction changes a row twice."""

_SCHEMA = (
    "struct<before: struct<id: bigint>, after: struct<id: bigint, n: int, amount: string, note: string, at: string, "
    "flag: boolean, code: string, doc: string>, source: struct<lsn: bigint>, op: string>"
)


@dataclass(frozen=True, slots=True)
class Written:
    """The cost of a query: `seconds` from its start to its end, and `size`, the bytes of all new files."""

    seconds: float
    size: int


@dataclass(frozen=True, slots=True)
class Lake:
    """A pipeline into tables of one mode, with its slot, its directory and the directory of its table."""

    mode: str
    slot: str
    folder: Path
    table: Path
    entries: Mapping[str, str]


def measure(
    spark: SparkSession, workload: Workload, changes: int, repeat: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Return the figures of `changes` changes over a fifth as many keys."""
    keys = max(changes // 5, _LEAST)
    workload.create(TABLE)
    say(f"tables: a snapshot of {keys:,} rows into {', '.join(MODES)}")
    workload.insert(TABLE, keys)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        lakes = [pipeline(workload, TABLE.name, mode, Path(folder)) for mode in (*MODES, ICEBERG)]
        place = 0
        # `latest` alone first: MERGEs of other modes would have the JVM compile the tutorials' MERGE, too.
        for is_beside, among, begun, warm in ((True, lakes[:1], lakes[:1], _WARM_UP), (False, lakes, lakes[1:], 1)):
            for lake in begun:
                run(spark, lake)
            rounds: dict[str, list[dict[str, float]]] = {share: [] for share in SHARES}
            for number, (share, one_of) in product(range(repeat + warm), SHARES.items()):
                touched = max(keys // one_of, _LEAST)
                found = _round(spark, workload, among, (changes, keys, touched, place), is_beside, say)
                place += changes // TRANSACTION
                told = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
                say(f"tables of {touched:,} keys{' (warm-up)' if number < warm else ''}: {told}")
                if number >= warm:
                    rounds[share].append(found)
            for share, of in rounds.items():
                named = {f"tables_{share}_{name}": median(found[name] for found in of) for name in of[0]}
                # the figures of `latest` are from the rounds beside the tutorials' MERGE
                figures = named | figures
    return figures


def pipeline(workload: Workload, table: str, mode: str, folder: Path) -> Lake:
    """Return a pipeline of one table into a lake under `folder`. It begins with a snapshot; `mode` may be ICEBERG."""
    slot = f"{table}_{mode}"
    settings = drain.options(workload, table, {"slot.name": slot, "snapshot.mode": "initial"})
    settings["checkpoint.location"] = str(folder / f"checkpoint-{mode}")
    entries = {f"debezium.source.{name}": text for name, text in settings.items()}
    entries |= {
        "debezium.sink.type": "tables",
        "debezium.sink.tables.path": str(folder / mode),
        "debezium.sink.tables.mode": "latest" if mode == ICEBERG else mode,
        "debezium.sink.tables.format": ICEBERG if mode == ICEBERG else "delta",
    }
    return Lake(mode, slot, folder / mode, folder / mode / f"public.{table}", entries)


def run(spark: SparkSession, lake: Lake) -> Written:
    """Write all committed changes and return the cost."""
    # pipelines that have ended keep their last batch in the JVM's memory until Python frees them
    gc.collect()
    before = size_of(lake.folder)
    started = time.monotonic()
    pipeline = Pipeline(from_entries(lake.entries, {}), spark)
    try:
        pipeline.start(available_now=True).awaitTermination()
    finally:
        pipeline.stop()
    return Written(time.monotonic() - started, size_of(lake.folder) - before)


def _round(
    spark: SparkSession,
    workload: Workload,
    lakes: list[Lake],
    sizes: tuple[int, int, int, int],
    is_beside: bool,
    say: Callable[[str], None],
) -> dict[str, float]:
    """Make changes, write them into each lake and, with `is_beside`, by the tutorials' MERGE; return the figures."""
    changes, keys, touched, place = sizes
    latest = lakes[0]
    beside = latest.folder.parent / "naive"
    if is_beside:
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(latest.table, beside)
    with workload.copy_of(latest.slot) as slot:
        change(workload, changes, keys, touched, place)
        workload.settle(TABLE.name)
        end = workload.log_end()
        noop = [_noop(spark, workload, slot)]
        written = {lake.mode: run(spark, lake) for lake in lakes}
        naive = _naive(spark, workload, slot, beside) if is_beside else None
        noop.append(_noop(spark, workload, slot))
        # the next round copies this slot: it must stand at the end
        workload.await_slot(latest.slot, end)
    tables = {lake.mode: lake.table for lake in lakes if lake.mode in ("latest", ICEBERG)}
    if is_beside:
        tables["naive"] = beside
    for name, table in tables.items():
        _demand_equal(spark, workload, name, table)
    bare = sum(one.seconds for one in noop) / len(noop)
    if any(one.rows != noop[0].rows for one in noop) or noop[0].rows < changes:
        raise RuntimeError(f"{noop[0].rows} of {changes} changes were read up to {end}")
    own = written["latest"]
    figures = {"noop_seconds": bare, "bytes_of_changed_row": own.size / touched}
    for mode, one in written.items():
        figures[f"{mode}_seconds"] = one.seconds
        figures[f"{mode}_per_second"] = changes / one.seconds
        figures[f"{mode}_bytes"] = one.size / changes
        figures[f"{mode}_noop_ratio"] = bare / one.seconds
    if naive is not None:
        figures |= {"naive_seconds": naive.seconds, "naive_bytes": naive.size / changes}
        figures["naive_ratio"] = naive.seconds / own.seconds
    if ICEBERG in written:
        figures["iceberg_ratio"] = own.seconds / written[ICEBERG].seconds
    return figures


def change(workload: Workload, changes: int, keys: int, touched: int, place: int) -> None:
    """Write `changes` changes of `touched` of the `keys` keys, spread evenly, in transactions of TRANSACTION rows.

    `place` is the number of the first transaction.
    """
    step = keys // touched
    ids = f"select ((i::bigint * 7919) % {touched}) * {step} + 1 from generate_series(low, high) i"
    columns = ", ".join(text if name != "id" else "i" for (name, _), text in zip(TABLE.columns, TABLE.row, strict=True))
    workload.execute(
        "do $$ declare low bigint; high bigint; one int; begin"
        f" for one in {place}..{place + changes // TRANSACTION - 1}"
        f" loop low := (one - case when one % 10 = 9 then 1 else 0 end)::bigint * {TRANSACTION};"
        f" high := low + {TRANSACTION - 1};"
        f" if one % 10 = 8 then delete from lake where id in ({ids});"
        f" elsif one % 10 = 9 then insert into lake select {columns} from ({ids}) as found (i);"
        " else update lake set n = n + 1, at = at + interval '1 second',"
        " note = rpad('changed by ' || one || ' ', 60, 'abcdefghij')"
        f" where id in ({ids}); end if; commit; end loop; end $$"
    )


def _noop(spark: SparkSession, workload: Workload, slot: str) -> drain.Drained:
    with workload.copy_of(slot) as copy:
        settings = drain.options(workload, TABLE.name, {"slot.name": copy, "snapshot.mode": "never", **_ORDER})
        return drain.to_noop(spark, drain.needed(NoopSink({}), settings))


_ORDER = {"event.order": "key", "event.format": "1.7"}


def _naive(spark: SparkSession, workload: Workload, slot: str, table: Path) -> Written:
    """Write as tutorials do: parse JSON events, keep the last of each key by its LSN, and MERGE once for each batch."""
    before = size_of(table)
    with workload.copy_of(slot) as copy, tempfile.TemporaryDirectory(prefix="tailrace-bench-") as checkpoint:
        more = {"slot.name": copy, "snapshot.mode": "never", "decimal.handling.mode": "string", **_ORDER}
        settings = drain.options(workload, TABLE.name, {**more, "tombstones.on.delete": "false"})
        settings["row.columns"] = "value"
        events = drain.frame(spark, settings)
        writer = events.writeStream.foreachBatch(lambda batch, number: _merge(batch, table))
        started = time.monotonic()
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return Written(time.monotonic() - started, size_of(table) - before)


def _merge(batch: DataFrame, table: Path) -> None:
    session = batch.sparkSession
    batch.createOrReplaceTempView("events")
    session.sql(
        f"""
        with told as (select from_json(cast(value as string), '{_SCHEMA}') e from events),
        rows as (
          select e.op, coalesce(e.after.id, e.before.id) id, e.after.n, cast(e.after.amount as decimal(12, 2)) amount,
            e.after.note, cast(e.after.at as timestamp) at, e.after.flag, e.after.code, e.after.doc,
            row_number() over (partition by coalesce(e.after.id, e.before.id) order by e.source.lsn desc) place
          from told where e.op is not null)
        merge into delta.`{table}` t
        using (select * except (place) from rows where place = 1) s on t.id = s.id
        when matched and s.op = 'd' then delete
        when matched then update set *
        when not matched and s.op <> 'd' then insert *
        """
    )


def _demand_equal(spark: SparkSession, workload: Workload, name: str, table: Path) -> None:
    """Raise RuntimeError if a table is not equal to its source."""
    sums = "count(*), sum(id), sum(n), sum(amount), sum(length(note)), max(at)"
    rows = found_at(spark, str(table)).table(spark, str(table)).rows()
    held = tuple(rows.selectExpr(*_parts(sums)).collect()[0])
    there = workload.execute(f"select {sums} from {TABLE.name}")[0]
    if [str(value)[:19] for value in held] != [str(value)[:19] for value in there]:
        raise RuntimeError(f"the table {name} has {held}, the source {there}")


def _parts(sums: str) -> list[str]:
    return sums.split(", ")


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
