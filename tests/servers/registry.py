"""A schema registry in memory, with as much of Confluent's and Apicurio's interfaces as the clients here use."""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Version:
    """A schema of a subject; `number` counts the versions of the subject."""

    schema_id: int
    subject: str
    number: int
    schema: str


@dataclass(slots=True)
class Registry:
    """Ids count contents, from 1. `refusal` is the HTTP status of every answer where it is not 0; `login` is the
    `user:password` that is asked for, `moved` the address that requests are sent on to. `requests` holds the methods
    and paths of all requests, `logins` what they had to prove who asks."""

    login: str = ""
    refusal: int = 0
    moved: str = ""
    versions: list[Version] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def schemas(self) -> dict[int, str]:
        """The schemas by their ids."""
        return {version.schema_id: version.schema for version in self.versions}

    @property
    def address(self) -> str:
        """The address of Confluent's interface."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def apicurio(self) -> str:
        """The address of Apicurio's interface."""
        return f"{self.address}/apis/registry/v2"

    def found(self, subject: str, schema: str) -> Version | None:
        """The subject's version with this schema."""
        return next((one for one in self.versions if (one.subject, one.schema) == (subject, schema)), None)

    def registered(self, subject: str, schema: str) -> Version:
        """The subject's version with this schema, a new one where there is none."""
        # Workers register at the same time, and each request has a thread of its own.
        with self._lock:
            found = self.found(subject, schema)
            if found is None:
                ids = {one.schema: one.schema_id for one in self.versions}
                number = ids.get(schema, len(ids) + 1)
                own = [one for one in self.versions if one.subject == subject]
                found = Version(number, subject, len(own) + 1, schema)
                self.versions.append(found)
            return found

    def __enter__(self) -> Registry:
        registry = self

        class Handler(_Handler):
            pass

        Handler.registry = registry
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # a test waits for one of these looks when it ends
        looks = {"poll_interval": 0.02}
        threading.Thread(target=self._server.serve_forever, kwargs=looks, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

    def do_GET(self) -> None:
        self._answer("")

    def _answer(self, body: str) -> None:
        registry = self.registry
        registry.requests.append(f"{self.command} {self.path}")
        registry.logins.append(self.headers.get("Authorization"))
        wanted = "Basic " + base64.b64encode(registry.login.encode()).decode()
        if registry.moved:
            self._send(302, {}, registry.moved + self.path)
        elif registry.refusal:
            self._send(registry.refusal, {"error_code": registry.refusal, "message": "it is refused"})
        elif registry.login and self.headers.get("Authorization") != wanted:
            self._send(401, {"error_code": 401, "message": "who is that?"})
        else:
            self._send(*self._result(urllib.parse.unquote(self.path), body))

    def _result(self, path: str, body: str) -> tuple[int, object]:
        registry = self.registry
        parts = path.partition("?")[0].strip("/").split("/")
        if parts[:3] == ["apis", "registry", "v2"] and self.command == "GET":
            version = [one for one in registry.versions if one.subject == parts[6]][-1]
            return 200, _facts(registry, version) if parts[7:] == ["meta"] else json.loads(version.schema)
        if parts[:3] == ["apis", "registry", "v2"]:
            version = registry.registered(self.headers["X-Registry-ArtifactId"], body)
            return 200, _facts(registry, version)
        subject = parts[1]
        if parts[2:] == ["versions", "latest"]:
            own = [one for one in registry.versions if one.subject == subject]
            return (200, _shown(own[-1])) if own else (404, {"error_code": 40401, "message": "no such subject"})
        schema = json.loads(body)["schema"]
        if parts[2:] == ["versions"]:
            return 200, _shown(registry.registered(subject, schema))
        found = registry.found(subject, schema)
        return (200, _shown(found)) if found else (404, {"error_code": 40403, "message": "no such schema"})

    def _send(self, status: int, answer: object, location: str = "") -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def _facts(registry: Registry, version: Version) -> dict[str, object]:
    number = registry.versions.index(version) + 1
    return {"contentId": version.schema_id, "globalId": number, "version": str(version.number)}


def _shown(version: Version) -> dict[str, object]:
    return {
        "id": version.schema_id,
        "subject": version.subject,
        "version": version.number,
        "schema": version.schema,
        "guid": "",
    }
