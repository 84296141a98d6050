"""A DataFrame has one snapshot per action, shared by its tasks, and kept while it is read and for some time after."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import Listener
from typing import Any

import pytest

from tailrace.errors import PrerequisiteError, ProcessLost
from tailrace.spark.snapshot_process import FrameSnapshots, SnapshotHolder, asked, serve


class Held:
    def __init__(self, number: int) -> None:
        self.tasks = [f"{number}.{task}" for task in range(3)]
        self.is_open, self.is_used = True, False

    def is_read(self) -> bool:
        return self.is_used

    def close(self) -> None:
        self.is_open = False


class World:
    """Snapshots with a clock. `made` holds all snapshots that were taken."""

    def __init__(self) -> None:
        self.made: list[Held] = []
        self.now = 0.0
        self.snapshots: Any = FrameSnapshots(self.take(), self.take, 10, lambda: self.now)  # type: ignore[arg-type]

    def take(self) -> Any:
        self.made.append(Held(len(self.made)))
        return self.made[-1]

    def read(self, action: str, count: int = 2) -> list[str]:
        found: list[str] = []
        for place in range(count):
            with self.snapshots.reading(action, place, count) as tasks:
                found += tasks
        return sorted(found)


@pytest.fixture
def world() -> World:
    return World()


def test_each_action_has_a_snapshot_and_its_tasks_share_it(world: World) -> None:
    assert world.read("1") == ["0.0", "0.1", "0.2"]
    assert world.read("1") == ["0.0", "0.1", "0.2"]
    world.now = 3
    assert world.read("2") == ["1.0", "1.1", "1.2"]
    assert [one.is_open for one in world.made] == [False, True]
    with pytest.raises(PrerequisiteError, match="no longer kept"):
        world.read("1")


def test_a_plan_that_is_older_than_its_action_is_not_read(world: World) -> None:
    world.now = 2
    assert world.read("1")[0] == "1.0"
    assert not world.made[0].is_open


def test_an_action_that_has_not_read_all_keeps_its_snapshot_beside_another(world: World) -> None:
    with world.snapshots.reading("1", 0, 2):
        world.read("2")
    world.read("3")
    assert [one.is_open for one in world.made] == [True, False, True]
    world.now = 10
    assert not world.snapshots.is_wanted()
    assert [one.is_open for one in world.made] == [False, False, False]


def test_what_is_read_is_wanted(world: World) -> None:
    """The plan's snapshot is wanted, too, which tasks of a cluster read without a request."""
    world.now = 9
    assert world.snapshots.is_wanted()
    world.made[0].is_used = True
    world.now = 100
    assert world.snapshots.is_wanted()
    world.made[0].is_used = False
    world.now = 110
    assert not world.snapshots.is_wanted()


@pytest.fixture
def planned(world: World) -> Iterator[SnapshotHolder]:
    with Listener(authkey=b"key") as listener:
        threading.Thread(target=serve, args=(listener, world.snapshots), daemon=True).start()
        yield SnapshotHolder((), listener.address, b"key")
    world.snapshots.close()


def test_tasks_ask_over_a_socket(world: World, planned: SnapshotHolder) -> None:
    with asked(planned, "1", 1, 3) as tasks:
        assert list(tasks) == ["0.1"]
    world.now = 3
    with asked(planned, "2", 0, 3) as tasks:
        assert list(tasks) == ["1.0"]


def test_a_task_that_dies_finds_its_snapshot_again(world: World, planned: SnapshotHolder) -> None:
    with pytest.raises(ZeroDivisionError), asked(planned, "1", 0, 1):
        raise ZeroDivisionError
    world.now = 3
    with asked(planned, "2", 0, 1):
        pass
    with asked(planned, "1", 0, 1) as tasks:
        assert list(tasks) == ["0.0", "0.1", "0.2"]


def test_a_holder_that_has_ended_is_told(planned: SnapshotHolder) -> None:
    gone = SnapshotHolder((), f"{planned.address}-gone", b"key")
    with pytest.raises(ProcessLost, match="Load the DataFrame again"), asked(gone, "1", 0, 1):
        pass
