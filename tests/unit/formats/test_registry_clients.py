"""The clients of registries ask in each interface's form, and tell refusals from outages."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tailrace.errors import ConnectionFailed, PrerequisiteError, RegistryError
from tailrace.formats.registry import apicurio, confluent
from tailrace.formats.registry.base import RegistryUnanswered
from tailrace.formats.registry.options import Access, Registry
from tests.servers.web import Request, WebServer

SCHEMA = '{"type": "string"}'


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as found:
        yield found


def registry(web: WebServer, version: int = 3, **more: Any) -> tuple[apicurio.Client, Registry]:
    access = Access(f"{web.url}/apis/registry/v{version}", user="u", password="p")
    given = {"group": "my group", "is_global": True, **more}
    found = Registry("apicurio", "value", "value.converter.apicurio.registry.url", access, True, False, "", **given)
    return apicurio.Client(access), found


def answering(status: int, answer: Any) -> Any:
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return lambda _: (status, text)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("", "FIND_OR_CREATE_VERSION"),
        ("RETURN", "FIND_OR_CREATE_VERSION"),
        ("RETURN_OR_UPDATE", "FIND_OR_CREATE_VERSION"),
        ("UPDATE", "CREATE_VERSION"),
        ("FAIL", "FAIL"),
    ],
)
def test_version_3_registers_an_artifact_with_its_first_version(web: WebServer, given: str, asked: str) -> None:
    web.answers = answering(200, {"version": {"globalId": 7, "contentId": 8}})
    client, known = registry(web, if_exists=given)
    assert client.register(known, "a/b", SCHEMA, "AVRO") == 7
    (request,) = web.requests
    assert (request.method, request.path) == (
        "POST", f"/apis/registry/v3/groups/my%20group/artifacts?ifExists={asked}",
    )  # fmt: skip
    assert json.loads(request.body) == {
        "artifactId": "a/b",
        "artifactType": "AVRO",
        "firstVersion": {"content": {"content": SCHEMA, "contentType": "application/json"}},
    }
    assert request.header("authorization") == "Basic dTpw"


def test_version_3_finds_a_version_by_its_content(web: WebServer) -> None:
    web.answers = answering(200, {"versions": [{"globalId": 7, "contentId": 8}, {"globalId": 9, "contentId": 8}]})
    client, known = registry(web, is_global=False)
    assert client.find(known, "a", SCHEMA, "AVRO") == 8
    (request,) = web.requests
    assert request.body == SCHEMA.encode()
    assert urlsplit(request.path).path == "/apis/registry/v3/search/versions"
    assert parse_qs(urlsplit(request.path).query) == {
        "artifactId": ["a"], "groupId": ["my group"], "artifactType": ["AVRO"], "orderby": ["globalId"],
    }  # fmt: skip


def test_version_3_tells_that_no_version_has_the_content(web: WebServer) -> None:
    web.answers = answering(200, {"versions": []})
    client, known = registry(web)
    with pytest.raises(RegistryError, match=r"HTTP 404\): no version has this content"):
        client.find(known, "a", SCHEMA, "AVRO")


def test_version_3_returns_the_newest_version_of_the_branch(web: WebServer) -> None:
    def answers(request: Request) -> tuple[int, bytes]:
        return 200, SCHEMA.encode() if request.path.endswith("/content") else b'{"globalId": 5, "contentId": 4}'

    web.answers = answers
    client, known = registry(web)
    assert client.latest(known, "a/b") == (5, SCHEMA)
    place = "/apis/registry/v3/groups/my%20group/artifacts/a%2Fb/versions/branch=latest"
    assert [request.path for request in web.requests] == [place, f"{place}/content"]


def test_version_2_finds_an_artifact_by_its_content(web: WebServer) -> None:
    web.answers = answering(200, {"globalId": 7, "contentId": 8})
    client, known = registry(web, version=2)
    assert client.find(known, "a/b", SCHEMA, "AVRO") == 7
    assert web.requests[0].path == "/apis/registry/v2/groups/my%20group/artifacts/a%2Fb/meta"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"message": "no such rule"}, "no such rule"),
        ({"title": "a bad rule"}, "a bad rule"),
        (["odd"], r"\[\"odd\"\]"),
        (b"<html>\n  none</html>", "<html> none</html>"),
    ],
)
def test_a_refusal_says_what_the_registry_has_said(web: WebServer, answer: Any, said: str) -> None:
    web.answers = answering(409, answer)
    client, known = registry(web)
    with pytest.raises(RegistryError, match=rf"refuses the schema of the subject a \(HTTP 409\): {said}"):
        client.register(known, "a", SCHEMA, "AVRO")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_outage_may_be_over_at_the_next_try(web: WebServer, status: int) -> None:
    web.answers = answering(status, {})
    client, known = registry(web)
    with pytest.raises(RegistryUnanswered, match=f"HTTP {status}"):
        client.latest(known, "a")


def test_a_registry_that_nobody_serves_or_that_hangs_up_may_come_back(web: WebServer) -> None:
    client, known = registry(web)
    web.answers = lambda _: (0, b"")
    with pytest.raises(RegistryUnanswered):
        client.latest(known, "a")
    access = Access("http://127.0.0.1:1/apis/registry/v3")
    with pytest.raises(RegistryUnanswered, match="refused"):
        apicurio.Client(access).latest(known, "a")


def test_a_registry_behind_tls_needs_files_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        apicurio.Client(Access("https://r/v3", trusted=str(tmp_path / "ca.pem")))
    with pytest.raises(OSError, match="No such file"):
        apicurio.Client(Access("https://r/v3", certificate=str(tmp_path / "a.pem"), key=str(tmp_path / "a.key")))


# --- Confluent's client -----------------------------------------------------------------------------------------------


def test_the_registry_of_confluent_is_asked_with_login_and_certificates() -> None:
    access = Access(
        "https://r", user="u", password="p", trusted="ca.pem", certificate="a.pem", key="a.key", key_password="k"
    )
    assert confluent._settings(access) == {
        "url": "https://r", "timeout": 30, "max.retries": 0, "basic.auth.user.info": "u:p",
        "ssl.ca.location": "ca.pem", "ssl.certificate.location": "a.pem", "ssl.key.location": "a.key",
        "ssl.key.password": "k",
    }  # fmt: skip


def test_a_fixed_token_is_given_with_its_cluster() -> None:
    bearer = (("bearer.auth.token", "t"), ("bearer.auth.logical.cluster", "lsrc-1"))
    made = confluent._settings(Access("http://r", bearer=bearer))
    assert made["bearer.auth.credentials.source"] == "STATIC_TOKEN"
    assert {name: made[name] for name, _ in bearer} == dict(bearer)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionFailed("The program of the token has failed.", "Mend it."), "The program of the token has failed."),
        (ConnectionResetError(), "ConnectionResetError"),
        (type("ConnectError", (type("TransportError", (Exception,), {}),), {})(), "ConnectError"),
    ],
)
def test_faults_of_the_transport_may_be_over_at_the_next_try(error: Exception, said: str) -> None:
    access = Access("http://r")
    known = Registry("confluent", "value", "value.converter.schema.registry.url", access, True, False, "")

    def fails(*_: Any) -> Any:
        raise error

    client = confluent.Client(access)
    client._client = type("Asked", (), {"lookup_schema": fails})()
    with pytest.raises(RegistryUnanswered, match=said):
        client.find(known, "a", SCHEMA, "AVRO")


def test_a_fault_of_the_program_is_no_outage() -> None:
    client = confluent.Client(Access("http://r"))
    with pytest.raises(ZeroDivisionError):
        client._asked(None, "a", lambda: 1 // 0)  # type: ignore[arg-type]


def test_without_the_client_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        if name.startswith("confluent_kafka"):
            raise ImportError("No module named 'confluent_kafka'")
        return find(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(PrerequisiteError, match="cannot be imported: No module named") as caught:
        confluent.Client(Access("http://r"))
    assert "[avro]" in caught.value.remedy
