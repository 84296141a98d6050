"""Initial and blocking snapshots: their start, and the chunks of each batch. Planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.snapshot.point import Point
from tailrace.errors import ConfigError
from tailrace.events.event_settings import EventSettings
from tailrace.log import contracts
from tailrace.log.contracts import Task
from tailrace.log.table_notifications import TableNotifications
from tailrace.process.runtime import Runtime

if TYPE_CHECKING:
    from pymysql.connections import Connection


class BinlogSnapshots(contracts.Snapshots[BinlogOffset]):
    """Refuses snapshots."""

    def __init__(
        self,
        config: Config,
        settings: EventSettings,
        connect: Callable[[], Connection[Any]],
        admit: Callable[[TableSchema], TableSchema],
        place: Callable[[Point, BinlogOffset], BinlogPosition],
        parallelism: int,
        runtime: Runtime,
    ) -> None:
        self.notifications = TableNotifications(config, runtime, lambda: ())

    def begin_anew(self) -> None:
        return

    def start(self, since: BinlogOffset, *, fresh: bool) -> BinlogOffset:
        raise ConfigError("Snapshots are not possible yet.", "Set snapshot.mode=no_data.")

    def block(self, since: BinlogOffset) -> BinlogOffset | None:
        raise ConfigError("Snapshots are not possible yet.", "Set snapshot.mode=no_data.")

    def count(self) -> Mapping[Any, int]:
        return {}

    def advance(self, since: BinlogOffset, max_rows: int | None, *, everything: bool) -> Any:
        return since.snapshot

    def tasks(self, since: BinlogOffset, until: BinlogOffset) -> list[Task]:
        return []
