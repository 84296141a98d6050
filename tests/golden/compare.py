"""Two runs compared: topic by topic, in order, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

from tests.golden.accept import accepted, same_but_for_chunks
from tests.golden.normalise import HEARTBEATS, NOTIFICATIONS, Normaliser
from tests.golden.record import Record
from tests.golden.wire import write

WIDTH = 300


def difference(
    expected: list[Record],
    got: list[Record],
    chunk_rows: int = 0,
    heartbeats: str = HEARTBEATS,
    notifications: str = NOTIFICATIONS,
) -> str | None:
    """The first of the `differences`, or None."""
    return next(differences(expected, got, chunk_rows, heartbeats, notifications), None)


def differences(
    expected: list[Record],
    got: list[Record],
    chunk_rows: int = 0,
    heartbeats: str = HEARTBEATS,
    notifications: str = NOTIFICATIONS,
) -> Iterator[str]:
    """What differs between a recording and a run, record by record; both are normalised in place.

    Everything that does not vary is compared first, then the names of what varies, so that one record too few is
    not reported as a shift of all log positions. A table of more rows than `chunk_rows` may have its snapshot's rows
    in another order (0: none may). `heartbeats` and `notifications` name topics, as in Normaliser.
    """
    sides = [Normaliser(heartbeats, notifications), Normaliser(heartbeats, notifications)]
    wanted, found = sides[0].normalise(expected), sides[1].normalise(got)
    for topic in wanted:
        if topic not in found:
            yield f"{topic}: {len(wanted[topic])} records expected, got none; {_topics(found)}"
    for topic in found:
        if topic not in wanted:
            yield f"{topic}: no records expected, got {len(found[topic])}, the first {_short(found[topic][0])}"
    equal = True
    for topic in [topic for topic in wanted if topic in found]:
        for answer in _topic(topic, wanted[topic], found[topic], chunk_rows):
            equal = False
            yield answer
    if equal and wanted.keys() == found.keys():
        for side in sides:
            side.name()
        for topic in wanted:
            yield from _topic(topic, wanted[topic], found[topic], chunk_rows)


def _topics(found: dict[str, list[Record]]) -> str:
    return "got " + (", ".join(f"{topic} ({len(records)})" for topic, records in found.items()) or "nothing at all")


def _topic(topic: str, wanted: list[Record], found: list[Record], chunk_rows: int) -> Iterator[str]:
    different = False
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        answer = _record(one, other)
        if answer:
            if not different and chunk_rows and same_but_for_chunks(wanted, found, chunk_rows):
                return
            different = True
            yield f"{topic}[{index}]{answer} (of {len(wanted)} records; got {len(found)})"
    if len(wanted) != len(found):
        more, side = (wanted, "missing") if len(wanted) > len(found) else (found, "too many")
        at = min(len(wanted), len(found))
        yield f"{topic}: {len(wanted)} records expected, got {len(found)}; {side}: [{at}] {_short(more[at])}"


def _record(wanted: Record, got: Record) -> str | None:
    for part in ("key", "value"):
        one, other = getattr(wanted, part), getattr(got, part)
        # The texts decide, the walk only finds the place.
        if write(one) != write(other):
            answer = _walk(f".{part}", one, other, (one, other))
            if answer:
                return answer
    names, others = [name for name, _ in wanted.headers], [name for name, _ in got.headers]
    if names != others:
        return f".headers: expected {names}, got {others}"
    for (name, one), (_, other) in zip(wanted.headers, got.headers, strict=True):
        if write(one) != write(other):
            return _walk(f".headers.{name}", one, other, (one, other))
    return None


def _walk(path: str, wanted: object, got: object, whole: tuple[object, object]) -> str | None:
    """The first place below `path` where the two differ in a way that no rule of acceptance covers."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        if list(wanted) != list(got):
            return f"{path}: expected the keys {_keys(wanted)}, got {_keys(got)}"
        for key in wanted:
            answer = _walk(f"{path}.{key}", wanted[key], got[key], whole)
            if answer:
                return answer
        return None
    if isinstance(wanted, list) and isinstance(got, list):
        for index, (one, other) in enumerate(zip(wanted, got, strict=False)):
            answer = _walk(f"{path}[{index}]", one, other, whole)
            if answer:
                return answer
        if len(wanted) != len(got):
            return f"{path}: expected {len(wanted)} elements, got {len(got)}: {_cut(write(wanted))} {_cut(write(got))}"
        return None
    one, other = write(wanted), write(got)
    if one == other or accepted(path, one, other, *whole):
        return None
    return f"{path}: expected {_cut(one)}, got {_cut(other)}"


def _keys(block: dict[str, object]) -> str:
    return "[" + ", ".join(block) + "]"


def _short(record: Record) -> str:
    return _cut(f"{write(record.key)} -> {write(record.value)}")


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}… ({len(text)} characters)"
