"""Documents are assembled from literals and fragments, each by the index of its own kind."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from tailrace.kernels.buffers import ExceedsArrow
from tailrace.kernels.programs import CHANGE, KINDS, MARKER, NO_PROGRAM, RECORD, TRANSACTION, Fragment, Programs


def fragment(*texts: str, quoted: bool = False) -> Fragment:
    """Return the texts as a column of fragments."""
    data = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return Fragment(np.frombuffer(b"".join(data) + b"\0", np.uint8)[:-1].copy(), offsets, quoted)


def documents(programs: Programs, of: list[int], index: npt.NDArray[np.int32]) -> list[str]:
    data, offsets = programs.run(np.array(of, np.uint16), index)
    found = [data[low:high].tobytes().decode() for low, high in pairwise(offsets)]
    assert programs.sizes(np.array(of, np.uint16), index).tolist() == [len(one.encode()) for one in found]
    return found


def index_of(**kinds: list[int]) -> npt.NDArray[np.int32]:
    found = np.zeros((KINDS, len(next(iter(kinds.values())))), np.int32)
    for name, places in kinds.items():
        found[{"change": CHANGE, "transaction": TRANSACTION, "marker": MARKER, "record": RECORD}[name]] = places
    return found


def test_each_fragment_is_taken_by_the_index_of_its_kind() -> None:
    programs = Programs()
    number = programs.begin()
    programs.literal(b'{"id":')
    programs.fragment(fragment("1", "22", "é"), CHANGE)
    programs.literal(b',"tx":')
    programs.fragment(fragment("700", "701"), TRANSACTION)
    programs.literal(b"}")
    programs.end()
    assert documents(programs, [number] * 4, index_of(change=[2, 0, 1, 0], transaction=[0, 1, 1, 0])) == [
        '{"id":é,"tx":700}',
        '{"id":1,"tx":701}',
        '{"id":22,"tx":701}',
        '{"id":1,"tx":700}',
    ]


def test_a_fragment_may_want_quotes_around_it() -> None:
    programs = Programs()
    number = programs.begin()
    programs.literal(b"[")
    programs.fragment(fragment("a", "", quoted=True), CHANGE)
    programs.literal(b",")
    programs.fragment(fragment("b", "c", quoted=True), CHANGE)
    programs.literal(b"]")
    programs.end()
    assert documents(programs, [number] * 2, index_of(change=[0, 1])) == ['["a","b"]', '["","c"]']


def test_rows_name_their_programs_and_may_have_none() -> None:
    programs = Programs()
    numbers = []
    for text in (b"one", b"", b"three"):
        numbers.append(programs.begin())
        programs.literal(text)
        programs.end()
    assert numbers == [0, 1, 2]
    assert documents(programs, [2, NO_PROGRAM, 0, 1, 2], index_of(change=[0] * 5)) == ["three", "", "one", "", "three"]


def test_the_same_fragment_may_stand_in_several_programs() -> None:
    programs, shared = Programs(), fragment("x", "y")
    for begin in (b"<", b"("):
        programs.begin()
        programs.literal(begin)
        programs.fragment(shared, RECORD)
        programs.fragment(shared, MARKER)
        programs.end()
    assert documents(programs, [0, 1], index_of(record=[0, 1], marker=[1, 1])) == ["<xy", "(yy"]


def test_no_rows_are_no_documents() -> None:
    programs = Programs()
    programs.begin()
    programs.literal(b"x")
    programs.end()
    data, offsets = programs.run(np.zeros(0, np.uint16), np.zeros((KINDS, 0), np.int32))
    assert (len(data), offsets.tolist()) == (0, [0])


def test_more_than_arrow_holds_is_an_error_before_anything_is_written() -> None:
    programs = Programs()
    number = programs.begin()
    programs.literal(b"x" * 70_000)
    programs.end()
    count = (1 << 31) // 70_000 + 1
    program, index = np.full(count, number, np.uint16), np.zeros((KINDS, count), np.int32)
    for call in (programs.run, programs.sizes):
        with pytest.raises(ExceedsArrow, match="exceed 2 GiB"):
            call(program, index)
