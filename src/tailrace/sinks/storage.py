"""File operations of the sinks, on any file system that Spark can reach. Driver."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tailrace.errors import SinkError
from tailrace.process import disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_GLOB, _ESCAPED = re.compile(r"([\\*?\[\]{}^,])"), r"\\\1"


class Storage(Protocol):
    """File operations by path. A path is one of Spark's: absolute, or with a scheme.

    Each operation is atomic: after a crash no later operation finds an incomplete result.
    """

    def sizes(self, folder: str, names: str = "*") -> dict[str, int]:
        """Return name and size in bytes of a folder's entries that match a pattern; {} if there is no folder."""
        ...

    def read(self, path: str) -> str | None:
        """Return the text of a file; None if it does not exist."""
        ...

    def create(self, path: str, text: str) -> bool:
        """Create a file together with its whole text. Return False, and change nothing, if it exists."""
        ...

    def rename(self, old: str, new: str) -> bool:
        """Rename a file. Return False, and change nothing, if the new name exists or the old one does not."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its contents, if it exists."""
        ...


class HadoopStorage:
    """File operations through Hadoop's file systems, as Spark uses them: local directories, HDFS, object stores."""

    def __init__(self, spark: SparkSession) -> None:
        self._hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        self._configuration: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def sizes(self, folder: str, names: str = "*") -> dict[str, int]:
        path, system = self._at(folder)
        if not system.exists(path):
            return {}
        # The pattern must apply to the names only: the folder's path may hold characters with a meaning in patterns.
        found = system.listStatus(path, self._hadoop.GlobFilter(names))
        return {str(status.getPath().getName()): int(status.getLen()) for status in found}

    def newest(self, folder: str, names: str) -> str | None:
        """Return the last name, in sort order, that matches a pattern; None if none matches.

        The JVM sorts the names, and only this name is transferred.
        """
        _, system = self._at(folder)
        found = system.globStatus(self._hadoop.Path(f"{_GLOB.sub(_ESCAPED, folder)}/{names}"))
        return str(found[len(found) - 1].getPath().getName()) if found is not None and len(found) else None

    def read(self, path: str) -> str | None:
        file, system = self._at(path)
        if not system.exists(file):
            return None
        stream = system.open(file)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def create(self, path: str, text: str) -> bool:
        file, system = self._at(path)
        if system.exists(file):
            return False
        folder, _, name = path.rpartition("/")
        fresh = f"{folder}/.{name}.{uuid.uuid4().hex}"
        stream = system.create(self._hadoop.Path(fresh), False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if self.rename(fresh, path):
            return True
        self.delete(fresh)
        return False

    def rename(self, old: str, new: str) -> bool:
        target, system = self._at(new)
        # The local file system would replace an existing file.
        return not system.exists(target) and bool(system.rename(self._hadoop.Path(old), target))

    def delete(self, path: str) -> None:
        file, system = self._at(path)
        system.delete(file, True)

    def _at(self, path: str) -> tuple[Any, Any]:
        file = self._hadoop.Path(path)
        return file, file.getFileSystem(self._configuration)


@contextmanager
def reaching(path: str, option: str) -> Iterator[None]:
    """Raise failures of the file system as a SinkError that names `path` and `option`, or DiskFailed for a full disk.

    Not for use in a batch: if a stop interrupts a batch, Spark must see the original exception.
    """
    try:
        yield
    except Py4JJavaError as error:
        raised = error.java_exception
        full = disk.failure(str(raised.toString()), [disk.Directory("the sink's", path, option)])
        if full is not None:
            raise full from None
        raise SinkError(
            f"{path} cannot be used: {raised.getClass().getSimpleName()}: {raised.getMessage()}.",
            f"Check {option}, the rights there, and that Spark knows the file system.",
        ) from None
