"""The sink `file`: JSON lines, in the order of the files' names, or Parquet; each record exactly once. Driver."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.config.config import Config
from tailrace.config.formats import PARTS, form_of
from tailrace.errors import SinkError
from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.claim import Claim, claim
from tailrace.sinks.interruption import briefly
from tailrace.sinks.storage import HadoopStorage, Storage, reaching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


# --- files that appear once, whole ------------------------------------------------------------------------------------

FILES = "batch-[0-9]*-*.jsonl"
"""Pattern of the names of batches' files."""

_PART = re.compile(r"part-(\d+)-.*?(?:-c(\d+))?\.txt")
_LIST, _STAGING = "batch-", "staging-"
_NUMBER = re.compile(rf"(?:{_LIST}|{_STAGING})(\d+)")


def number_of(name: str) -> int:
    """The batch of a file called `batch-<batch>-<part>.jsonl`."""
    return int(name.split("-")[1])


def ordered(names: Iterable[str]) -> list[str]:
    """Spark's names of the parts of a batch in the order of the records: by task, then by file of the task.

    Other files are left out; a part whose name is not understood is an error, since its records would be lost.
    """
    found = []
    for name in names:
        part = _PART.fullmatch(name)
        if part is not None:
            found.append((int(part[1]), int(part[2] or 0), name))
        elif name.startswith("part-"):
            raise SinkError(f"Spark has called a part of a batch {name}, which has no known order.")
    return [name for _, _, name in sorted(found)]


class Batches:
    """The files of one directory. Raises SinkError where a file that is there would have to be replaced."""

    def __init__(self, storage: Storage, claim: Claim) -> None:
        self._storage = storage
        self._claim = claim

    def write(self, number: int, fill: Callable[[str], None]) -> None:
        """Add batch `number`: `fill` writes its parts, named as Spark does, into the folder that it is given.

        A batch that was written before, whole, is left as it is.
        """
        storage, control = self._storage, self._claim.control
        found = storage.sizes(control)
        if not self._claim.held(found):
            raise self._claim.lost()
        listed = max((_batch(name) for name in found if name.startswith(_LIST)), default=-1)
        if listed > number:
            raise self._overtaken(number, listed)
        if listed == number:
            self._resume(number)
        else:
            staging = f"{_STAGING}{number:012d}-{uuid.uuid4().hex[:8]}"
            fill(f"{control}/{staging}")
            self._add(number, staging)
        # Batch `number` is only begun when Spark has committed those before it.
        for name in found:
            if -1 < _batch(name) < number:
                storage.delete(f"{control}/{name}")

    def _add(self, number: int, staging: str) -> None:
        storage, control = self._storage, self._claim.control
        sizes = storage.sizes(f"{control}/{staging}")
        parts = ordered(name for name, size in sizes.items() if size)
        if parts:
            taken = storage.sizes(self._claim.path, f"batch-{number:012d}-*")
            if taken:
                raise self._taken(number, min(taken))
            digits = max(5, len(str(len(parts) - 1)))
            names = {part: f"batch-{number:012d}-{place:0{digits}d}.jsonl" for place, part in enumerate(parts)}
            described = {"plan": self._plan(number), "staging": staging, "files": names}
            if not storage.create(f"{control}/{_LIST}{number:012d}.json", json.dumps(described)):
                raise self._overtaken(number, number)
            self._publish(number, staging, names)
        storage.delete(f"{control}/{staging}")

    def _resume(self, number: int) -> None:
        """Go on with a batch that was listed before a crash. Its parts are those of the same plan."""
        text = self._storage.read(f"{self._claim.control}/{_LIST}{number:012d}.json")
        described = json.loads(text or "{}")
        if described.get("plan") != self._plan(number):
            raise self._overtaken(number, number)
        self._publish(number, described["staging"], described["files"])
        self._storage.delete(f"{self._claim.control}/{described['staging']}")

    def _publish(self, number: int, staging: str, names: dict[str, str]) -> None:
        """Give each part that is still aside its name. One that is not has got it before, and may be gone by now."""
        storage, folder = self._storage, f"{self._claim.control}/{staging}"
        aside = storage.sizes(folder)
        for part, name in names.items():
            if part not in aside or storage.rename(f"{folder}/{part}", f"{self._claim.path}/{name}"):
                continue
            there = storage.sizes(self._claim.path, name)
            # An object store renames by a copy, and a crash may leave both. Nothing had the name before the list.
            if there.get(name) != aside[part]:
                raise self._taken(number, name) if there else self._refused(number, name)
            storage.delete(f"{folder}/{part}")

    def _plan(self, number: int) -> str:
        """What distinguishes a plan of a batch from another one: a hash of its entry in Spark's log of offsets."""
        entry = self._storage.read(f"{self._claim.checkpoint}/offsets/{number}")
        return hashlib.sha256((entry or "").encode()).hexdigest()

    def _overtaken(self, number: int, listed: int) -> SinkError:
        return SinkError(
            f"{self._claim.path} holds batch {listed} already, and batch {number} was to be written: another run of "
            f"the checkpoint {self._claim.checkpoint} is alive, or it was put back to an earlier state.",
            "Let one pipeline run; after a checkpoint was put back, name another path.",
        )

    def _taken(self, number: int, name: str) -> SinkError:
        return SinkError(
            f"{self._claim.path}/{name} is there already, and was not written by this run of batch {number}.",
            "Let one pipeline run; move a file that belongs to none away, or name another path.",
        )

    def _refused(self, number: int, name: str) -> SinkError:
        return SinkError(
            f"The file system has refused to give a part of batch {number} the name {self._claim.path}/{name}.",
            "Check the rights there, then start again: the batch goes on where it stopped.",
        )


def _batch(name: str) -> int:
    """The batch of a list or of a folder of parts; -1 for other names."""
    found = _NUMBER.match(name)
    return int(found[1]) if found else -1


# --- the sink ---------------------------------------------------------------------------------------------------------

pass


# JSON goes in as it is. A text is escaped by to_json, as the element of an array whose brackets are cut off.
_IN_JSON = {
    "json": "cast({} as string)",
    "text": "regexp_extract(to_json(array(cast({} as string))), '(?s)^.(.*).$', 1)",
    # Spark cuts base64 into lines
    "bytes": "concat('\"', replace(replace(base64({}), char(13)), char(10)), '\"')",
}


def line(forms: Mapping[str, str]) -> str:
    """Return the SQL of Spark that makes a line of JSON of a record.

    It is `{"topic":…,"key":…,"value":…,"headers":[{"key":…,"value":…}]}`. `forms` has what `config.formats.form_of`
    says of `key`, `value` and `header`: JSON is written as such, other texts as strings, bytes in base64.
    """
    key, value, header = (
        f"if({column} is null, 'null', {_IN_JSON[forms[part]].format(column)})"
        for part, column in (("key", "key"), ("value", "value"), ("header", "h.value"))
    )
    named = "concat(regexp_replace(to_json(named_struct('key', h.key)), '[}]$', '')"
    return (
        f"concat(regexp_replace(to_json(named_struct('topic', topic)), '[}}]$', ''), ',\"key\":', {key}, "
        f"',\"value\":', {value}, ',\"headers\":[', array_join(transform(coalesce(headers, array()), "
        f"h -> {named}, ',\"value\":', {header}, '}}')), ','), ']}}')"
    )


class _FilesSink(Sink):
    """What the sinks for files share: the directory `path`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(["path"])
        self.path = settings.required("path").rstrip("/") or "/"

    @property
    def folder(self) -> str:
        return self.path


class JsonLinesSink(_FilesSink):
    """One JSON object a line in files `batch-<batch>-<part>.jsonl` under `path`, each record exactly once.

    The names sort in the order of the records of each topic. A file is complete when it appears, and is not changed
    from then on. `path` belongs to one checkpoint: with another one `start` raises SinkError.
    """

    name = "file"
    columns = ("topic", "key", "value", "headers")
    delivery = "exactly once"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._forms: dict[str, str] = dict.fromkeys(PARTS, "json")

    def adopt(self, source: Config) -> None:
        super().adopt(source)
        self._forms = {part: form_of(source, part) for part in PARTS}

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        storage = HadoopStorage(frame.sparkSession)
        with reaching(self.path, "debezium.sink.file.path"):
            newest = storage.newest(self.path, FILES)
            written = None if newest is None else number_of(newest)
            batches = Batches(storage, claim(storage, self.path, str(checkpoint), "debezium.sink.file.path", written))

        def write(batch: DataFrame, number: int) -> None:
            # Were the text compressed, as Hadoop's settings may say, the names would hide it.
            writer = batch.write.option("compression", "none")
            batches.write(number, writer.text)

        writer = frame.selectExpr(f"{line(self._forms)} as value").writeStream.queryName(query).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(write)).start()


class ParquetSink(_FilesSink):
    """Parquet files under `path` with every column of the rows, by Spark's own sink and its commit log.

    `(position, ordinal)` orders the records; Spark's readers see committed files only. `path` belongs to one
    checkpoint: with another one, whose first batches Spark would take for those that it knows, `start` raises
    SinkError.
    """

    name = "parquet"
    delivery = "exactly once"

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        storage = HadoopStorage(frame.sparkSession)
        with reaching(self.path, "debezium.sink.parquet.path"):
            # Spark's log of what it has written, a file for each batch; every tenth sums up those before it.
            logged = [name.removesuffix(".compact") for name in storage.sizes(f"{self.path}/_spark_metadata")]
            written = max((int(name) for name in logged if name.isdigit()), default=None)
            if written is None and storage.newest(self.path, "*.parquet") is not None:
                # Readers would no longer see these files once there is a log without them.
                written = -1
            claim(storage, self.path, str(checkpoint), "debezium.sink.parquet.path", written)
        writer = frame.select(*self.columns).writeStream.format("parquet").outputMode("append")
        writer = writer.queryName(query).trigger(**trigger).option("checkpointLocation", str(checkpoint))
        return writer.start(self.path)
