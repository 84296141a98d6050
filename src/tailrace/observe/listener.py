"""The listener that shows the progress of a query in the status line. Driver, on a thread of Spark's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tailrace.observe.status import StatusLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def observed(spark: SparkSession, line: StatusLine, wake: Callable[[], None]) -> Iterator[threading.Event]:
    """Feed every progress record of the session's queries to `line`.

    Yields an event. When Spark reports the end of a query, the event is set and `wake` is called.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    ended = threading.Event()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            line.update(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            ended.set()
            wake()

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        yield ended
    finally:
        spark.streams.removeListener(listener)
