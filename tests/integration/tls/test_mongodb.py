"""MongoDB under TLS: the certificate is checked, and its faults are reported."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pymongo
import pytest

from tailrace.connectors.mongodb.server.faults import explained_error, patiently
from tailrace.connectors.mongodb.setup.prerequisites import check
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed
from tests.fix_mongodb import Mongo
from tests.integration.mongodb.capture import Capture
from tests.integration.tls.conftest import Files
from tests.servers.certificates import WORD
from tests.servers.secantus import Secantus, Unavailable, fetch

SECRET = "hunter2"


@pytest.fixture(scope="module")
def secured(files: Files) -> Iterator[Secantus]:
    """Run a server that accepts only TLS."""
    try:
        python = fetch()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with Secantus(python, ["--tls-cert-file", str(files.server), "--tls-key-file", str(files.server)]) as server:
        yield server


def options(port: int, host: str = "localhost", trusted: object = "", **more: str) -> dict[str, str]:
    named = {
        "mongodb.connection.string": f"mongodb://{host}:{port}/?directConnection=true",
        "topic.prefix": "p",
        "mongodb.server.selection.timeout.ms": "3000",
    }
    if trusted:
        named |= {"mongodb.ssl.enabled": "true", "mongodb.ssl.truststore": str(trusted)}
        named["mongodb.ssl.truststore.type"] = "PEM"
    return named | {name.replace("_", "."): text for name, text in more.items()}


def met(given: dict[str, str]) -> ConnectionFailed | None:
    """Return the result of the check, with the name of a user that the server does not require."""
    try:
        check(parse("mongodb", given))
    except ConnectionFailed as error:
        return error
    return None


def test_what_is_wrong_with_a_certificate_is_told(secured: Secantus, files: Files) -> None:
    port, login = secured.port, {"mongodb_user": "me", "mongodb_password": SECRET}
    cases = {
        "good": (options(port, trusted=files.authority), "", ""),
        "name": (
            options(port, "127.0.0.1", files.authority, **login),
            "for another name",
            "mongodb.connection.string",
        ),
        "authority": (
            options(port, trusted=files.stranger, **login),
            "no known authority",
            "mongodb.ssl.truststore",
        ),
        "the system's authorities": (
            options(port, mongodb_ssl_enabled="true", **login),
            "no known authority",
            "mongodb.ssl.truststore",
        ),
        "client in the clear": (options(port, **login), "cannot be reached", "mongodb.ssl.enabled"),
    }
    with ThreadPoolExecutor(len(cases)) as threads:
        found = dict(zip(cases, threads.map(lambda case: met(case[0]), cases.values()), strict=True))
    assert found.pop("good") is None
    for name, error in found.items():
        assert error is not None, name
        assert cases[name][1] in error.message, (name, str(error))
        assert cases[name][2] in error.remedy, (name, str(error))
        assert SECRET not in str(error)


def test_a_server_in_the_clear_is_refused(mongodb: Mongo, files: Files) -> None:
    port = int(mongodb.address.rpartition(":")[2])
    error = met(options(port, trusted=files.authority, mongodb_password=SECRET, mongodb_user="me"))
    assert error is not None
    assert "mongodb.ssl.enabled" in error.remedy
    assert SECRET not in str(error)


def test_names_are_compared_unless_told_otherwise(secured: Secantus, files: Files) -> None:
    assert met(options(secured.port, "127.0.0.1", files.authority, mongodb_ssl_invalid_hostname_allowed="true")) is None


def test_a_reader_that_waits_says_what_for(caplog: pytest.LogCaptureFixture) -> None:
    """A certificate may be renewed, so the log is tried again, with the reason in the message."""
    words = "db:27017: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer"
    error = pymongo.errors.ServerSelectionTimeoutError(words)

    def read() -> None:
        raise error

    with pytest.raises(pymongo.errors.ServerSelectionTimeoutError):
        patiently(read, 1, 0, 0)
    assert "no known authority has signed" in caplog.text
    handshake = explained_error(pymongo.errors.AutoReconnect("db:1: [SSL: WRONG_VERSION_NUMBER] wrong version number"))
    assert "does not answer in TLS" in handshake.message
    asked = explained_error(pymongo.errors.AutoReconnect("db:1: [SSL] tlsv13 alert certificate required"))
    assert "mongodb.ssl.keystore" in asked.remedy


@pytest.fixture
def client(secured: Secantus, files: Files) -> Iterator[pymongo.MongoClient[dict[str, object]]]:
    """Yield a client of the test's own, whose documents are removed after the test."""
    uri = f"mongodb://localhost:{secured.port}/?directConnection=true"
    with pymongo.MongoClient(uri, tls=True, tlsCAFile=str(files.authority)) as found:
        yield found
        found.drop_database("shop")


@pytest.mark.parametrize("store", ["PEM", "PKCS12"])
@pytest.mark.parametrize("log", ["stream", "oplog"])
def test_a_snapshot_and_a_log_are_read(
    secured: Secantus,
    client: pymongo.MongoClient[dict[str, object]],
    files: Files,
    tmp_path: Path,
    log: str,
    store: str,
) -> None:
    """The first run ends at the present, and the second continues."""
    given = options(secured.port, trusted=files.authority) | {"database.include.list": "shop"}
    if store == "PKCS12":
        trust = trusted(files, tmp_path)
        given |= {"mongodb.ssl.truststore": trust, "mongodb.ssl.truststore.password": WORD}
        given["mongodb.ssl.truststore.type"] = store
    if log == "oplog":
        del given["topic.prefix"], given["mongodb.connection.string"]
        given |= {"mongodb.hosts": f"secantus/localhost:{secured.port}", "mongodb.name": "p"}
        # The set's name for its member is not the certificate's.
        given["mongodb.members.auto.discover"] = "false"
    client.shop.t.insert_one({"_id": 1})
    bounded = Capture(**given)
    try:
        bounded.planner.stop_at_present()
        assert [event["op"] for event in bounded.idle()] == ["r"]
    finally:
        bounded.close()
    running = Capture(bounded.offset, **given)
    try:
        client.shop.t.insert_one({"_id": 2})
        client.shop.t.delete_one({"_id": 1})
        assert [event["op"] for event in running.until(3)] == ["c", "d", "tombstone"]
    finally:
        running.close()


def trusted(files: Files, folder: Path) -> str:
    """Return the authority in a PKCS12 store."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    from cryptography.x509 import load_pem_x509_certificate

    authority = load_pem_x509_certificate(files.authority.read_bytes())
    store = folder / "trust.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"ca", None, None, [authority], BestAvailableEncryption(WORD.encode()))
    )
    return str(store)


def test_a_member_that_its_certificate_does_not_name_is_told(secured: Secantus, files: Files) -> None:
    """The set advertises 127.0.0.1, so a client that looks for members leaves the certificate's name."""
    given = options(secured.port, trusted=files.authority)
    given["mongodb.connection.string"] = f"mongodb://localhost:{secured.port}/?replicaSet=secantus"
    error = met(given)
    assert error is not None
    assert "for another name" in error.message
