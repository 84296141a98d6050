"""Db2 under TLS: IBM's driver against Derby, which runs DRDA over TLS as Db2 does.

The driver keeps one set of TLS settings for all concurrent connections of a process, and waits before it gives up. So
each case has a process of its own, and all run side by side.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.integration.tls.conftest import Files
from tests.servers import derby
from tests.servers.derby import DRIVER, Derby

SECRET = "hunter2"
NAME = "SECURED"

PROGRAM = """
import json, sys
from tailrace.connectors.registry import parse
from tailrace.connectors.db2.server.connection import Connection
from tailrace.errors import ConnectionFailed

try:
    Connection(parse("db2", json.load(sys.stdin))).close()
    print("null")
except ConnectionFailed as error:
    print(json.dumps([error.message, error.remedy]))
"""


@pytest.fixture(scope="module")
def secured(derby_server: Derby, files: Files) -> Iterator[Derby]:
    """Run a server that accepts only TLS."""
    with Derby(derby.fetch(), keys=files.keys) as server:
        server.make(NAME)
        yield server


def options(server: Derby, host: str = "localhost", **driver: str) -> dict[str, str]:
    login = {
        "database.hostname": host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": SECRET,
        "database.dbname": NAME,
        "topic.prefix": "p",
    }
    return login | {f"driver.{name}": text for name, text in (DRIVER | driver).items()}


def test_a_certificate_is_checked_by_authority_and_by_name(secured: Derby, derby_server: Derby, files: Files) -> None:
    trusted = {"Security": "SSL", "SSLServerCertificate": str(files.authority)}
    cases = {
        "good": (options(secured, **trusted), "", ""),
        "Java's word": (options(secured, sslConnection="true", sslCertLocation=str(files.authority)), "", ""),
        "no names": (options(secured, "127.0.0.1", **trusted, SSLClientHostnameValidation="Off"), "", ""),
        "name": (options(secured, "127.0.0.1", **trusted), "for another name", "database.hostname"),
        "authority": (
            options(secured, **trusted | {"SSLServerCertificate": str(files.stranger)}),
            "no known authority",
            "driver.SSLServerCertificate",
        ),
        "no authority": (options(secured, Security="SSL"), "no known authority", "driver.SSLServerCertificate"),
        "server in the clear": (options(derby_server, **trusted), "cannot be established", "driver.Security"),
        "client in the clear": (options(secured), "Nothing answers as Db2", "driver.Security"),
    }
    running = {}
    for name, (given, _, _) in cases.items():
        running[name] = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert running[name].stdin is not None
        running[name].stdin.write(json.dumps(given))
        running[name].stdin.close()
        running[name].stdin = None
    found = {name: process.communicate(timeout=120)[0] for name, process in running.items()}
    for name, (_, message, remedy) in cases.items():
        assert SECRET not in found[name]
        error = json.loads(found[name])
        if not message:
            assert error is None, name
            continue
        assert error is not None, name
        assert message in error[0], (name, error)
        assert remedy in error[1], (name, error)
