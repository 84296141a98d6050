"""Ownership of an output directory by a single checkpoint, which never goes back to earlier batches. Driver.

Each checkpoint numbers batches from 0. Another checkpoint, or an earlier state of the same checkpoint, would use
numbers a second time. Spark's file sinks skip a batch with a known number. The directory therefore has the id that
Spark stores in the checkpoint, and all other checkpoints are refused.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass

from tailrace.errors import SinkError
from tailrace.sinks.storage import Storage

CONTROL = "_tailrace"
"""Folder for control files in an output directory. Spark and Hive ignore names that begin with an underscore."""

_OWNER = "owner-"


@dataclass(frozen=True, slots=True)
class Claim:
    """An output directory `path` and the path and id (`query`) of the checkpoint that writes to it."""

    path: str
    checkpoint: str
    query: str

    @property
    def control(self) -> str:
        return f"{self.path}/{CONTROL}"

    def held(self, names: Collection[str]) -> bool:
        """Return True if the directory still belongs to this checkpoint. `names` are the files in the folder
        `control`."""
        return {name for name in names if name.startswith(_OWNER)} == {_OWNER + self.query}

    def lost(self) -> SinkError:
        """Return the error for a directory that no longer belongs to this checkpoint."""
        return SinkError(
            f"Another pipeline has begun to write to {self.path} as well.", "Give each pipeline a path of its own."
        )


def claim(storage: Storage, path: str, checkpoint: str, option: str, written: int | None) -> Claim:
    """Claim a directory for a checkpoint before its query starts. A new checkpoint gets its id.

    `written` is the number of the newest batch in the directory: None if the directory has no records, -1 if the number
    is unknown. Raises SinkError, which names `option`, if another checkpoint wrote the records or if this checkpoint
    has not planned the batch.
    """
    query, planned = identity(storage, checkpoint), _planned(storage, checkpoint)
    wanted = Claim(path, checkpoint, query)
    remedy = (
        f"Name another path in {option}, or move {path} away with all its contents if no other pipeline writes there."
    )
    others = []
    for name in storage.sizes(wanted.control, f"{_OWNER}*"):
        other = name.removeprefix(_OWNER)
        if other != query:
            others.append((other, storage.read(f"{wanted.control}/{name}") or ""))
    for other, place in others:
        if written is not None or _stored(storage, place) == other:
            raise SinkError(f"{path} holds what another checkpoint has written: {place or other}.", remedy)
    if not storage.sizes(wanted.control, _OWNER + query) and written is not None:
        raise SinkError(f"{path} holds records that the checkpoint {checkpoint} has not written.", remedy)
    if written is not None and written > planned:
        raise SinkError(
            f"{path} holds batch {written}, and the checkpoint {checkpoint} is at batch {planned}: it was put back to "
            "an earlier state.",
            remedy,
        )
    if others:
        # The other claims never delivered a record, and their checkpoints are gone.
        storage.delete(wanted.control)
    storage.create(f"{wanted.control}/{_OWNER}{query}", checkpoint)
    if not wanted.held(storage.sizes(wanted.control, f"{_OWNER}*")):
        storage.delete(f"{wanted.control}/{_OWNER}{query}")
        raise wanted.lost()
    return wanted


def _stored(storage: Storage, checkpoint: str) -> str | None:
    """Return the id that Spark stores in a checkpoint; None if there is none."""
    text = storage.read(f"{checkpoint}/metadata") if checkpoint else None
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return str(found["id"]) if isinstance(found, dict) and "id" in found else None


def identity(storage: Storage, checkpoint: str) -> str:
    """Return the id of a checkpoint. If it has none before the query's start, write a new id in Spark's form."""
    if _stored(storage, checkpoint) is None:
        storage.create(f"{checkpoint}/metadata", json.dumps({"id": str(uuid.uuid4())}))
    query = _stored(storage, checkpoint)
    if query is None:
        raise SinkError(
            f"The checkpoint {checkpoint} has no id: its file metadata is damaged.", "Start with a new checkpoint."
        )
    return query


def _planned(storage: Storage, checkpoint: str) -> int:
    """Return the number of the newest batch that a checkpoint has planned; -1 if there is none."""
    return max((int(name) for name in storage.sizes(f"{checkpoint}/offsets") if name.isdigit()), default=-1)
