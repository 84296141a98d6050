"""The sinks `file` (JSON lines, ordered by file name) and `parquet`, which write each record exactly once. Driver."""

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


# --- files that appear once and complete ------------------------------------------------------------------------------

FILES = "batch-[0-9]*-*.jsonl"
"""Pattern of the file names of batches."""

_PART = re.compile(r"part-(\d+)-.*?(?:-c(\d+))?\.txt")
_LIST, _STAGING = "batch-", "staging-"
_NUMBER = re.compile(rf"(?:{_LIST}|{_STAGING})(\d+)")


def number_of(name: str) -> int:
    """Return the batch number in a file name `batch-<batch>-<part>.jsonl`."""
    return int(name.split("-")[1])


def ordered(names: Iterable[str]) -> list[str]:
    """Return the names of a batch's part files in the order of the records: by task, then by file of the task.

    Other names are left out. Raises SinkError for a part with an unknown form of name, whose records would be lost.
    """
    found = []
    for name in names:
        part = _PART.fullmatch(name)
        if part is not None:
            found.append((int(part[1]), int(part[2] or 0), name))
        elif name.startswith("part-"):
            raise SinkError(f"Spark has named a part of a batch {name}, from which its order cannot be read.")
    return [name for _, _, name in sorted(found)]


class Batches:
    """The batches of a directory. `write` raises SinkError rather than replace an existing file."""

    def __init__(self, storage: Storage, claim: Claim) -> None:
        self._storage = storage
        self._claim = claim

    def write(self, number: int, fill: Callable[[str], None]) -> None:
        """Add batch `number`. `fill` writes the batch's parts, with Spark's names, into the folder passed to it.

        A batch that was published completely before is left unchanged.
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
        # Spark begins batch `number` only after it has committed the batches before.
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
        """Publish the rest of a batch that was listed before a crash. Its parts come from the same plan."""
        text = self._storage.read(f"{self._claim.control}/{_LIST}{number:012d}.json")
        described = json.loads(text or "{}")
        if described.get("plan") != self._plan(number):
            raise self._overtaken(number, number)
        self._publish(number, described["staging"], described["files"])
        self._storage.delete(f"{self._claim.control}/{described['staging']}")

    def _publish(self, number: int, staging: str, names: dict[str, str]) -> None:
        """Rename the parts that are still in the staging folder; the others were renamed before a crash."""
        storage, folder = self._storage, f"{self._claim.control}/{staging}"
        aside = storage.sizes(folder)
        for part, name in names.items():
            if part not in aside or storage.rename(f"{folder}/{part}", f"{self._claim.path}/{name}"):
                continue
            there = storage.sizes(self._claim.path, name)
            # An object store renames by copying, and a crash may leave both files. Before the list was written, no
            # file had the new name.
            if there.get(name) != aside[part]:
                raise self._taken(number, name) if there else self._refused(number, name)
            storage.delete(f"{folder}/{part}")

    def _plan(self, number: int) -> str:
        """Return a hash of the batch's entry in Spark's offset log, which differs between plans of a batch."""
        entry = self._storage.read(f"{self._claim.checkpoint}/offsets/{number}")
        return hashlib.sha256((entry or "").encode()).hexdigest()

    def _overtaken(self, number: int, listed: int) -> SinkError:
        return SinkError(
            f"{self._claim.path} already holds batch {listed}, and batch {number} was to be written: another run of "
            f"the checkpoint {self._claim.checkpoint} is alive, or the checkpoint was put back to an earlier state.",
            "Let only one pipeline run; if the checkpoint was put back, name another path.",
        )

    def _taken(self, number: int, name: str) -> SinkError:
        return SinkError(
            f"{self._claim.path}/{name} already exists and was not written by this run of batch {number}.",
            "Let only one pipeline run; move the file away if it belongs to no pipeline, or name another path.",
        )

    def _refused(self, number: int, name: str) -> SinkError:
        return SinkError(
            f"The file system has refused to rename a part of batch {number} to {self._claim.path}/{name}.",
            "Check the rights there and start again: the batch continues where it stopped.",
        )


def _batch(name: str) -> int:
    """Return the batch number in the name of a list or a staging folder; -1 for other names."""
    found = _NUMBER.match(name)
    return int(found[1]) if found else -1


# --- the sink ---------------------------------------------------------------------------------------------------------


# JSON is inserted unchanged. to_json escapes a text as the element of an array, whose brackets are then cut off.
_IN_JSON = {
    "json": "cast({} as string)",
    "text": "regexp_extract(to_json(array(cast({} as string))), '(?s)^.(.*).$', 1)",
    # Spark breaks base64 into lines.
    "bytes": "concat('\"', replace(replace(base64({}), char(13)), char(10)), '\"')",
}


def line(forms: Mapping[str, str]) -> str:
    """Return the Spark SQL expression that makes a line of JSON from a record.

    The line is `{"topic":…,"key":…,"value":…,"headers":[{"key":…,"value":…}]}`. `forms` holds the result of
    `config.formats.form_of` for `key`, `value` and `header`. JSON stays JSON, texts become strings, bytes base64.
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
    """A sink that writes files to the directory `path`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(["path"])
        self.path = settings.required("path").rstrip("/") or "/"

    @property
    def folder(self) -> str:
        return self.path


class JsonLinesSink(_FilesSink):
    """A sink that writes one JSON object per line to files `batch-<batch>-<part>.jsonl` under `path`.

    The names sort in the order of each topic's records. A file is complete when it appears and never changes. `path`
    belongs to one checkpoint: `start` raises SinkError with another one.
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
            # Hadoop's settings may ask for compression, which the files' names would not show.
            writer = batch.write.option("compression", "none")
            batches.write(number, writer.text)

        writer = frame.selectExpr(f"{line(self._forms)} as value").writeStream.queryName(query).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(write)).start()


class ParquetSink(_FilesSink):
    """A sink that writes all columns of the rows to Parquet files under `path`, by Spark's own sink and commit log.

    `(position, ordinal)` orders the records; Spark's readers see committed files only. `path` belongs to one
    checkpoint: `start` raises SinkError with another one, whose first batches Spark would skip as known.
    """

    name = "parquet"
    delivery = "exactly once"

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        storage = HadoopStorage(frame.sparkSession)
        with reaching(self.path, "debezium.sink.parquet.path"):
            # Spark's log of written files: one entry per batch; every tenth entry contains the earlier ones.
            logged = [name.removesuffix(".compact") for name in storage.sizes(f"{self.path}/_spark_metadata")]
            written = max((int(name) for name in logged if name.isdigit()), default=None)
            if written is None and storage.newest(self.path, "*.parquet") is not None:
                # Once a log exists, readers would no longer see files that it does not name.
                written = -1
            claim(storage, self.path, str(checkpoint), "debezium.sink.parquet.path", written)
        writer = frame.select(*self.columns).writeStream.format("parquet").outputMode("append")
        writer = writer.queryName(query).trigger(**trigger).option("checkpointLocation", str(checkpoint))
        return writer.start(self.path)
