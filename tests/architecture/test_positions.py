"""The type checker tells positions apart: read, flushed, wanted, committed, and acknowledged."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.architecture import typing_rules

callers = partial(typing_rules.callers, "postgres")

MIXED = """
from dataclasses import replace

from tailrace.connectors.postgres.protocol import position as p
from tailrace.connectors.postgres.log.feed import PostgresFeed
from tailrace.connectors.postgres.log.gears import CatchUp, Streaming
from tailrace.connectors.postgres.log_session import PostgresLogSession
from tailrace.connectors.postgres.log.identity import flushed_end, present


def acknowledge(gear: Streaming, read: p.ReadLsn, flushed: p.FlushedLsn, committed: p.Committed) -> None:
    gear.acknowledge(p.acknowledged(committed))
    gear.acknowledge(read)  # wrong
    gear.acknowledge(flushed)  # wrong
    gear.acknowledge(committed.safe_lsn)  # wrong
    gear.acknowledge(committed.end_lsn)  # wrong
    gear.flushed = gear.sent_lsn  # wrong
    gear.start("slot", "publication", read, p.acknowledged(committed), 180000, {})
    gear.start("slot", "publication", read, read, 180000, {})  # wrong
    gear.start("slot", "publication", flushed, p.acknowledged(committed), 180000, {})  # wrong


def commit(log: PostgresLogSession, planned: p.LogPosition, committed: p.Committed) -> None:
    log.release(committed)
    log.release(planned)  # wrong
    p.acknowledged(planned)  # wrong


def discard(feed: PostgresFeed, planned: p.LogPosition, committed: p.Committed) -> None:
    feed.acknowledge(committed)
    feed.acknowledge(planned)  # wrong
    feed._slot.acknowledge(feed._read_lsn)  # wrong
    feed._slot.acknowledged = max(feed._slot.acknowledged, feed._read_lsn)  # wrong


def read(feed: PostgresFeed, copy: CatchUp, flushed: p.FlushedLsn, target: p.TargetLsn, found: p.LogPosition) -> None:
    feed._read_to(copy.position())
    feed._read_to(flushed)  # wrong
    feed._read_to(target)  # wrong
    feed._read_to(feed.head_lsn)  # wrong
    feed._read_to(min(feed.head_lsn, feed._read_lsn + 1))  # wrong
    feed._read_lsn = feed.head_lsn  # wrong
    replace(found, idle_lsn=feed._read_lsn)
    replace(found, idle_lsn=feed.head_lsn)  # wrong
    p.LogPosition(idle_lsn=target)  # wrong


def wanted(feed: PostgresFeed, target: p.TargetLsn, flushed: p.FlushedLsn) -> None:
    feed.head_lsn = flushed
    feed.head_lsn = feed._read_lsn
    feed.head_lsn = target  # wrong
    feed._target_lsn = target
    feed._target_lsn = 7  # wrong
"""


def test_the_type_checker_refuses_positions_of_the_wrong_kind(tmp_path: Path) -> None:
    typing_rules.check_refused(MIXED, tmp_path)


def test_only_a_committed_offset_and_the_slot_itself_say_what_may_be_forgotten() -> None:
    assert callers("AcknowledgedLsn") == ["position.confirmed", "position.acknowledged"]
    # The position from which Spark continues.
    assert callers("Committed") == ["log_session.acknowledge"]
    assert callers("acknowledged") == ["feed.acknowledge"]
    # The slot is new, existing, or not known yet.
    assert set(callers("confirmed")) == {"slots.create_slot", "slots.find_slot", "feed._resume"} | {
        "gears.__init__",
        "slot.__init__",
    }
