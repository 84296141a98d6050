"""RawCursor: a server's cursor that returns raw bytes. Planner and worker.

PyMongo's raw batches copy every document once more and do not return the resume token of a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.errors import DecodeError
from tailrace.kernels.buffers import readonly

if TYPE_CHECKING:
    from bson.codec_options import CodecOptions
    from pymongo import MongoClient
    from pymongo.client_session import ClientSession

BATCH = 10_000
"""Most documents in an answer about the log; the server also ends a batch at 16 MB."""
_CURSOR = ("cursor", "operationTime")
_BATCH = ("firstBatch", "nextBatch", "id", "postBatchResumeToken", "ns", "atClusterTime")


def concern(after: int) -> dict[str, Any]:
    """Return the read concern for majority data that includes everything up to the timestamp `after`; none for 0.

    Without it a read may return documents that an election rolls back later, which the log does not record.
    """
    from bson.timestamp import Timestamp

    if not after:
        return {}
    at = Timestamp(after >> 32, after & 0xFFFFFFFF)
    return {"readConcern": {"level": "majority", "afterClusterTime": at}}


def concern_at(time: int) -> dict[str, Any]:
    """Return the read concern for majority data at exactly the timestamp `time`."""
    from bson.timestamp import Timestamp

    return {"readConcern": {"level": "snapshot", "atClusterTime": Timestamp(time >> 32, time & 0xFFFFFFFF)}}


@dataclass(frozen=True, slots=True)
class CursorBatch:
    """An answer of a cursor: `data` holds all of it, `starts` the places of its documents.

    `token` is the resume token after the batch, a BSON document; None if the server gives none. `at` is the server's
    operation time of the answer, a BSON timestamp in 64 bits; `seen_at` is the time of a read with `concern_at`. Both
    are 0 if unknown.
    """

    data: Bytes
    starts: Int64s
    token: bytes | None
    at: int
    seen_at: int = 0


def read_answer(data: Bytes) -> tuple[CursorBatch, int, str]:
    """Return an answer to a command that opens or reads a cursor, the cursor's id (0 at its end), and its namespace.

    Raises DecodeError.
    """
    outer, outer_kinds = fields.locate(data, np.zeros(1, np.int64), _CURSOR)
    if outer_kinds[0, 0] != fields.DOCUMENT:
        raise DecodeError("An answer of the server has no cursor.")
    inner, kinds = fields.locate(data, outer[0], _BATCH)
    batch = 0 if inner[0, 0] >= 0 else 1
    if kinds[batch, 0] != fields.ARRAY or kinds[2, 0] not in (fields.INT64, fields.INT32):
        raise DecodeError("A cursor of the server has no batch or no id.")
    starts, types = fields.elements(data, int(inner[batch, 0]))
    if (types != fields.DOCUMENT).any():
        raise DecodeError("A batch of the server holds something else than documents.", int(inner[batch, 0]))
    token = None
    if kinds[3, 0] == fields.DOCUMENT:
        at = int(inner[3, 0])
        token = data[at : at + int(fields.load(data, at))].tobytes()
    namespace = fields.text(data, int(inner[4, 0])) if kinds[4, 0] == fields.STRING else ""
    at_time = int(fields.int64s(data, outer[1], outer_kinds[1])[0])
    seen_at = int(fields.int64s(data, inner[5], kinds[5])[0])
    return (
        CursorBatch(data, starts, token, at_time, seen_at),
        int(fields.int64s(data, inner[2], kinds[2])[0]),
        namespace,
    )


@functools.cache
def _raw_documents() -> CodecOptions[Any]:
    """Return the options that leave documents as bytes."""
    from bson.codec_options import CodecOptions
    from bson.raw_bson import RawBSONDocument

    return CodecOptions(document_class=RawBSONDocument)


class RawCursor:
    """A cursor that `command` opens in `database`. One thread at a time may call `next`, which raises PyMongo's errors.

    `alive` is False once the server has closed the cursor.
    """

    def __init__(
        self, client: MongoClient[Any], database: str, command: Mapping[str, Any], *, await_ms: int | None = None
    ) -> None:
        self._client = client
        self._database = database
        self._command = command
        self._await_ms = await_ms
        self._session: ClientSession | None = None
        self._id = 0
        self._collection = ""
        self._batch_size = int(command.get("batchSize") or command.get("cursor", {}).get("batchSize") or 0)
        self.alive = True

    def next(self) -> CursorBatch:
        """Return the next batch, which may be empty. `alive` becomes False at the end."""
        from bson.int64 import Int64

        if self._session is None:
            self._session = self._client.start_session(causal_consistency=False)
            return self._take(self._run(self._command))
        more: dict[str, Any] = {"getMore": Int64(self._id), "collection": self._collection}
        if self._batch_size:
            more["batchSize"] = self._batch_size
        if self._await_ms is not None:
            more["maxTimeMS"] = self._await_ms
        return self._take(self._run(more))

    def _run(self, command: Mapping[str, Any]) -> bytes:
        answer: Any = self._client[self._database].command(
            dict(command), codec_options=_raw_documents(), session=self._session
        )
        return bytes(answer.raw)

    def _take(self, answer: bytes) -> CursorBatch:
        found, self._id, namespace = read_answer(readonly(np.frombuffer(answer, np.uint8)))
        self.alive = self._id != 0
        self._collection = self._collection or namespace.partition(".")[2]
        return found

    def close(self) -> None:
        """Close the cursor on the server. Errors are ignored."""
        from pymongo.errors import PyMongoError

        if self._session is None:
            return
        try:
            if self._id:
                from bson.int64 import Int64

                command = {"killCursors": self._collection, "cursors": [Int64(self._id)]}
                self._client[self._database].command(command, session=self._session)
            self._session.end_session()
        except PyMongoError:
            pass
        self._id, self._session, self.alive = 0, None, False
