"""A configuration becomes PyMongo's options, and certificate stores are read."""

from __future__ import annotations

import os
import pickle
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors import stores
from tailrace.connectors.mongodb.server.connection import Address, connect, retries
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, PrerequisiteError
from tests.servers.certificates import WORD, Authority

OLD = {"mongodb.hosts": "rs0/a:1,b:2", "mongodb.name": "x"}


def address(**options: str) -> Address:
    named = {name.replace("__", "."): text for name, text in options.items()}
    base = OLD if "mongodb.connection.string" not in named else {"topic.prefix": "x"}
    return Address.of(parse("mongodb", base | named))


def given(**options: str) -> dict[str, Any]:
    return dict(address(**options).options)


def test_hosts_become_a_connection_string() -> None:
    assert address().uri == "mongodb://a:1,b:2/?replicaSet=rs0"
    assert address(mongodb__hosts="a:1").uri == "mongodb://a:1/"
    single = address(mongodb__hosts="rs0/a:1", mongodb__members__auto__discover="false")
    assert single.uri == "mongodb://a:1/?directConnection=true"


def test_defaults_are_debeziums() -> None:
    assert given() == {
        "appname": "tailrace",
        "connectTimeoutMS": 10_000,
        "socketTimeoutMS": None,
        "serverSelectionTimeoutMS": 30_000,
        "heartbeatFrequencyMS": 10_000,
    }


def test_what_is_given_goes_before_the_string_and_that_before_defaults() -> None:
    string = "mongodb://me:secret@a/?connectTimeoutMS=7&socketTimeoutMS=8&authSource=c&appName=mine"
    assert given(mongodb__connection__string=string, mongodb__socket__timeout__ms="9") == {
        "socketTimeoutMS": 9,
        "serverSelectionTimeoutMS": 30_000,
        "heartbeatFrequencyMS": 10_000,
    }


def test_a_login() -> None:
    login = given(mongodb__user="me", mongodb__password=WORD)
    assert (login["username"], login["password"], login["authSource"]) == ("me", WORD, "admin")
    assert given(mongodb__user="me", mongodb__authsource="other")["authSource"] == "other"
    assert "authSource" not in given(mongodb__authsource="other")


def test_an_address_pickles_and_hides_its_secrets() -> None:
    made = address(mongodb__user="me", mongodb__password="hunter2", mongodb__ssl__enabled="true",
                   mongodb__ssl__keystore="/k", mongodb__ssl__keystore__password="hunter3")  # fmt: skip
    assert pickle.loads(pickle.dumps(made)) == made
    assert "hunter" not in repr(made)


def test_retries_follow_the_generation() -> None:
    assert retries(parse("mongodb", OLD)) == (-1, 0.1, 10.0)
    assert retries(parse("mongodb", OLD | {"errors.max.retries": "3"})) == (3, 0.1, 10.0)
    old = {"connect.max.attempts": "5", "connect.backoff.initial.delay.ms": "200"}
    assert retries(parse("mongodb", OLD | old)) == (4, 0.2, 120.0)


def test_what_pymongo_refuses_is_told_without_the_password() -> None:
    with pytest.raises(ConfigError) as refused:
        connect(address(mongodb__connection__string="mongodb://me:hunter2@a:notaport/"))
    assert "PyMongo refuses the connection" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    for string in (
        "mongodb://u:p@hunter2:w@h",
        "mongodb://u:p@a:hunter2/",
        "mongodb://u:hunter2@",
        "mongodb://hunter2%/",
    ):
        with pytest.raises(ConfigError) as refused:
            connect(address(mongodb__connection__string=string))
        assert "hunter2" not in str(refused.value)


# --- stores


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def secured(authority: Authority, tmp_path: Path) -> Iterator[int]:
    """Yield the port of a server that asks its clients for a certificate of the authority, and
    closes the connection."""
    server, trusted = authority.pem(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server)
    context.load_verify_locations(trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                taken, _ = listener.accept()
                with taken, context.wrap_socket(taken, server_side=True) as wrapped:
                    wrapped.sendall(b"welcome")
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join(5)


def test_pkcs12_stores_open_a_connection(authority: Authority, secured: int, tmp_path: Path) -> None:
    keys, trust = authority.pkcs12(tmp_path)
    context = ssl.create_default_context(cafile=stores.authorities(str(trust), WORD))
    context.load_cert_chain(stores.client_certificate(str(keys), WORD))
    with (
        socket.create_connection(("127.0.0.1", secured), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        assert wrapped.recv(7) == b"welcome"
    written = Path(stores.client_certificate(str(keys), WORD))
    assert written.stat().st_mode & 0o077 == 0


def test_a_decrypted_key_is_in_no_file_system(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(os, "memfd_create"):
        pytest.skip("the system has no files in memory")
    keys, _ = authority.pkcs12(tmp_path)
    empty = tmp_path / "temporary"
    empty.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(empty))
    stores._written.cache_clear()
    written = stores.client_certificate(str(keys), WORD)
    assert b"PRIVATE KEY" in Path(written).read_bytes()
    assert "memfd" in str(Path(written).readlink())
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("fault", ["no call", "refused", "no path"])
def test_without_files_in_memory_a_decrypted_key_is_in_a_file_of_this_user_alone(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    keys, _ = authority.pkcs12(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stores._written.cache_clear()
    stores._folder.cache_clear()

    def refused(*told: object) -> int:
        raise OSError(38, "Function not implemented")

    if fault == "no call":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif fault == "refused":
        monkeypatch.setattr(os, "memfd_create", refused, raising=False)
    else:
        # as where /proc is not mounted
        monkeypatch.setattr(stores, "Path", lambda name: tmp_path / "absent" if "/proc/" in str(name) else Path(name))
    written = Path(stores.client_certificate(str(keys), WORD))
    assert b"PRIVATE KEY" in written.read_bytes()
    assert tmp_path in written.parents
    assert written.stat().st_mode & 0o077 == 0
    stores._written.cache_clear()
    stores._folder.cache_clear()


@pytest.mark.parametrize(
    ("which", "password", "with_key", "reason"),
    [
        ("keys.p12", "wrong", True, "not a PKCS12 file, or has another password"),
        ("trust.p12", WORD, True, "holds no private key"),
        ("server.pem", WORD, True, "is a PEM file"),
        ("absent.p12", WORD, False, "cannot be read"),
    ],
)
def test_a_store_that_cannot_be_used_is_told(
    authority: Authority, tmp_path: Path, which: str, password: str, with_key: bool, reason: str
) -> None:
    authority.pkcs12(tmp_path)
    authority.pem(tmp_path)
    read = stores.client_certificate if with_key else stores.authorities
    with pytest.raises(PrerequisiteError, match=reason):
        read(str(tmp_path / which), password)


def test_a_missing_file_of_certificates_is_told(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError):
        connect(address(mongodb__ssl__enabled="true", mongodb__ssl__truststore=str(tmp_path / "x.p12")))
