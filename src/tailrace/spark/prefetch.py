"""Producing record batches ahead of their consumer. Worker."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pyarrow as pa

_END = object()


def ahead(batches: Iterator[pa.RecordBatch], depth: int = 2) -> Iterator[pa.RecordBatch]:
    """Yield `batches`, produced by a thread that keeps up to `depth` of them ready.

    Without it, the worker and the JVM that reads from it would take turns: the socket between them holds less than one
    batch. An error of `batches` is raised here, after the batches that precede it. Closing the iterator ends the
    thread.
    """
    waiting: queue.Queue[object] = queue.Queue(depth)
    left = threading.Event()

    def put(item: object) -> bool:
        while not left.is_set():
            try:
                waiting.put(item, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def produce() -> None:
        try:
            for batch in batches:
                if not put(batch):
                    return
            put(_END)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=produce, name="tailrace-ahead", daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        left.set()
        thread.join()
