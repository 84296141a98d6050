"""A Kafka broker in one Java process (KRaft), from the jars that Apache Kafka publishes.

The broker keeps its log in a temporary directory that goes when it stops.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.servers import jars as cache
from tests.servers.jars import java

VERSION = "4.1.0"


def fetch(seconds: float = 300) -> list[Path]:
    """The broker's jars, from the cache or, the first time, from Maven Central; raises Unavailable."""
    return cache.fetch(f"kafka-{VERSION}", [f"org.apache.kafka:kafka_2.13:{VERSION}"], seconds=seconds)


QUICK_START = ("-Xmx384m", "-XX:TieredStopAtLevel=1")
"""For tests: the broker starts in a third of the time, and runs slower than one that is compiled in full."""
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Security:
    """A broker's identity and login: a PEM file with certificate and key, and one user for all mechanisms."""

    certificate: Path
    user: str
    password: str = field(repr=False)


class Broker:
    """A broker on free ports of 127.0.0.1; a context manager. Topics are created when first written to.

    With `security` it listens in three ways: in the clear, under TLS, and under TLS with a login by PLAIN,
    SCRAM-SHA-256 or SCRAM-SHA-512. Under TLS it is `localhost`, the name of the certificate.
    """

    def __init__(
        self, jars: list[Path], java_options: Sequence[str] = QUICK_START, security: Security | None = None
    ) -> None:
        self._java_options = java_options
        self.security = security
        self.port, self._controller, self.tls_port, self.sasl_port = _free_ports(4)
        self._jars = jars
        self._home = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, seconds: float = 60) -> None:
        """Format the storage and start the broker; returns when it takes connections, about 8 s later.

        Raises RuntimeError, with the end of the broker's output, when it does not within `seconds`.
        """
        self._home = Path(tempfile.mkdtemp(prefix="tailrace-kafka-"))
        properties = self._home / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()), "utf-8")
        storage = ["kafka.tools.StorageTool", "format", "-t", "dGFpbHJhY2UtdGVzdHMtMQ", "-c", str(properties)]
        if self.security is not None:
            login = f"[name={self.security.user},password={self.security.password}]"
            storage += [part for name in SCRAM for part in ("--add-scram", f"{name}={login}")]
        subprocess.run(self._command(*storage), check=True, capture_output=True, stdin=subprocess.DEVNULL)
        self._launch(seconds)

    def kill(self) -> None:
        """End the process at once, as a crash does; what it holds stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def again(self, seconds: float = 60) -> None:
        """Start the broker on the data that `kill` has left, at the same address; raises RuntimeError as `start`."""
        self._launch(seconds)

    def _launch(self, seconds: float) -> None:
        with (self._home / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._home / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
            )
        deadline = time.monotonic() + seconds
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._home / "output").read_text("utf-8", errors="replace")[-3000:]
                self.stop()
                raise RuntimeError(f"the broker did not start:\n{said}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the process and remove its directory."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = None if self._process is None else self._process.poll()
        said = (self._home / "output").read_text("utf-8", errors="replace")[-3000:] if code is not None else ""
        self.stop()
        if code is not None:
            # tests that need it have failed, and do not know why
            raise RuntimeError(f"the broker has ended by itself with the exit code {code}:\n{said}")

    def _command(self, main: str, *arguments: str) -> list[str]:
        path = os.pathsep.join(map(str, self._jars))
        return [str(java()), *self._java_options, "-cp", path, main, *arguments]

    def _settings(self) -> dict[str, str]:
        plain = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._home / "log"),
            "num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "true",
        }
        return plain if self.security is None else plain | self._secured(self.security)

    def _secured(self, security: Security) -> dict[str, str]:
        modules = "org.apache.kafka.common.security"
        plain = f"127.0.0.1:{self.port}"
        settings = {
            "listeners": f"PLAINTEXT://{plain},SSL://127.0.0.1:{self.tls_port},SASL_SSL://127.0.0.1:{self.sasl_port},"
            f"CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{plain},SSL://localhost:{self.tls_port},"
            f"SASL_SSL://localhost:{self.sasl_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(security.certificate),
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{modules}.plain.PlainLoginModule required "
            f'user_{security.user}="{security.password}";',
        }
        for name in SCRAM:
            module = f"{modules}.scram.ScramLoginModule required;"
            settings[f"listener.name.sasl_ssl.{name.lower()}.sasl.jaas.config"] = module
        return settings

    def _listens(self) -> bool:
        # A KRaft broker opens its port only after it has joined its quorum and may take requests.
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


if __name__ == "__main__":
    with Broker(fetch()) as broker:
        print(broker.servers, flush=True)
        sys.stdin.read()
