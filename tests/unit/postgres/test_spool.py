"""The spool on disk: few files, whole pieces, an error that names the full disk."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.postgres.log.endings import classify, exhausted
from tailrace.connectors.postgres.log.indexed_run import IndexedRun
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.errors import SpoolFailed
from tailrace.log import spool as spill
from tailrace.log.spool import Spool
from tailrace.process.runtime import Threads
from tests.property.logs import Change, index, rows, rows_of

BEFORE = LogPosition(idle_lsn=1000, at_us=1)


def runs(count: int) -> tuple[list[IndexedRun], list[Any]]:
    """Return indexed runs of one transaction each, and all of their rows."""
    transactions: list[list[Change]] = [[("I", 10, number % 5)] for number in range(count)]
    # a transaction is a Begin, a change and a Commit; the first one also has a Relation message
    cuts = [4 + 3 * number for number in range(count)]
    return index(transactions, cuts, BEFORE, False), rows(index(transactions, [], BEFORE, False))


def held() -> int:
    """Return the number of this process's open files in the directory for temporary files."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            names.append(str(link.readlink()))
        except FileNotFoundError:
            continue
    return sum(name.startswith(tempfile.gettempdir()) and name.endswith("(deleted)") for name in names)


def test_many_chunks_on_disk_hold_few_files_and_give_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made, expected = runs(200)
    before = held()
    spool = Spool(BEFORE, 1, 1 << 20)
    monkeypatch.setattr(spool._spill, "_file_bytes", sum(run.data.nbytes for run in made) // 3)
    for run in made:
        spool.put(run)
    assert 2 <= held() - before <= 4
    end = spool.plan(BEFORE, 1 << 30, 1 << 30)
    assert rows_of(spool.take(BEFORE, end)) == expected
    half = spool.plan(BEFORE, 100, 1 << 30)
    spool.release(half)
    assert rows_of(spool.take(half, end)) == expected[100:]
    assert held() - before <= 3
    spool.release(end)
    assert held() == before
    assert spool.size == 0


def test_more_spilled_runs_than_a_process_may_open_files_are_in_one() -> None:
    made, expected = runs(1200)
    before = held()
    spool = Spool(BEFORE, 1, 1 << 20)
    for run in made:
        spool.put(run)
    assert sum(one.place is not None for one in spool._held) > 1100
    assert held() - before == 1
    end = spool.plan(BEFORE, 1 << 30, 1 << 30)
    assert rows_of(spool.take(BEFORE, end)) == expected
    spool.release(end)
    assert held() == before


def test_a_part_of_a_chunk_is_read_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    one = index([[("I", 10, 1)], [("I", 10, number % 5) for number in range(50)]], [4], BEFORE, False)
    expected = rows(one)
    read: list[int] = []
    original = spill.Spill.read
    monkeypatch.setattr(
        spill.Spill,
        "read",
        lambda self, place, first, last: read.append(last - first) or original(self, place, first, last),
    )
    spool = Spool(BEFORE, 1, 1 << 20)
    for run in one:
        spool.put(run)
    position, found = BEFORE, []
    while (end := spool.plan(position, 7, 1 << 30)) != position:
        found += rows_of(spool.take(position, end))
        position = end
    assert found == expected
    assert len(read) > 5
    assert sum(read) <= one[1].data.nbytes


def test_a_full_disk_keeps_nothing_of_a_chunk_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made, expected = runs(10)
    spool = Spool(BEFORE, 1, 1 << 20)
    for run in made[:5]:
        spool.put(run)
    size, files = spool.size, held()
    pwrite, written = os.pwrite, []

    def full(descriptor: int, data: Any, start: int) -> int:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(descriptor)
        return pwrite(descriptor, data[:7], start)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(SpoolFailed) as failed:
        spool.put(made[5])
    size_text = f"{made[5].data.nbytes / (1 << 20):,.1f} MB were to be written, "
    for word in (tempfile.gettempdir(), "No space left on device", size_text, "max.queue.size.in.bytes", "TMPDIR"):
        assert word in str(failed.value)
    assert re.search(r" [\d,]+\.\d MB are free\. .*Nothing is lost: ", str(failed.value))
    assert (spool.size, held()) == (size, files)
    assert os.fstat(written[0]).st_size == sum(run.data.nbytes for run in made[1:5])
    monkeypatch.setattr(os, "pwrite", pwrite)
    for run in made[5:]:
        spool.put(run)
    assert rows_of(spool.take(BEFORE, spool.plan(BEFORE, 1 << 30, 1 << 30))) == expected
    # another session may succeed; after the last try the query ends with this message
    assert classify(failed.value, "slot") is None
    assert exhausted(failed.value, "slot") is failed.value


def test_a_spool_that_the_disk_refuses_is_full_until_something_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    made, expected = runs(10)
    spool = Spool(BEFORE, 1, 1 << 20)
    for run in made[:5]:
        spool.put(run)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(SpoolFailed):
            spool.put(made[5])
    assert spool.full
    with spool.requiring(spool.plan(BEFORE, 5, 1 << 30)):
        assert spool.full
    with spool.requiring(LogPosition(1 << 40, 1 << 40)):
        # nothing is released before the rest has arrived
        assert spool.is_required
        assert not spool.full
    spool.release(BEFORE)
    assert spool.full
    position = spool.plan(BEFORE, 1, 1 << 30)
    spool.release(position)
    assert not spool.full
    for run in made[5:]:
        spool.put(run)
    assert rows_of(spool.take(position, spool.plan(position, 1 << 30, 1 << 30))) == expected[1:]


def test_a_directory_that_cannot_be_written_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = runs(2)
    spool = Spool(BEFORE, 1, 1 << 20)
    spool.put(made[0])
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(SpoolFailed, match="/nowhere"):
        spool.put(made[1])
    assert spool.size == made[0].data.nbytes


def test_the_end_of_a_transaction_is_kept_until_it_is_delivered() -> None:
    # a run ends between the last row and the commit, and the batch is cut there
    parts = index([[("I", 10, 1), ("I", 10, 2)]], [4], BEFORE, False)
    spool = Spool(BEFORE, 1 << 20, 0)
    spool.put(parts[0])
    inside = spool.plan(BEFORE, 1 << 30, 1 << 30, cut=True)
    assert inside.consumed == 2
    spool.put(parts[1])
    spool.release(inside)
    end = spool.plan(inside, 1 << 30, 1 << 30)
    assert (end.commit_lsn, end.consumed) == (inside.commit_lsn, None)
    assert end.safe_lsn > inside.safe_lsn
    assert spool.take(inside, end) == []


def test_a_batch_that_needs_few_bytes_ends_with_a_transaction() -> None:
    parts = index([[("I", 10, 1)], [("I", 10, 2)], [("I", 10, 3)] * 5], [], BEFORE, False)
    spool = Spool(BEFORE, 1 << 20, 0)
    for part in parts:
        spool.put(part)
    first = spool.plan(BEFORE, 1, 1 << 30)
    few = sum(part.size(0, 1) for part in parts[:1])
    assert spool.plan(BEFORE, 1 << 30, few, whole=True) == first
    second = spool.plan(first, 1 << 30, few, whole=True)
    assert len(spool.take(first, second)) <= 1
    # the third transaction is larger: it is left alone, where a limit would cut it
    assert spool.plan(second, 1 << 30, few, whole=True) == second
    assert spool.plan(second, 1 << 30, few).consumed == 1


@pytest.mark.parametrize("max_rows", [1, 2, 1 << 30])
def test_a_batch_does_not_pass_where_it_must_end(max_rows: int) -> None:
    parts = index([[("I", 10, 1)], [("I", 10, 2)] * 5], [], BEFORE, False)
    spool = Spool(BEFORE, 1 << 20, 0)
    spool.put(parts[0])
    upto = LogPosition(int(parts[0].end_commit[0]))
    first = spool.plan(BEFORE, max_rows, 1 << 30, upto)
    assert first.commit_lsn == upto.commit_lsn
    assert spool.plan(first, max_rows, 1 << 30, upto) == first


def test_the_spool_counts_transactions_and_keeps_the_size_of_the_largest() -> None:
    sizes = (2, 9, 1, 4)
    transactions: list[list[Change]] = [[("I", 10, 1)] * size for size in sizes]
    whole = index(transactions, [], BEFORE, False)[0]
    most = max(whole.size(sum(sizes[:at]), sum(sizes[: at + 1])) for at in range(len(sizes)))
    # whole, cut between messages of a transaction, and each message for itself
    for cuts in ([], [5, 9, 14], list(range(1, 24))):
        spool = Spool(BEFORE, 1 << 20, 1 << 20)
        for run in index(transactions, cuts, BEFORE, False):
            spool.put(run)
        assert spool.transactions == len(sizes)
        # bytes between two rows that are no rows, such as a commit, belong to none
        assert spool.transaction_bytes is not None
        assert 0 <= most - spool.transaction_bytes < most / 2 if cuts else spool.transaction_bytes == most


def test_runs_that_are_sent_again_count_once() -> None:
    made, _ = runs(3)
    spool = Spool(BEFORE, 1 << 20, 1 << 20)
    for run in (*made, *made):
        spool.put(run)
    assert spool.transactions == 3


def test_the_spool_knows_when_the_changes_of_a_batch_were_read() -> None:
    class Hours(Threads):
        """Each look at the clock is an hour later."""

        now_s = 0

        def time_ns(self) -> int:
            self.now_s += 3600
            return self.now_s * 10**9

    made, _ = runs(4)
    # kept apart, and joined
    for limit in (1, 1 << 20):
        spool = Spool(BEFORE, limit, 1 << 20, Hours())
        assert spool.planned_read_s is None
        for run in made[:2]:
            spool.put(run)
        first = spool.plan(BEFORE, 1 << 30, 1 << 30)
        assert spool.planned_read_s == 2 * 3600
        for run in made[2:]:
            spool.put(run)
        spool.plan(first, 1 << 30, 1 << 30)
        assert spool.planned_read_s == 4 * 3600
    spool = Spool(BEFORE, 1, 1 << 20, Hours())
    for run in made:
        spool.put(run)
    spool.plan(BEFORE, 2, 1 << 30)
    assert spool.planned_read_s == 2 * 3600


def test_many_small_rows_fill_the_spool_before_their_bytes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "MOST_ROWS", 5)
    made, expected = runs(12)
    # apart, on disk, and joined
    for limit in (1, 1 << 20):
        spool, at, found = Spool(BEFORE, limit, 1 << 30), BEFORE, []
        left = list(made)
        while left:
            while left and not spool.full:
                spool.put(left.pop(0))
            assert spool.full == bool(left)
            end = spool.plan(at, 2, 1 << 30)
            found += spool.take(at, end)
            spool.release(end)
            at = end
            # runs that were joined are released together
            assert limit > 1 or not spool.full
        found += spool.take(at, spool.plan(at, 1 << 30, 1 << 30))
        assert rows_of(found) == expected
