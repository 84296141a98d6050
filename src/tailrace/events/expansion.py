"""Expands changes into records: one for an insert, two for a delete with a tombstone, three for a key change.

A key change becomes a delete of the old key, its tombstone, and a create of the new key. The first two name the new key
in a header, the last names the old key. `skipped.operations` applies to these records too, whatever change they come
from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tailrace.columns import ChangeBatch
from tailrace.events.event_settings import EventSettings

Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]
TOMBSTONE = 0
NO_IMAGE, AFTER, BEFORE = 0, 1, 2
"""The image from which a record's key, or the key in its header, is taken."""


@dataclass(slots=True)
class Records:
    """The records of a batch, in order; one element per record.

    `change` is the index of the change. `op` is the ASCII code of the envelope's op, TOMBSTONE for a tombstone.
    `before` and `after`: whether the envelope shows that image. `key` is the image that gives the record's key;
    `header` is the image that gives the key in its newkey (AFTER) or oldkey (BEFORE) header.
    """

    change: npt.NDArray[np.int32]
    op: Codes
    before: Flags
    after: Flags
    key: Codes
    header: Codes

    def __len__(self) -> int:
        return len(self.change)


def expand(batch: ChangeBatch, key_changed: Flags, has_key: bool | Flags, settings: EventSettings) -> Records:
    """Return the records of `batch`; `key_changed` marks the updates whose new key differs from the old one.

    `has_key` says, for all changes or for each, whether the records of its table have a key.
    """
    op = batch.op
    count = len(op)
    kept = np.ones(count, np.bool_)
    skipped = settings.skipped_operations
    for letter in skipped & frozenset("cud"):
        # An update that changes the key is a delete and a create, so its own letter does not count, unless the
        # connector skips changes, not records.
        kept &= (op != ord(letter)) | (key_changed & (not settings.skips_changes))
    if settings.drops_truncates:
        kept &= op != ord("t")
    has_before = np.zeros(count, np.bool_)
    if batch.before is not None:
        has_before[:] = True if batch.before.present is None else batch.before.present
    tombstones = int(settings.tombstones_on_delete)
    counts = np.ones(count, np.int32)
    counts[op == ord("d")] = 1 + tombstones
    parts = frozenset[str]() if settings.skips_changes else skipped
    deleted, created = ("d" not in parts) * (1 + tombstones), int("c" not in parts)
    counts[key_changed] = deleted + created
    counts[~kept] = 0
    change = np.repeat(np.arange(count, dtype=np.int32), counts)
    starts = np.cumsum(counts) - counts
    nth = np.arange(len(change), dtype=np.int32) - starts[change]
    shown = op[change]
    changed = key_changed[change]
    last = changed & (nth == deleted)
    deletes = (shown == ord("d")) | (changed & ~last)
    tomb = deletes & (nth == 1)
    shown = np.where(deletes, ord("d"), shown)
    shown = np.where(last, ord("c"), shown)
    shown = np.where(tomb, TOMBSTONE, shown).astype(np.uint8)
    truncates = shown == ord("t")
    before = has_before[change] & ((shown == ord("d")) | (shown == ord("u")))
    after = (shown != ord("d")) & (shown != TOMBSTONE) & ~truncates
    key = np.where(deletes, BEFORE, AFTER).astype(np.uint8)
    key[truncates] = NO_IMAGE
    if isinstance(has_key, np.ndarray):
        key[~has_key[change]] = NO_IMAGE
    elif not has_key:
        key[:] = NO_IMAGE
    header = np.where(changed, np.where(last, BEFORE, AFTER), NO_IMAGE).astype(np.uint8)
    return Records(change, shown, before, after, key, header)
