"""Batches of files survive crashes at every step: each record once, in order, in files that never change."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tailrace.errors import SinkError
from tailrace.sinks.claim import CONTROL, Claim, claim
from tailrace.sinks.files import Batches, number_of, ordered

PATH, CHECKPOINT, OPTION = "/out", "/checkpoint", "debezium.sink.file.path"


class Crash(Exception):
    """The process ends here."""


@dataclass
class Disk:
    """Files in memory. `steps` is the number of changes before a crash; with `copies` a rename is a copy and a delete,
    as in an object store."""

    files: dict[str, str] = field(default_factory=dict)
    steps: int = 1 << 30
    copies: bool = False
    refuses: str = ""

    def _step(self) -> None:
        if self.steps == 0:
            raise Crash
        self.steps -= 1

    def sizes(self, folder: str, names: str = "*") -> dict[str, int]:
        found: dict[str, int] = {}
        for path, text in self.files.items():
            if path.startswith(f"{folder}/"):
                name, slash, _ = path[len(folder) + 1 :].partition("/")
                if fnmatch.fnmatch(name, names):
                    found[name] = 0 if slash else len(text)
        return found

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def create(self, path: str, text: str) -> bool:
        self._step()
        if path in self.files:
            return False
        self.files[path] = text
        return True

    def rename(self, old: str, new: str) -> bool:
        self._step()
        if new in self.files or old not in self.files or new.endswith(self.refuses or "\0"):
            return False
        self.files[new] = self.files[old]
        if self.copies:
            self._step()
        del self.files[old]
        return True

    def delete(self, path: str) -> None:
        self._step()
        for name in [name for name in self.files if name == path or name.startswith(f"{path}/")]:
            self._step()
            del self.files[name]

    def records(self) -> dict[str, str]:
        """Return the files that a reader sees, in the order of their names."""
        there = {path: text for path, text in self.files.items() if path.startswith(f"{PATH}/batch-")}
        return dict(sorted(there.items()))


BATCHES = [["a1 a2 ", "b1 ", ""], [""], ["a3 ", "", "b2 ", "b3 "], ["a4 "], ["a5 ", "b4 "]]
"""The parts of each batch, in order; an empty one is a task without records."""
EXPECTED = "".join(part for batch in BATCHES for part in batch)


def parts(disk: Disk, batch: list[str], attempt: int) -> Callable[[str], None]:
    def fill(staging: str) -> None:
        for place, text in enumerate(batch):
            disk._step()
            disk.files[f"{staging}/part-{place:05d}-{attempt:08x}-c000.txt"] = text
        disk._step()
        disk.files[f"{staging}/_SUCCESS"] = ""

    return fill


def run(disk: Disk, attempt: int = 0) -> None:
    """Run the sink like Spark, from the first batch that is not committed."""
    newest = max((number_of(path.rpartition("/")[2]) for path in disk.records()), default=None)
    batches = Batches(disk, claim(disk, PATH, CHECKPOINT, OPTION, newest))
    for number, batch in enumerate(BATCHES):
        if f"{CHECKPOINT}/commits/{number}" in disk.files:
            continue
        disk.create(f"{CHECKPOINT}/offsets/{number}", f"plan of {number}")
        batches.write(number, parts(disk, batch, attempt))
        disk.create(f"{CHECKPOINT}/commits/{number}", "")


def crashing(disk: Disk, moments: Iterator[int]) -> None:
    """Run to the end, with a crash after each of the given numbers of steps."""
    shown: dict[str, str] = {}
    for attempt, moment in enumerate(moments):
        disk.steps = moment
        try:
            run(disk, attempt)
        except Crash:
            pass
        finally:
            disk.steps = 1 << 30
        # A file that a reader has seen stays, unchanged.
        assert shown.items() <= disk.records().items()
        shown = disk.records()
    run(disk, 99)
    assert shown.items() <= disk.records().items()


@pytest.mark.parametrize("copies", [False, True])
def test_a_crash_after_any_step_leaves_each_record_once_and_in_order(copies: bool) -> None:
    whole = Disk(copies=copies)
    before = whole.steps
    run(whole)
    steps = before - whole.steps
    assert steps > 40
    for first in range(steps + 1):
        for second in range(0, 14):
            disk = Disk(copies=copies)
            crashing(disk, iter((first, second)))
            assert "".join(disk.records().values()) == EXPECTED, (first, second)


def test_nothing_of_a_killed_run_is_left_after_the_next_batches() -> None:
    disk = Disk()
    crashing(disk, iter(range(3, 25)))
    kept = [path for path in disk.files if path.startswith(f"{PATH}/{CONTROL}/")]
    assert sorted(name.rpartition("/")[2].partition("-")[0] for name in kept) == ["batch", "owner"]


def test_a_reader_may_take_files_away() -> None:
    disk = Disk(steps=1 << 30)
    run(disk)
    taken = disk.records()
    for path in taken:
        del disk.files[path]
    # The last batch was written, and Spark had not committed it yet.
    del disk.files[f"{CHECKPOINT}/commits/{len(BATCHES) - 1}"]
    run(disk)
    assert disk.records() == {}


def test_files_of_one_task_keep_the_order_of_their_numbers() -> None:
    names = ["part-00001-u-c000.txt", "part-00000-u-c1000.txt", "part-00000-u-c999.txt", "part-100000-u-c000.txt"]
    assert ordered([*names, "_SUCCESS"]) == [names[2], names[1], names[0], names[3]]
    with pytest.raises(SinkError, match=r"part-00000-u-c000\.txt\.gz"):
        ordered(["part-00000-u-c000.txt.gz"])


def started(disk: Disk, query: str = "q1", checkpoint: str = CHECKPOINT) -> Batches:
    disk.files.setdefault(f"{checkpoint}/metadata", f'{{"id": "{query}"}}')
    return Batches(disk, claim(disk, PATH, checkpoint, OPTION, None))


def plan(disk: Disk, number: int, text: str = "") -> None:
    disk.files[f"{CHECKPOINT}/offsets/{number}"] = text or f"plan of {number}"


def test_many_parts_sort_by_name() -> None:
    disk = Disk()
    batches = started(disk)
    plan(disk, 0)
    batches.write(0, parts(disk, [f"{number} " for number in range(100_001)], 0))
    names = list(disk.records())
    assert names[0].endswith("-000000.jsonl")
    assert names[-1].endswith("-100000.jsonl")
    assert list(disk.records().values()) == [f"{number} " for number in range(100_001)]


def test_a_rename_that_is_refused_ends_the_batch_and_the_next_run_goes_on() -> None:
    disk = Disk(refuses="-00001.jsonl")
    with pytest.raises(SinkError, match=r"refused.*/out/batch-000000000000-00001\.jsonl"):
        run(disk)
    disk.refuses = ""
    run(disk, 1)
    assert "".join(disk.records().values()) == EXPECTED


def test_a_foreign_file_is_never_replaced() -> None:
    disk = Disk()
    batches = started(disk)
    plan(disk, 0)
    disk.files[f"{PATH}/batch-000000000000-00007.jsonl"] = "foreign"
    disk.files[f"{PATH}/notes.txt"] = "foreign"
    with pytest.raises(SinkError, match=r"batch-000000000000-00007\.jsonl already exists"):
        batches.write(0, parts(disk, ["a1 "], 0))
    assert list(disk.records().values()) == ["foreign"]


def test_a_run_that_was_overtaken_writes_nothing() -> None:
    """A first run stands still, while a second one of the same checkpoint continues."""
    disk = Disk()
    slow, quick = started(disk), started(disk)
    for number in (0, 1):
        plan(disk, number)

    def overtaken(staging: str) -> None:
        parts(disk, ["a1 ", "a2 "], 0)(staging)
        quick.write(0, parts(disk, ["a1 ", "a2 "], 1))

    with pytest.raises(SinkError, match="not written by this run of batch 0"):
        slow.write(0, overtaken)
    quick.write(1, parts(disk, ["a3 "], 1))
    assert disk.sizes(f"{PATH}/{CONTROL}").keys() == {"owner-q1", "batch-000000000001.json"}
    with pytest.raises(SinkError, match="already holds batch 1, and batch 0 was to be written"):
        slow.write(0, parts(disk, ["a1 ", "a2 "], 0))
    assert "".join(disk.records().values()) == "a1 a2 a3 "


def test_a_batch_that_was_planned_anew_is_not_taken_for_the_one_that_was_written() -> None:
    disk = Disk()
    batches = started(disk)
    plan(disk, 0, "to position 5")
    batches.write(0, parts(disk, ["a1 "], 0))
    plan(disk, 0, "to position 9")
    with pytest.raises(SinkError, match="put back to an earlier state"):
        batches.write(0, parts(disk, ["a1 a2 "], 1))


def test_another_checkpoint_is_refused_before_anything_is_written() -> None:
    disk = Disk()
    run(disk)
    before = dict(disk.files)
    with pytest.raises(SinkError) as refused:
        claim(disk, PATH, "/other", OPTION, len(BATCHES) - 1)
    assert refused.value.message == "/out holds what another checkpoint has written: /checkpoint."
    assert "debezium.sink.file.path" in refused.value.remedy
    assert disk.records() == {path: text for path, text in before.items() if path.startswith(f"{PATH}/batch-")}
    # The same place, created anew.
    for path in [path for path in disk.files if path.startswith(CHECKPOINT)]:
        del disk.files[path]
    with pytest.raises(SinkError, match="another checkpoint"):
        run(disk)


def test_files_whose_checkpoint_nobody_knows_are_refused() -> None:
    disk = Disk({f"{PATH}/batch-000000000000-00000.jsonl": "old"})
    with pytest.raises(SinkError, match="has not written"):
        run(disk)


def test_a_checkpoint_that_was_put_back_is_refused() -> None:
    disk = Disk()
    run(disk)
    for number in (3, 4):
        del disk.files[f"{CHECKPOINT}/offsets/{number}"]
        del disk.files[f"{CHECKPOINT}/commits/{number}"]
    with pytest.raises(SinkError, match="holds batch 4, and the checkpoint /checkpoint is at batch 2"):
        run(disk)


def test_a_path_that_got_nothing_is_free_when_its_checkpoint_is_gone() -> None:
    disk = Disk()
    first = started(disk)
    with pytest.raises(SinkError, match="another checkpoint"):
        started(disk, "q2", "/other")
    del disk.files[f"{CHECKPOINT}/metadata"]
    second = started(disk, "q2", "/other")
    disk.files["/other/offsets/0"] = "plan"
    second.write(0, parts(disk, ["a1 "], 0))
    # The previous owner notices it with its next batch.
    plan(disk, 0)
    with pytest.raises(SinkError, match="Another pipeline has begun to write to /out"):
        first.write(0, parts(disk, ["b1 "], 0))
    assert list(disk.records().values()) == ["a1 "]


def test_two_that_take_a_path_at_the_same_moment_do_not_share_it() -> None:
    disk = Disk()
    create = disk.create

    def slowly(path: str, text: str) -> bool:
        if "owner-" in path and not path.endswith("-q0"):
            create(f"{PATH}/{CONTROL}/owner-q0", "/elsewhere")
        return create(path, text)

    disk.create = slowly  # type: ignore[method-assign]
    with pytest.raises(SinkError, match="Another pipeline has begun"):
        claim(disk, PATH, CHECKPOINT, OPTION, None)
    assert disk.sizes(f"{PATH}/{CONTROL}").keys() == {"owner-q0"}


def test_a_claim_knows_its_own_name_alone() -> None:
    held = Claim(PATH, CHECKPOINT, "q1")
    assert held.held({"owner-q1", "batch-000000000001.json"})
    assert not held.held({"owner-q1", "owner-q2"})
    assert not held.held({"batch-000000000001.json"})
