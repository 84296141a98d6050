"""Checks of the master's URL, of `--conf` and of shared directories, before the pipeline starts. Driver."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tailrace.errors import ConfigError, ConnectionFailed, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""The default master: a Spark on this host, with all cores."""

_LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(,\s*(\*|[1-9]\d*))?\])?")
_STANDALONE = re.compile(r"spark://[^\s,:/]+:\d+(,[^\s,:/]+:\d+)*")
_OTHER = re.compile(r"yarn|k8s://\S+|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_PORT = 65_535


def is_local(master: str) -> bool:
    """Return True if tasks run in the driver's own JVM."""
    return master == "local" or master.startswith("local[")


def checked_master(master: str) -> str:
    """Return `master` stripped of spaces; raises ConfigError if it is not a master URL of Spark."""
    master = master.strip()
    known = any(form.fullmatch(master) for form in (_LOCAL, _STANDALONE, _OTHER))
    if known and all(0 < port <= _PORT for _, port in _addresses(master)):
        return master
    raise ConfigError(
        f"--master {master} is not a master URL that Spark knows.",
        "Write spark://HOST:PORT, yarn, k8s://HOST:PORT, or local[*] for this host alone.",
    )


def settings(entries: Iterable[str]) -> dict[str, str]:
    """Return the settings of Spark from the values of `--conf NAME=VALUE`.

    Raises ConfigError for a malformed value, and for a name that is not a setting of Spark or has its own option.
    """
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"--conf {name} has no NAME=VALUE.", "Write --conf spark.executor.memory=2g.")
        if not name.startswith("spark."):
            raise ConfigError(
                f"--conf {name} is not a setting of Spark: its name does not begin with spark.",
                "An entry of the configuration file is set by --set NAME=VALUE.",
            )
        if name == "spark.master":
            raise ConfigError("--conf spark.master is given.", "Name the master by --master URL.")
        found[name] = value
    return found


def demand(master: str, seconds: float = 5.0) -> None:
    """Raise ConnectionFailed if no host of a stand-alone master accepts a connection.

    Spark itself would try for a minute and then stop its context.
    """
    addresses = _addresses(master)
    reason = ""
    for host, port in addresses:
        try:
            socket.create_connection((host, port), seconds).close()
        except OSError as error:
            reason = str(error.strerror or error)
        else:
            return
    if addresses:
        raise ConnectionFailed(
            f"No Spark master answers at {master}: {reason}.",
            "Check host and port of --master, and that the master runs.",
        )


def demand_shared(spark: SparkSession, path: str) -> None:
    """Raise SinkError if executors do not see the files that the driver writes to the directory `path`.

    Checks only local paths on a cluster. Spark would treat the missing parts of a batch as empty.
    """
    if is_local(str(spark.sparkContext.master)):
        return
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        return
    folder = os.path.abspath(parts.path)
    probe = os.path.join(folder, f"_tailrace-probe-{os.getpid()}")
    try:
        os.makedirs(folder, exist_ok=True)
        with open(probe, "x", encoding="utf-8"):
            pass
    except OSError as error:
        raise SinkError(f"The directory {folder} cannot be written: {error.strerror}.", "Name another.") from None
    try:
        count = max(spark.sparkContext.defaultParallelism, 2)
        seen = spark.sparkContext.parallelize(range(count), count).map(lambda _: _sees(probe)).collect()
    finally:
        os.unlink(probe)
    blind = sorted({host for host, sees in seen if not sees})
    if blind:
        raise SinkError(
            f"The executors on {', '.join(blind)} do not see the driver's directory {folder}.",
            "Name a directory that all hosts share, or one of a distributed file system, as hdfs:// or s3a://.",
        )


def _sees(probe: str) -> tuple[str, bool]:
    """Return the host's name, and True if it sees the file. Worker."""
    return socket.gethostname(), os.path.exists(probe)


def _addresses(master: str) -> list[tuple[str, int]]:
    if not _STANDALONE.fullmatch(master):
        return []
    listed = master.removeprefix("spark://").split(",")
    return [(host, int(port)) for host, _, port in (one.rpartition(":") for one in listed)]
