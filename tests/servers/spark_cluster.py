"""A stand-alone Spark cluster on this host, from the installed PySpark: a master and workers, each a process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from tailrace.spark.startup.java import java_home


class SparkCluster:
    """A master and `workers` workers of `cores` cores and `memory` each; a context manager.

    Executors run the tests' own Python and find the product as it is found here. `keep` starts a worker again that was
    killed, as a service manager would.
    """

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._cores, self._memory, self._count = cores, memory, workers
        self._home = Path()
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self.port = 0

    @property
    def master(self) -> str:
        """The value for `--master`."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        """The end of what the processes have printed."""
        return "\n".join(path.read_text("utf-8", "replace")[-2000:] for path in sorted(self._home.glob("*.log")))

    def start(self, seconds: float = 90) -> None:
        """Start all processes; returns when the master takes connections and the workers have registered."""
        self._home = Path(tempfile.mkdtemp(prefix="tailrace-cluster-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._master = self._launch("master", "org.apache.spark.deploy.master.Master", "--port", str(self.port))
        self._until(lambda: "I have been elected leader" in self._log("master"), seconds)
        for number in range(self._count):
            self._workers.append(self._worker(number))
        self._until(lambda: self._log("master").count("Registering worker") >= self._count, seconds)

    def stop(self) -> None:
        """End all processes and what they have started."""
        for process in [*self._workers, *([self._master] if self._master else [])]:
            with suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.Error):
                        child.kill()
            process.kill()
            process.wait()
        self._workers.clear()
        self._master = None
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> SparkCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def processes(self, kind: str) -> list[psutil.Process]:
        """The running processes of a kind: `worker`, `executor` (its JVM), `python` (an executor's Python worker)."""
        found = []
        for worker in self._workers:
            with suppress(psutil.Error):
                process = psutil.Process(worker.pid)
                if kind == "worker":
                    found += [process] if worker.poll() is None else []
                    continue
                for child in process.children(recursive=True):
                    with suppress(psutil.Error):
                        line = " ".join(child.cmdline())
                        backend = "CoarseGrainedExecutorBackend" in line and "java" in child.name()
                        if backend if kind == "executor" else "pyspark.daemon" in line:
                            found.append(child)
        return found

    def keep(self) -> None:
        """Start each worker that has ended again."""
        for number, process in enumerate(self._workers):
            if process.poll() is not None:
                self._workers[number] = self._worker(number)

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        return self._launch(
            f"worker-{number}", "org.apache.spark.deploy.worker.Worker", self.master,
            "--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(self._home / f"work-{number}"),
        )  # fmt: skip

    def _launch(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        package = importlib.util.find_spec("pyspark")
        assert package is not None
        assert package.origin is not None
        spark = Path(package.origin).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark),
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._home / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path and "site-packages" not in path),
        }
        common = ["--host", "127.0.0.1", "--webui-port", "0"]
        with (self._home / f"{name}.log").open("ab") as output:
            return subprocess.Popen(
                [str(spark / "bin" / "spark-class"), main, *arguments, *common],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                env=environment,
                start_new_session=True,
            )

    def _log(self, name: str) -> str:
        path = self._home / f"{name}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def _until(self, done: object, seconds: float) -> None:
        assert callable(done)
        deadline = time.monotonic() + seconds
        while not done():
            ended = [process for process in [self._master, *self._workers] if process and process.poll() is not None]
            if ended or time.monotonic() > deadline:
                said = self.output
                self.stop()
                raise RuntimeError(f"the cluster did not start:\n{said}")
            time.sleep(0.1)
