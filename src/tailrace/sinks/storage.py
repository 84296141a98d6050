"""Storage: the few steps on files that the sinks are made of, on any file system that Spark can reach. Driver."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tailrace.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_GLOB, _ESCAPED = re.compile(r"([\\*?\[\]{}^,])"), r"\\\1"


class Storage(Protocol):
    """Files by their paths, which are Spark's: absolute, or with a scheme.

    Each step is done or not done; a crash leaves no half of it that a later step would take for the whole.
    """

    def sizes(self, folder: str, names: str = "*") -> dict[str, int]:
        """Names and bytes of what is in a folder and matches a pattern; empty when there is no such folder."""
        ...

    def read(self, path: str) -> str | None:
        """The text of a file; None when there is none."""
        ...

    def create(self, path: str, text: str) -> bool:
        """Make a file that appears with its whole text; False, and nothing done, when it is there already."""
        ...

    def rename(self, old: str, new: str) -> bool:
        """Give a file another name; False, and nothing done, when that name is taken or the file is not there."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file or a folder with everything in it; nothing happens when there is none."""
        ...


class HadoopStorage:
    """The file systems of Hadoop, which are Spark's own: a local directory, HDFS, an object store."""

    def __init__(self, spark: SparkSession) -> None:
        self._hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        self._configuration: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def sizes(self, folder: str, names: str = "*") -> dict[str, int]:
        path, system = self._at(folder)
        if not system.exists(path):
            return {}
        # The pattern is for the names alone: the folder's own may hold what a pattern gives a meaning to.
        found = system.listStatus(path, self._hadoop.GlobFilter(names))
        return {str(status.getPath().getName()): int(status.getLen()) for status in found}

    def newest(self, folder: str, names: str) -> str | None:
        """The name that is last among those that match a pattern; None when there is none.

        Of any number of files at the price of one: they are sorted over there.
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
        # The local file system would put the file in the place of the one that is there.
        return not system.exists(target) and bool(system.rename(self._hadoop.Path(old), target))

    def delete(self, path: str) -> None:
        file, system = self._at(path)
        system.delete(file, True)

    def _at(self, path: str) -> tuple[Any, Any]:
        file = self._hadoop.Path(path)
        return file, file.getFileSystem(self._configuration)


@contextmanager
def reaching(path: str, option: str) -> Iterator[None]:
    """What the file system refuses about `path` is a SinkError that names `option`. Not for batches: a stop
    interrupts them, and Spark looks for that in the exception."""
    try:
        yield
    except Py4JJavaError as error:
        raised = error.java_exception
        raise SinkError(
            f"{path} cannot be used: {raised.getClass().getSimpleName()}: {raised.getMessage()}.",
            f"Check {option}, the rights there, and that Spark knows the file system.",
        ) from None
