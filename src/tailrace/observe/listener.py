"""The listener that shows the progress of a query in the status line. Driver, on a thread of Spark's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.observe.status import StatusLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Observer(Protocol):
    """Takes what Spark reports of a query, on a thread of Spark's."""

    def progress(self, record: Mapping[str, Any]) -> None: ...

    def idle(self) -> None: ...


@contextmanager
def observed(
    spark: SparkSession, line: StatusLine, wake: Callable[[], None], observer: Observer
) -> Iterator[threading.Event]:
    """Feed every progress record of the session's queries to `line` and to `observer`.

    Yields an event. When Spark reports the end of a query, the event is set and `wake` is called.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    ended = threading.Event()

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            record = json.loads(event.progress.json)
            observer.progress(record)
            line.update(record)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            observer.idle()

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            ended.set()
            wake()

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        yield ended
    finally:
        spark.streams.removeListener(listener)
