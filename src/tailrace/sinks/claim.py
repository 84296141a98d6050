"""Claim: whose a directory of records is. One checkpoint writes to it, and it never goes backwards there. Driver.

Batches are counted from 0 by each checkpoint. Another checkpoint, or an earlier state of the same one, would give
numbers a second time: Spark's own file sinks then leave the batch out, since they know its number. So the directory
names the checkpoint that writes to it, by the id that Spark keeps in the checkpoint, and no other one is let in.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass

from tailrace.errors import SinkError
from tailrace.sinks.storage import Storage

CONTROL = "_tailrace"
"""The folder, in a directory of records, of what is no records. Spark and Hive pass over names with an underscore."""

_OWNER = "owner-"


@dataclass(frozen=True, slots=True)
class Claim:
    """A directory at `path` that the checkpoint at `checkpoint` writes to; `query` is the id of the latter."""

    path: str
    checkpoint: str
    query: str

    @property
    def control(self) -> str:
        return f"{self.path}/{CONTROL}"

    def held(self, names: Collection[str]) -> bool:
        """Whether the directory is still this checkpoint's, by the names in its folder `control`."""
        return {name for name in names if name.startswith(_OWNER)} == {_OWNER + self.query}

    def lost(self) -> SinkError:
        """What is wrong when it is not."""
        return SinkError(
            f"Another pipeline has begun to write to {self.path} as well.", "Give each pipeline a path of its own."
        )


def claim(storage: Storage, path: str, checkpoint: str, option: str, written: int | None) -> Claim:
    """Take a directory for a checkpoint before its query starts; a new checkpoint gets its id here.

    `written` is the number of the newest batch whose records are in the directory, None where there are none, -1
    where it is not known. Raises SinkError, which names `option`, when they are not this checkpoint's, or when it has
    not planned that batch.
    """
    query, planned = identity(storage, checkpoint), _planned(storage, checkpoint)
    wanted = Claim(path, checkpoint, query)
    remedy = (
        f"Name another path in {option}, or move {path} away, with all that is in it, when no other pipeline writes "
        "there."
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
        # Nothing of them was ever delivered, and their checkpoint is gone.
        storage.delete(wanted.control)
    storage.create(f"{wanted.control}/{_OWNER}{query}", checkpoint)
    if not wanted.held(storage.sizes(wanted.control, f"{_OWNER}*")):
        storage.delete(f"{wanted.control}/{_OWNER}{query}")
        raise wanted.lost()
    return wanted


def _stored(storage: Storage, checkpoint: str) -> str | None:
    """The id that Spark keeps in a checkpoint; None where there is none."""
    text = storage.read(f"{checkpoint}/metadata") if checkpoint else None
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return str(found["id"]) if isinstance(found, dict) and "id" in found else None


def identity(storage: Storage, checkpoint: str) -> str:
    """The id of a checkpoint. A new one gets it here, as Spark would give it, so that it is known before the start."""
    if _stored(storage, checkpoint) is None:
        storage.create(f"{checkpoint}/metadata", json.dumps({"id": str(uuid.uuid4())}))
    query = _stored(storage, checkpoint)
    if query is None:
        raise SinkError(
            f"The checkpoint {checkpoint} has no id: its file metadata is damaged.", "Start with a new checkpoint."
        )
    return query


def _planned(storage: Storage, checkpoint: str) -> int:
    """The newest batch that a checkpoint has planned; -1 when there is none."""
    return max((int(name) for name in storage.sizes(f"{checkpoint}/offsets") if name.isdigit()), default=-1)
