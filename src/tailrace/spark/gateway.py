"""The start of Spark's JVM, and the connection to it. Driver."""

from __future__ import annotations

import importlib.util
import os
import runpy
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.errors import JvmLost
from tailrace.spark.java import names_collector
from tailrace.spark.processes import lost

_PATIENCE_S = 90.0
"""So long a JVM may take until it listens, in seconds: ten times what a busy machine needs."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_LAUNCHER = "SPARK_LAUNCHER_OPTS"

_BRIEF, _SERIAL = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"
"""For the JVM that only puts together the command of the other one, and ends before it starts."""


def spark_home() -> Path:
    """The directory of Spark, as PySpark finds it; without importing PySpark, which takes as long as the JVM's start
    may already go on."""
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    return Path(runpy.run_path(str(Path(package.origin).with_name("find_spark_home.py")))["_find_spark_home"]())


class Launch:
    """A JVM that is starting with `settings` of Spark: made at once, `connect` waits for it."""

    def __init__(self, settings: Mapping[str, str], keep: Sequence[int] = ()) -> None:
        """Start it in a session of its own; it inherits the open files `keep`.

        A signal to the whole group, of a terminal or a service manager, would end Spark's parts before the query that
        needs them. The JVM ends when this process does: its input is a pipe from here.
        """
        self.settings = dict(settings)
        home = spark_home()
        command = [str(home / "bin" / "spark-submit")]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self._folder = tempfile.TemporaryDirectory(prefix="tailrace-gateway-")
        self._address = Path(self._folder.name) / "address"
        # The scripts would start a Python to find this out.
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
        """Wait until it listens, and make it PySpark's.

        PySpark starts a JVM too, but waits for ever for one that ends with the exit code 0, or that has lost its main
        thread and lives on, as after a full disk. Raises JvmLost for both.
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        port, secret = self.listening(patience_s)
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(self.settings.items()))
        # This is how PySpark learns of a JVM that it has not started.
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
        """The port that it listens at, and the secret that it asks for. Raises JvmLost where it does not come to it."""
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
        """End a JVM that nobody is connected to. May come twice."""
        if self._process.poll() is None:
            # The scripts before it have children.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._folder.cleanup()


def _await(process: subprocess.Popen[bytes], address_file: Path, deadline: float, patience_s: float) -> None:
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
        time.sleep(0.01)
