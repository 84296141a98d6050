"""Parts of verification without a server and Spark: keys in the log, signals for keys, output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from tailrace import sinks
from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors import registry, signalling
from tailrace.connectors.changetables.verify_source import ComparedTables
from tailrace.connectors.consistent_read import TouchedKeys
from tailrace.connectors.mongodb.snapshot import chunks
from tailrace.connectors.mongodb.verify_source import ComparedDocuments
from tailrace.connectors.postgres import verify_source
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.protocol import pgoutput
from tailrace.connectors.postgres.verify_source import ComparedSnapshot
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, SinkError
from tailrace.sinks.tables.evolution import HeldColumn, HeldTable
from tailrace.snapshot import signals
from tailrace.spark.lock import CheckpointLock, is_held
from tailrace.verify import check, command, moments, repair
from tailrace.verify import rows as verified_rows
from tailrace.verify.check import Lake, TableResult, Verification, VerificationResult, demand
from tailrace.verify.comparison import DIFFERENT, DUPLICATE, EXTRA, MISSING, Key, comparable
from tailrace.verify.keys import FarMoment, array_of, values_of
from tailrace.verify.moments import WholeMoment, batch_of
from tailrace.verify.rows import TableForm
from tests.event_settings import event_settings

NAME = TableId("d", "public", 'odd "name"')
SETTINGS = event_settings("server", "d")


def table(*columns: tuple[str, str], key: Sequence[str] = ("id",)) -> TableSchema:
    return TableSchema(NAME, tuple(Column(name, kind, 0) for name, kind in columns), tuple(key))


def result(of: TableSchema, **keys: dict[Key, str]) -> TableResult:
    shape = TableForm.of(of, SETTINGS, FORM)
    condition = object.__new__(ComparedSnapshot).condition
    return TableResult(NAME, "/lake/t", shape, condition, 1000, 7, **keys)


def relation(identity: str, *columns: tuple[str, int], name: str = NAME.table, number: int = 1) -> pgoutput.Relation:
    listed = tuple(pgoutput.RelationColumn(flags, of, 23, -1) for of, flags in columns)
    return pgoutput.Relation(number, "public", name, identity, listed)


T = table(("id", "int4"), ("v", "text"))
PLAIN = relation("d", ("id", 1), ("v", 0))


def test_keys_are_those_of_rows_before_and_after() -> None:
    messages = [
        PLAIN,
        relation("d", ("id", 1), name="other", number=2),
        pgoutput.Insert(1, (b"1", b"a")),
        pgoutput.Insert(2, (b"77",)),
        pgoutput.Update(1, None, None, (b"2", pgoutput.UNAVAILABLE)),
        pgoutput.Update(1, "K", (b"3", None), (b"4", b"a")),
        pgoutput.Delete(1, "K", (b"5", None)),
        pgoutput.Truncate(0, (2,)),
    ]
    assert verify_source._touched(iter(messages), T) == {(b"1",), (b"2",), (b"3",), (b"4",), (b"5",)}


@pytest.mark.parametrize(
    "messages",
    [
        [PLAIN, pgoutput.Truncate(0, (1,))],
        [PLAIN, pgoutput.Insert(1, (None, b"a"))],
        [PLAIN, pgoutput.Update(1, None, None, (pgoutput.UNAVAILABLE, b"a"))],
        # With message.key.columns, the log does not show this key of old rows.
        [relation("d", ("id", 0), ("v", 1)), pgoutput.Update(1, None, None, (b"1", b"a"))],
        [relation("d", ("v", 1)), pgoutput.Insert(1, (b"a",))],
    ],
)
def test_what_does_not_tell_its_key_may_be_any_row(messages: list[pgoutput.AnyMessage]) -> None:
    assert verify_source._touched(iter(messages), T) is None


def test_a_condition_names_keys_whatever_is_in_them() -> None:
    of = object.__new__(ComparedSnapshot)
    assert of.condition(['a"b'], [["it's"], ["\\"]]) == "\"a\"\"b\" in ('it''s', E'\\\\')"
    wanted = "(\"a\", \"b\") in (('1', 'true'), (E'\\\\x007f', '2.5'))"
    assert of.condition(["a", "b"], [[1, True], [b"\0\x7f", 2.5]]) == wanted


@pytest.mark.parametrize(
    ("value", "of_sql_server", "of_db2"),
    [
        ("it's \\", "N'it''s \\'", "'it''s \\'"),
        (b"\0\x7f", "0x007f", "X'007F'"),
        (True, "1", "TRUE"),
        (-7, "-7", "-7"),
        (Decimal("1E+2"), "100", "100"),
        (datetime(2024, 2, 3, 4, 5, 6, 789000), "N'2024-02-03T04:05:06.789000'", "'2024-02-03 04:05:06.789000'"),
        (date(2024, 2, 3), "N'2024-02-03'", "'2024-02-03'"),
        ("[x]", "N'[x]'", "'[x]'"),
    ],
)
def test_constants_of_keys(value: object, of_sql_server: str, of_db2: str) -> None:
    for connector, name, wanted in (("sqlserver", "[a]]b]", of_sql_server), ("db2", '"a]b"', of_db2)):
        made: ComparedTables = object.__new__(ComparedTables)
        made._name, made._value = import_module(f"tailrace.connectors.{connector}.verify_source").WRITTEN
        assert made.condition(["a]b"], [[value], [value]]) == f"{name} in ({wanted}, {wanted})"
        assert made.condition(["a]b", "c"], [[value, 1]]).startswith(f"({name} = {wanted} and ")


def test_a_condition_on_documents_is_a_query() -> None:
    of = object.__new__(ComparedDocuments)
    text = of.condition(["_id"], [['{"$oid": "665f1f77bcf86cd799439011"}'], ['"a\\"b"'], ["5"]])
    assert chunks.condition(text) == {"_id": {"$in": [ObjectId("665f1f77bcf86cd799439011"), 'a"b', 5]}}
    far = of.condition(["_id"], [['{"$date": 253402300800000000}']])
    assert chunks.condition(far) == {"_id": {"$in": [DatetimeMS(253_402_300_800_000_000)]}}


TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=300)


@given(st.lists(st.tuples(TEXTS, st.integers(-(2**63), 2**63 - 1)), max_size=60, unique=True))
def test_each_key_is_asked_for_once_by_signals_that_are_read(keys: list[tuple[str, int]]) -> None:
    of = result(table(("k", "text"), ("id", "int8"), key=("k", "id")))
    conditions, sizes = [], []
    for signal in repair.signals(of, keys):
        assert signal.data is not None
        # A key that exceeds the limit by itself is requested alone.
        sizes.append(len(signal.data))
        action = signals.read(signal)
        assert isinstance(action, signals.ExecuteSnapshot)
        assert action.collections == ('"public"."odd ""name"""',)
        assert signals.Finder([("public", 'odd "name"')]).named(action.collections[0])
        conditions.append(action.conditions[0][1])
    said = ", ".join(condition.removeprefix('("k", "id") in (').removesuffix(")") for condition in conditions)
    listed = ", ".join(f"({verify_source.literal(text)}, '{number}')" for text, number in keys)
    assert said == listed
    assert all(size <= 2000 for size in sizes) or max(len(json.dumps(text)) for text, _ in keys) > 800
    assert len(sizes) <= sum(sizes) // 1000 + 1


def test_keys_that_no_condition_can_name_are_refused() -> None:
    with pytest.raises(SinkError, match=r"cannot be asked for by their keys: id is of the type time64"):
        repair._demand_mendable(result(table(("id", "time"))))
    repair._demand_mendable(result(table(("id", "uuid"))))


def test_a_table_without_a_key_is_refused_by_name() -> None:
    with pytest.raises(SinkError, match=r'The table public\.odd "name" has no key'):
        TableForm.of(table(("id", "int4"), key=()), SETTINGS, FORM)


def test_texts_of_the_log_become_the_values_of_tables() -> None:
    shape = TableForm.of(table(("id", "timestamptz"), ("f", "float8"), key=("f", "id")), SETTINGS, FORM)
    found = shape.values([[b"NaN", b"-0"], [b"2024-02-03 04:05:06.789+00", b"2024-02-03 06:05:06.789+02"]])
    keys = [comparable(key) for key in zip(*found, strict=True)]
    at = datetime(2024, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
    assert keys == [("NaN", at), (0.0, datetime(2024, 2, 3, 4, 5, 6, 789000, tzinfo=UTC))]


def test_keys_beyond_the_years_of_python_are_compared() -> None:
    shape = TableForm.of(table(("d", "date"), ("t", "timestamptz"), key=("d", "t")), SETTINGS, FORM)
    texts = [[b"0044-03-15 BC", b"infinity", b"2024-02-03"], [b"-infinity", b"10000-01-01 00:00:00+00", b"infinity"]]
    found = list(zip(*shape.values(texts), strict=True))
    assert [[str(part)[:21] for part in key] for key in found] == [
        ["0044-03-15 BC", "0001-01-03 00:00:00+0"],
        ["9999-12-31", "10000-01-01 00:00:00."],
        ["2024-02-03", "9999-12-31 00:00:00+0"],
    ]
    assert found == list(zip(*shape.values(texts), strict=True))
    for place, kind in enumerate(shape.form.types):
        values = [key[place] for key in found]
        assert values_of(array_of(values, kind)) == values
    zoned = pa.array([0], pa.timestamp("us", "Asia/Tokyo"))
    assert values_of(zoned)[0] == datetime(1970, 1, 1, tzinfo=UTC)
    differing = {found[0][:1]: MISSING, found[1][:1]: EXTRA}
    kept = VerificationResult(
        (result(table(("d", "date"), key=("d",)), differing=differing),), "5", cast("WholeMoment", None), False
    )
    assert [line for line in command.lines(kept, 5) if "BC" in line] == ['  missing {"d": "0044-03-15 BC"}']


def test_a_key_that_stands_for_infinity_is_asked_for_by_it_too() -> None:
    of = object.__new__(ComparedSnapshot)
    assert of.condition(["d"], [[date(9999, 12, 31)], [FarMoment(-735_160, True)]]) == (
        "\"d\" in ('9999-12-31', 'infinity', '0044-03-15 BC')"
    )
    assert of.condition(["i", "t"], [[1, datetime(1, 1, 3, tzinfo=UTC)]]) == (
        "(\"i\", \"t\") in (('1', '0001-01-03 00:00:00+00:00'), ('1', '-infinity'))"
    )
    assert of.condition(["t"], [[datetime(1, 1, 3, 1)]]) == "\"t\" in ('0001-01-03 01:00:00')"


def test_the_sink_tables_is_one_whose_tables_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sinks.open("tables", {"path": "/lake"})
    assert isinstance(sink, Lake)
    assert sink.names.path(sink.path, ("d", "s", "t")) == "/lake/s.t"
    assert not isinstance(sinks.open("console", {}), Lake)
    log = sinks.open("tables", {"path": "/lake", "mode": "log"})
    assert isinstance(log, Lake)
    source = parse("postgres", dict.fromkeys(("database.hostname", "database.user", "database.dbname"), "x"))
    with pytest.raises(SinkError, match=r"of the modes latest and history, not of log"):
        demand("postgres", log, source)
    without = replace(registry.find("db2"), verify_source="")
    monkeypatch.setattr(registry, "find", lambda name: without)
    with pytest.raises(ConfigError, match=r"does not support Db2 yet.*PostgreSQL, MongoDB"):
        demand("db2", sink, source)


def test_columns_that_have_exchanged_names_are_not_compared() -> None:
    """With schema.rename=ignore the values go on into the columns with the former names."""
    of = table(("id", "int4"), ("a", "text"), ("b", "text"))
    shape = TableForm.of(of, SETTINGS, FORM)
    types = [("id", "int"), ("a", "string"), ("b", "string")]
    fields = [SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=kind.__str__)) for name, kind in types]
    rows = cast(Any, SimpleNamespace(schema=SimpleNamespace(fields=fields)))

    def demand_columns(*columns: HeldColumn) -> None:
        properties = {"tailrace.columns": HeldTable((HeldColumn(1, "id", "id"), *columns), ("id",)).text()}
        stored = SimpleNamespace(path="/lake/t", properties=lambda: properties, held=lambda kind: kind)
        verified_rows._demand_columns(cast(Any, stored), rows, shape)

    demand_columns(HeldColumn(2, "a", "a"), HeldColumn(3, "b", "b"), HeldColumn(4, "x", "b", gone=True))
    with pytest.raises(SinkError, match="source's column b is called a in it, and another column of the source is a"):
        demand_columns(HeldColumn(2, "b", "a"), HeldColumn(3, "a", "b"))


def test_commits_say_of_which_batch_they_are() -> None:
    told = [None, "", "no json", "[]", '{"tailrace": {"batch": 7, "snapshot": "-"}}']
    assert [batch_of(text) for text in told] == [-1, -1, -1, -1, 7]


class Positions:
    """A table of positions whose one query gives `found`."""

    path = "/lake/tailrace_positions"

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def rows(self) -> Any:
        return SimpleNamespace(selectExpr=lambda *told: SimpleNamespace(collect=lambda: [self._found]))


def at(batch: int, position: str, whole: bool) -> dict[str, Any]:
    moment = {"batch": batch, "position": position, "ordinal": 0, "whole": whole}
    return moment | {"committed_at": datetime(2024, 1, 1, tzinfo=UTC), "versions": {}}


@pytest.mark.parametrize(
    ("committed", "newest_is_whole", "batch", "has_gap"),
    [
        # Batches from 4 on are not whole. The pipeline has committed one of them, and the slot has let go of its log.
        ("0B", False, 3, True),
        ("0A", False, 3, False),
        ("09", False, 3, False),
        ("0C", False, 5, False),
        ("0B", True, 5, False),
        ("", False, 3, False),
    ],
)
def test_a_moment_before_the_committed_position_has_a_gap(
    monkeypatch: pytest.MonkeyPatch, committed: str, newest_is_whole: bool, batch: int, has_gap: bool
) -> None:
    last = at(5, "0C", newest_is_whole)
    found = {"newest": last, "whole": last if newest_is_whole else at(3, "0A", True), "highest": "0C"}
    monkeypatch.setattr(moments, "positions_under", lambda *told: Positions(found))
    moment = moments.newest(cast(Any, None), "/lake", committed)
    assert (moment.batch, moment.has_gap) == (batch, has_gap)


class Source:
    """The source's side of a comparison, whose log has the changes of the key 7."""

    committed, position, form, tables = "0B", "0D", FORM, (T,)

    def take(self) -> None:
        """Nothing has to be planned."""

    def is_told(self) -> bool:
        return True

    def touched(self, table: TableSchema, after: str, upto: str) -> TouchedKeys:
        return TouchedKeys(((b"7",),))

    def is_running(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


def looked(
    monkeypatch: pytest.MonkeyPatch, found: dict[Key, str], before: VerificationResult | None, *, has_gap: bool = False
) -> VerificationResult:
    """Return the result of a comparison in which these keys differ."""
    moment = WholeMoment(3, "0A", 0, datetime(2024, 1, 1, tzinfo=UTC), {}, has_gap)
    monkeypatch.setattr(check, "newest", lambda *told: moment)
    made: Verification = object.__new__(Verification)
    made._counting, made.sink = cast(Any, None), cast(Any, SimpleNamespace(path="/lake"))
    monkeypatch.setattr(made, "_snapshot", lambda names: Source())
    monkeypatch.setattr(made, "_named", lambda source, names: [T])
    monkeypatch.setattr(made, "_compared", lambda *told: result(T, differing=dict(found)))
    return made._look((), before, 0, lambda: 0)


def test_no_key_differs_for_certain_if_the_log_has_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[Key, str] = {(1,): DIFFERENT, (7,): DIFFERENT}
    (table_,) = looked(monkeypatch, keys, None).tables
    assert (table_.differing, table_.undecided) == ({(1,): DIFFERENT}, {(7,): DIFFERENT})
    (table_,) = looked(monkeypatch, keys, None, has_gap=True).tables
    assert (table_.differing, table_.undecided) == ({}, keys)


def test_a_key_that_only_the_table_had_is_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source has the row 2 by now. A repair would remove it from the table."""
    first: dict[Key, str] = {(1,): MISSING, (2,): EXTRA, (3,): EXTRA, (4,): DUPLICATE, (7,): EXTRA}
    before = looked(monkeypatch, first, None)
    (table_,) = before.tables
    table_.differing[8,] = EXTRA
    table_.undecided[9,] = DIFFERENT
    later: dict[Key, str] = {(3,): EXTRA, (4,): DIFFERENT, (5,): EXTRA, (7,): EXTRA}
    (table_,) = looked(monkeypatch, later, before).tables
    assert table_.differing == {(1,): MISSING, (3,): EXTRA, (4,): DIFFERENT}
    assert table_.undecided == {(7,): EXTRA}


def test_what_differs_is_shown_and_written(tmp_path: Path) -> None:
    of = result(
        T,
        differing={(2,): MISSING, (10,): EXTRA, (3,): DIFFERENT, (4,): DUPLICATE},
        undecided={(1,): MISSING},
    )
    moment = WholeMoment(3, "0A", 0, datetime(2024, 1, 1, tzinfo=UTC), {})
    verified = VerificationResult((of, result(table(("id", "int4")))), "0B", moment, False)
    assert list(command.lines(verified, 2)) == [
        'public.odd "name": 1,000 rows at 0B, 1 different, 1 duplicate, 1 extra, 1 missing, 1 undecided',
        '  missing {"id": 2}',
        '  different {"id": 3}',
        "  and 3 more",
        'public.odd "name": 1,000 rows at 0B, no difference',
    ]
    command.write(tmp_path / "report", verified)
    found = [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]
    assert [(entry["kind"], entry["key"]["id"]) for entry in found] == [
        ("missing", 2), ("different", 3), ("duplicate", 4), ("extra", 10), ("undecided", 1)
    ]  # fmt: skip
    with pytest.raises(SinkError, match="--report cannot be written"):
        command.write(tmp_path, verified)


def test_the_lock_of_a_checkpoint_says_whether_a_pipeline_runs(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "none")
    lock = CheckpointLock(tmp_path)
    lock.acquire()
    assert is_held(tmp_path)
    lock.release()
    assert not is_held(tmp_path)
    # A check of the lock does not hold it.
    lock.acquire(0)
    lock.release()


def test_what_only_a_table_has_stays_while_a_pipeline_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rows are requested, and no second pipeline is made."""
    of = result(T, differing={(1,): MISSING, (2,): EXTRA, (3,): DUPLICATE, (4,): DIFFERENT})
    moment = WholeMoment(3, "0A", 0, datetime(2024, 1, 1, tzinfo=UTC), {})
    before = VerificationResult((of,), "0B", moment, is_running=True)
    after = replace(before, tables=(replace(of, differing={(2,): EXTRA, (3,): DUPLICATE}),))
    looks, sent, said = [after], list[str](), list[str]()

    class Looking:
        def run(self, names: Sequence[str], wait_s: float) -> VerificationResult:
            assert names == [str(NAME)]
            return looks.pop()

    def send(source: object, signal: signals.Signal) -> str:
        sent.append(signal.data or "")
        return "sent"

    def refused(*told: object) -> None:
        raise AssertionError("a pipeline runs already")

    monkeypatch.setattr(signalling, "send", send)
    monkeypatch.setattr(repair, "reading_again", lambda run: run)
    monkeypatch.setattr(repair, "remove", refused)
    monkeypatch.setattr(repair, "Pipeline", refused)
    mending = repair.Repair(cast(Any, None), cast(Any, SimpleNamespace(source=None)), cast(Any, Looking()), said.append)
    assert mending.run(before, 60) == after
    assert not looks
    assert said == [
        "2 keys are left that only a table has, or has twice: stop the pipeline, and repair again.", "sent"
    ]  # fmt: skip
    (asked,) = (json.loads(data)["additional-conditions"][0]["filter"] for data in sent)
    assert asked == "\"id\" in ('1', '4')"


def test_rows_are_asked_for_before_others_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair that ends before the removal leaves requests for all rows: the next run reads them."""
    of = result(T, differing={(2,): EXTRA, (3,): DUPLICATE, (4,): DIFFERENT})
    moment = WholeMoment(3, "0A", 0, datetime(2024, 1, 1, tzinfo=UTC), {})
    before = VerificationResult((of,), "0A", moment, is_running=False)
    done = list[str]()

    class Stopped:
        def __init__(self, *_: object) -> None:
            pass

        def begin(self) -> None:
            done.append("begin")

        def start(self) -> None:
            raise AssertionError("nothing was removed yet")

        def stop(self) -> None:
            done.append("stop")

    def send(source: object, signal: signals.Signal) -> str:
        done.append(json.loads(signal.data or "")["additional-conditions"][0]["filter"])
        return "sent"

    def remove(*told: object) -> None:
        raise SinkError("The disk is full.", "Make room.")

    monkeypatch.setattr(signalling, "send", send)
    monkeypatch.setattr(repair, "reading_again", lambda run: run)
    monkeypatch.setattr(repair, "remove", remove)
    monkeypatch.setattr(repair, "Pipeline", Stopped)
    mending = repair.Repair(
        cast(Any, None), cast(Any, SimpleNamespace(source=None)), cast(Any, SimpleNamespace(sink=None)), done.append
    )
    with pytest.raises(SinkError, match="The disk is full"):
        mending.run(before, 60)
    assert done == ["begin", "\"id\" in ('3', '4')", "sent", "stop"]
