"""The start of Spark's JVM, and the connection to it. Driver."""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.errors import JvmLost
from tailrace.spark.processes import lost

_PATIENCE_S = 90.0
"""So long a JVM may take until it listens, in seconds: ten times what a busy machine needs."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def start_java(settings: Mapping[str, str], keep: Sequence[int] = (), patience_s: float = _PATIENCE_S) -> None:
    """Start the JVM in a session of its own, with `settings` of Spark; it inherits the open files `keep`.

    A signal to the whole group, of a terminal or a service manager, would end Spark's parts before the query that needs
    them. The JVM ends when this process does: its input is a pipe from here.

    PySpark starts a JVM too, but waits for ever for one that ends with the exit code 0, or that has lost its main
    thread and lives on, as after a full disk. Raises JvmLost for both.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    process, port, secret = _launch(settings, keep, patience_s)
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    # This is how PySpark learns of a JVM that it has not started.
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
    except BaseException:
        _end(process)
        raise
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)


def _launch(
    settings: Mapping[str, str], keep: Sequence[int], patience_s: float
) -> tuple[subprocess.Popen[bytes], int, str]:
    """The JVM's process, the port that it listens at, and the secret that it asks for."""
    from pyspark.find_spark_home import _find_spark_home

    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="tailrace-gateway-") as folder:
        address_file = Path(folder) / "address"
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address_file)},
            start_new_session=True,
            pass_fds=tuple(keep),
        )
        try:
            _await(process, address_file, patience_s)
            content = address_file.read_bytes()
        except BaseException:
            _end(process)
            raise
    port, length = struct.unpack_from(">ii", content)
    return process, port, content[8 : 8 + length].decode()


def _await(process: subprocess.Popen[bytes], address_file: Path, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    # the JVM gives the file its name when it is complete
    while not address_file.exists():
        code = process.poll()
        if code is not None:
            raise lost(code)
        if time.monotonic() > deadline:
            raise JvmLost(
                f"The JVM of Spark has not begun to listen within {patience_s:.0f} s.",
                "Its own words are above. Start again; if the directory for temporary files is full, make room first.",
            )
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
