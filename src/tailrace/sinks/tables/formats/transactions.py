"""Commits to tables of Delta Lake, made of what Delta's own commands are made of: rows that are appended, and rows
that are replaced as wholes, the old ones by deletion vectors, the new ones as new files, in one commit. Driver.

SQL's MERGE joins the rows of the table with those of the batch three times, to find the files that it touches, to write
the new rows and to mark the old ones, since a new row may have values of the old one. Where none has, it takes no more
than what Delta's DELETE does with the columns of the key, and what its writer does with the new rows. Spark's SQL has
no statement for both in one transaction. And both MERGE and the writer ask for the table's transaction keys in a way
for which Spark reads the whole log of the table again after each commit, three jobs, though Delta keeps the keys beside
the log. So this calls the parts, in the version of Delta Lake that it is tested with.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tailrace.sinks.tables.formats.base import Once
from tailrace.sinks.tables.frames import computed
from tailrace.sinks.tables.statements import Merge, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION = "4.4.0"
"""Of Delta Lake, as the jars have it. In a session with another one rows are merged by MERGE."""

_DELTA = "org.apache.spark.sql.delta"
_VIEW = "tailrace_replacing"
_NEEDED, _FOREIGN = "delta.enableDeletionVectors", ("delta.enableChangeDataFeed", "delta.enableRowTracking")
"""What a table must have, and what tells a replaced row from one that was deleted and one that was inserted."""

_SUBQUERY = {"spark.databricks.delta.delete.allowExistsSubquery": "true"}
# an adaptive plan makes a job of each exchange
_BROADCAST = {"spark.sql.adaptive.enabled": "false"}


def replace_rows(session: SparkSession, path: str, name: str, merge: Merge, once: Once) -> bool:
    """Do a `whole` merge into the table at `path`, called `name` in SQL; False where it is one for MERGE, and nothing
    was done. Raises what Delta Lake raises, where another commit was in the way as well.

    The commit says what the session's `spark.databricks.delta.commitInfo.userMetadata` says.
    """
    jvm: Any = session._jvm
    own: Any = session._jsparkSession
    if not merge.whole or not _is_known(session):
        return False
    log = getattr(jvm, f"{_DELTA}.DeltaLog").forTable(own, path)
    with _active(jvm, own):
        transaction = log.startTransaction()
        values = merge.inserted.values if merge.inserted is not None else None
        if not _takes(transaction.metadata(), values or ()):
            return False
        if _newest(transaction, once.application) >= once.batch:
            return True
        settings = {**_SUBQUERY, **(_BROADCAST if merge.few else {})}
        with computed(session.table(merge.view), eager=False) as rows, _set(session, settings):
            rows.createOrReplaceTempView(_VIEW)
            gone = _delete(session, name, merge).performDelete(own, log, transaction)._1()
            added = transaction.writeFiles(_new(session, transaction.metadata(), merge)._jdf)
            transaction.updateSetTransaction(once.application, once.batch, jvm.scala.Option.empty())
            transaction.commit(gone.appendedAll(added), _operation(jvm, "Overwrite", merge.on))
    return True


def append_rows(session: SparkSession, path: str, rows: DataFrame, once: Once) -> bool:
    """Append rows of `session` to the table at `path`; False where Delta's writer has to do it, and nothing was done.

    Raises and says what `replace_rows` does.
    """
    jvm: Any = session._jvm
    own: Any = session._jsparkSession
    if not _is_known(session):
        return False
    with _active(jvm, own):
        transaction = getattr(jvm, f"{_DELTA}.DeltaLog").forTable(own, path).startTransaction()
        if not _has_columns(transaction.metadata(), rows.columns):
            return False
        if _newest(transaction, once.application) < once.batch:
            added = transaction.writeFiles(_declared(rows, transaction.metadata())._jdf)
            transaction.updateSetTransaction(once.application, once.batch, jvm.scala.Option.empty())
            transaction.commit(added, _operation(jvm, "Append"))
    return True


def _is_known(session: SparkSession) -> bool:
    """Whether the session's Delta Lake is the version that this is made for."""
    jvm: Any = session._jvm
    return bool(getattr(jvm, "io.delta.package").VERSION() == VERSION)


def _newest(transaction: Any, application: str) -> int:
    """The newest batch of the application that is in the table, -1 for none. From here on any other commit of the
    application is in the way of this transaction."""
    checksum = transaction.snapshot().checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if not known.isDefined():
        return int(transaction.txnVersion(application))
    # what `txnVersion` does beside looking
    transaction.readTxn().addOne(application)
    keys = known.get()
    found = (keys.apply(place) for place in range(keys.size()))
    return max((int(key.version()) for key in found if key.appId() == application), default=-1)


def newest(session: SparkSession, path: str) -> tuple[Any, Any]:
    """Delta's log of the table, and what it knows of the newest version."""
    jvm: Any = session._jvm
    log = getattr(jvm, f"{_DELTA}.DeltaLog").forTable(session._jsparkSession, path)
    nothing = jvm.scala.Option.empty()
    return log, log.update(False, nothing, nothing)


def load(session: SparkSession, path: str) -> None:
    """Have Delta make its state of the table's newest version out of its log, three jobs of Spark, and keep it: what
    deletes rows asks it for the files that may have them."""
    with _active(session._jvm, session._jsparkSession):
        newest(session, path)[1].transactions()


def _takes(metadata: Any, columns: Collection[str]) -> bool:
    """Whether the table has the columns that the rows have, and nothing for which deleting and inserting is not
    replacing."""
    properties = metadata.configuration()

    def is_on(name: str) -> bool:
        return bool(properties.contains(name)) and str(properties.apply(name)).lower() == "true"

    return _has_columns(metadata, columns) and is_on(_NEEDED) and not any(map(is_on, _FOREIGN))


def _has_columns(metadata: Any, columns: Collection[str]) -> bool:
    """Whether these are the columns of the table, which is not partitioned by any."""
    return set(metadata.schema().fieldNames()) == set(columns) and bool(metadata.partitionColumns().isEmpty())


def _delete(session: SparkSession, name: str, merge: Merge) -> Any:
    """Delta's command that deletes the rows that have one of the batch, analyzed."""
    state = session._jsparkSession.sessionState()
    hint = "/*+ broadcast(s) */ " if merge.few else ""
    where = f"exists (select {hint}1 from {_VIEW} s where {merge.on})"
    plan = state.sqlParser().parsePlan(f"delete from {name} t where {where}")
    skip = session._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()  # type: ignore[union-attr]
    return state.executePlan(plan, skip).analyzed()


def _new(session: SparkSession, metadata: Any, merge: Merge) -> DataFrame:
    """The new rows, with the table's columns in their order."""
    assert merge.inserted is not None
    assert merge.inserted.values is not None
    columns = ", ".join(f"{value} as {quoted(name)}" for name, value in merge.inserted.values.items())
    where = f" where {merge.inserted.condition}" if merge.inserted.condition else ""
    return _declared(session.sql(f"select {columns} from {_VIEW} s{where}"), metadata)


def _declared(rows: DataFrame, metadata: Any) -> DataFrame:
    """The rows, with the table's columns in their order."""
    from pyspark.sql.types import StructType

    return rows.to(StructType.fromJson(json.loads(metadata.schema().json())))


def _operation(jvm: Any, mode: str, replaced: str | None = None) -> Any:
    """What the table's history calls it: a write, with the condition of the rows that it has replaced."""
    option = jvm.scala.Option
    write = getattr(jvm, f"{_DELTA}.DeltaOperations$Write")
    of = getattr(jvm.org.apache.spark.sql.SaveMode, mode)
    return write(of, *[option.empty()] * 6, option.apply(replaced), option.empty())


@contextmanager
def _active(jvm: Any, own: Any) -> Iterator[None]:
    """The session as the one of this thread, from which Delta reads its settings."""
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(own)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def _set(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session, which is used by one thread."""
    before = {name: session.conf.get(name, None) for name in settings}
    try:
        for name, text in settings.items():
            session.conf.set(name, text)
        yield
    finally:
        for name, found in before.items():
            if found is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, found)
