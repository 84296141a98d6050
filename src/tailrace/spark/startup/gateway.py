"""The start of Spark's JVM, and the connection to it. Driver."""

from __future__ import annotations

import os
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.errors import JvmLost
from tailrace.monitoring.processes import lost
from tailrace.spark.capabilities import spark_home
from tailrace.spark.startup.java import names_collector

_PATIENCE_S = 90.0
"""Seconds within which a JVM must listen: ten times the time that a busy machine needs."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_LAUNCHER = "SPARK_LAUNCHER_OPTS"

_BRIEF, _SERIAL = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
"""Java's options for the launcher's short-lived JVM, which only prints the command of the real one."""


class Launch:
    """A JVM that is starting with Spark's `settings`; `connect` waits until it listens."""

    def __init__(self, settings: Mapping[str, str], keep: Sequence[int] = ()) -> None:
        """Start the JVM in a new session of the operating system; it inherits the file descriptors `keep`.

        In this process's group, a signal of a terminal or a service manager would end the JVM before the query that
        needs it. The JVM ends with this process, because its standard input is a pipe from this process.
        """
        self.settings = dict(settings)
        home = spark_home()
        command = [str(home / "bin" / "spark-submit")]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self._folder = tempfile.TemporaryDirectory(prefix="tailrace-gateway-")
        self._address = Path(self._folder.name) / "address"
        # With these variables, Spark's scripts need not start Python to determine them.
        asked = os.environ.get(_LAUNCHER, "")
        brief = _BRIEF if names_collector(asked) else f"{_BRIEF} {_SERIAL}"
        own = {"SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address)}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                env={**os.environ, **own, _LAUNCHER: f"{brief} {asked}".rstrip()},
                start_new_session=True,
                pass_fds=tuple(keep),
            )
        except BaseException:
            self._folder.cleanup()
            raise
        self._began = time.monotonic()

    def connect(self, patience_s: float = _PATIENCE_S) -> None:
        """Wait until the JVM listens, and connect PySpark to it.

        PySpark can also start a JVM. But it waits for ever for a JVM that ends with exit code 0, or that lives on
        without its main thread, as after a full disk. This method raises JvmLost for both.
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        port, secret = self.listening(patience_s)
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(self.settings.items()))
        # By these variables, PySpark finds a JVM that it has not started.
        os.environ |= {_PORT: str(port), _SECRET: secret}
        try:
            gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
        except BaseException:
            self.abandon()
            raise
        finally:
            del os.environ[_PORT], os.environ[_SECRET]
        gateway.proc = self._process
        SparkContext._ensure_initialized(gateway=gateway)

    def listening(self, patience_s: float = _PATIENCE_S) -> tuple[int, str]:
        """Wait for the JVM; return its port and its secret. Raises JvmLost if the JVM does not begin to listen."""
        try:
            _await(self._process, self._address, self._began + patience_s, patience_s)
            content = self._address.read_bytes()
        except BaseException:
            self.abandon()
            raise
        self._folder.cleanup()
        port, length = struct.unpack_from(">ii", content)
        return port, content[8 : 8 + length].decode()

    def abandon(self) -> None:
        """Kill a JVM to which nobody is connected. May be called twice."""
        if self._process.poll() is None:
            # the whole group, as Spark's scripts have children
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._folder.cleanup()


def _await(process: subprocess.Popen[bytes], address_file: Path, deadline: float, patience_s: float) -> None:
    # the JVM renames the file into place when it is complete
    while not address_file.exists():
        code = process.poll()
        if code is not None:
            raise lost(code)
        if time.monotonic() > deadline:
            raise JvmLost(
                f"The JVM of Spark has not begun to listen within {patience_s:.0f} s.",
                "Its messages are above. Start again; if the directory for temporary files is full, make room first.",
            )
        time.sleep(0.01)
