"""A failure of the file system becomes an error that names the sink's directory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tailrace.errors import DiskFailed, SinkError, TailraceError
from tailrace.sinks.storage import reaching


class Refused(Py4JJavaError):
    """An exception of a JVM, without a JVM."""

    def __init__(self, kind: str, message: str) -> None:
        self.java_exception = SimpleNamespace(
            toString=lambda: f"{kind}: {message}",
            getMessage=lambda: message,
            getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind.rpartition(".")[2]),
        )


@pytest.mark.parametrize(
    ("kind", "message", "error", "said"),
    [
        ("org.apache.hadoop.fs.FSError", "java.io.IOException: No space left on device", DiskFailed,
         "No space is left on a disk that is written to: the sink's /nowhere/out ("),
        ("java.io.FileNotFoundException", "/nowhere/out/x (Read-only file system)", DiskFailed,
         "A file system is read-only that is written to: the sink's /nowhere/out ("),
        ("java.io.IOException", "Mkdirs failed", SinkError, "/nowhere/out cannot be used: IOException: Mkdirs failed."),
    ],
)  # fmt: skip
def test_a_full_disk_is_told_from_other_failures(
    kind: str, message: str, error: type[TailraceError], said: str
) -> None:
    with pytest.raises(TailraceError) as raised, reaching("/nowhere/out", "debezium.sink.file.path"):
        raise Refused(kind, message)
    assert type(raised.value) is error
    assert raised.value.message.startswith(said)
    assert "debezium.sink.file.path" in raised.value.remedy
