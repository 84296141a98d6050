"""The listener that passes the progress of queries to an observation and a status line. Driver, Spark's thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Update = Callable[[Mapping[str, Any]], None]
"""Takes a progress record of Spark, as parsed JSON."""


@contextmanager
def observed(
    spark: SparkSession,
    *updates: Update,
    idle: Callable[[], None] = lambda: None,
    wake: Callable[[], None] = lambda: None,
) -> Iterator[threading.Event]:
    """Pass every progress record of the session's queries to `updates`, and call `idle` when a query finds nothing.

    Yields an event. When Spark reports the end of a query, the event is set and `wake` is called.
    """
    ended = threading.Event()

    def end(_: str) -> None:
        ended.set()
        wake()

    remove = listen(spark, updates, idle, end)
    try:
        yield ended
    finally:
        remove()


def listen(
    spark: SparkSession,
    updates: tuple[Update, ...],
    idle: Callable[[], None],
    end: Callable[[str], None],
    query: str | None = None,
) -> Callable[[], None]:
    """Listen to the query with the id `query`, or with None to all of the session; return a function that stops this.

    `end` gets the text of the query's exception, "" if there is none.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    def is_meant(event: Any) -> bool:
        return query is None or str(getattr(event, "progress", event).id) == query

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            if is_meant(event):
                progress = json.loads(event.progress.json)
                for update in updates:
                    update(progress)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            if is_meant(event):
                idle()

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            if is_meant(event):
                end(event.exception or "")

    listener = Listener()
    spark.streams.addListener(listener)
    return lambda: spark.streams.removeListener(listener)
