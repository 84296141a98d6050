"""SQL Server under TLS: a certificate is accepted by its authority, by its name and by itself.

Microsoft's driver reads the authorities of the operating system once in a process, so each set of them has its own
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tdsserver.process import TestDatabase, TestServer
from tests.integration.tls.conftest import Files

SECRET = "hunter2"

PROGRAM = """
import json, sys
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.server.connection import close, connect
from tailrace.errors import ConnectionFailed

found = []
for options in json.load(sys.stdin):
    try:
        close(connect(parse("sqlserver", options), options["database.names"]))
        found.append(None)
    except ConnectionFailed as error:
        found.append([error.message, error.remedy])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def secured(files: Files) -> Iterator[TestDatabase]:
    """Yield a database of a server that offers TLS."""
    with TestServer("optional", files.server) as server:
        yield TestDatabase(server, "secured")


def outcomes(authorities: object, *given: dict[str, str]) -> list[Any]:
    """Return the results of connections in a process that trusts the authorities of a file: None, or message and
    remedy."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"SSL_CERT_FILE": str(authorities)},
    )
    assert SECRET not in done.stdout + done.stderr
    return list(json.loads(done.stdout))


def options(database: TestDatabase, **more: str) -> dict[str, str]:
    return database.options(topic_prefix="p", **more)


def test_an_authority_of_the_operating_system_vouches(secured: TestDatabase, files: Files) -> None:
    good, renamed, name = outcomes(
        files.authority,
        options(secured, database_hostname="localhost"),
        options(secured, driver_hostNameInCertificate="localhost"),
        options(secured, database_password=SECRET),
    )
    assert good is None
    assert renamed is None
    message, remedy = name
    assert message == f"TLS with 127.0.0.1:{secured.server.port} fails: the server's certificate is for another name."
    assert "driver.hostNameInCertificate" in remedy


def test_an_unknown_authority_and_another_certificate_are_refused(
    secured: TestDatabase, sqlserver_database: TestDatabase, files: Files
) -> None:
    named = {"database_hostname": "localhost", "database_password": SECRET}
    pinned, unknown, other, clear, anyone = outcomes(
        files.stranger,
        options(secured, driver_serverCertificate=str(files.own)),
        options(secured, **named),
        options(secured, driver_serverCertificate=str(files.authority), **named),
        options(sqlserver_database, **named),
        options(secured, driver_trustServerCertificate="true"),
    )
    assert pinned is None
    assert anyone is None
    assert "no authority that this host trusts" in unknown[0]
    assert "driver.serverCertificate" in unknown[1]
    assert "another certificate than driver.serverCertificate" in other[0]
    assert "does not offer it" in clear[0]
    assert "driver.encrypt=false" in clear[1]


def test_a_certificate_and_a_name_exclude_each_other(secured: TestDatabase, files: Files) -> None:
    both = {"driver_serverCertificate": str(files.own), "driver_hostNameInCertificate": "localhost"}
    with pytest.raises(ConfigError, match=r"driver\.hostNameInCertificate is not supported beside"):
        parse("sqlserver", options(secured, **both))
