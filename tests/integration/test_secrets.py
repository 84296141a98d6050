"""A marker in every secret of a pipeline at work: no page of Spark, no file of it and nothing printed shows it."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import fix_invariant
from tests.fix_postgres import Database

MARKER = "hunter2marker"
PATIENCE_S = 600
_JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{MARKER}";'
_LINK = re.compile(r"""(?:href|src)=["'](?:http://[^/"']+)?(/[^"'#]*)""")
_PAGES = re.compile(r"/(?:jobs|stages|storage|environment|executors|SQL|StreamingQuery)(?:/|$)")


@dataclass
class Command:
    """`tailrace run` in a process of its own, with Spark's pages at `port`."""

    folder: Path
    process: subprocess.Popen[str]
    port: int

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return str(answer.read().decode("utf-8", "replace"))

    def wait(self, expression: str, path: str) -> None:
        """Until a page holds what the expression matches."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if re.search(expression, self.get(path)):
                    return
            except (OSError, urllib.error.HTTPError):
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"{path} never held {expression}: {self.process.communicate()}")
            time.sleep(0.2)

    def pages(self) -> dict[str, str]:
        """Every page of Spark's that leads from one to the next, and what its REST interface says, by address."""
        (application,) = json.loads(self.get("/api/v1/applications"))
        rest = f"/api/v1/applications/{application['id']}"
        asked = [f"{rest}/{name}" for name in ("environment", "jobs", "stages?details=true", "allexecutors")]
        asked += [f"{rest}/sql?details=true&planDescription=true&length=1000", f"{rest}/storage/rdd", rest]
        asked += ["/environment/", "/jobs/", "/stages/", "/executors/", "/SQL/", "/StreamingQuery/", "/storage/"]
        found: dict[str, str] = {}
        while asked and len(found) < 200:
            path = asked.pop()
            if path in found:
                continue
            try:
                found[path] = self.get(path)
            except urllib.error.HTTPError as error:
                # a job that has ended meanwhile, or a page that this Spark has not
                found[path] = error.read().decode("utf-8", "replace")
            links = {link.replace("&amp;", "&") for link in _LINK.findall(found[path])}
            asked += [link for link in sorted(links) if _PAGES.match(link) and "kill" not in link]
        return found

    def end(self) -> tuple[str, str]:
        """Stop the run as an administrator does; what it has printed."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def commands() -> Iterator[list[Command]]:
    """Those that a test has started; none of them outlives it."""
    made: list[Command] = []
    yield made
    for one in made:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()


def run(commands: list[Command], folder: Path, entries: dict[str, str], *arguments: str) -> Command:
    file = folder / "application.properties"
    text = "".join(f"{name}={value}\n" for name, value in entries.items()).replace("\\", "\\\\")
    file.write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shown = ["--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={port}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace.cli", "run", str(file), *shown, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    commands.append(Command(folder, process, port))
    return commands[-1]


def source(connector: str, options: dict[str, str]) -> dict[str, str]:
    found = {f"debezium.source.{name}": text for name, text in options.items()}
    found["debezium.source.connector.class"] = f"io.debezium.connector.{connector}Connector"
    return found | {"debezium.format.schemas.enable": "false"}


def written(folder: Path) -> dict[str, bytes]:
    """Every file of the checkpoint and of the sink."""
    places = [folder / ".tailrace", folder / "out"]
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def holding(texts: dict[str, str] | dict[str, bytes]) -> list[str]:
    """The places of the texts that hold the marker."""
    found = []
    for place, text in texts.items():
        raw = text.encode() if isinstance(text, str) else text
        if MARKER.encode() in raw or MARKER.encode() in place.encode():
            found.append(place)
    return found


def follow(command: Command, name: str) -> None:
    """A pipeline that has written a batch shows the marker nowhere, at work and after a regular end."""
    command.wait(rf"(?s){name}.*StreamingQuery/statistics", "/StreamingQuery/")
    out = command.folder / "out"
    deadline = time.monotonic() + PATIENCE_S
    while not list(out.glob("batch-*.jsonl")) and time.monotonic() < deadline and command.process.poll() is None:
        time.sleep(0.2)
    time.sleep(0.5)
    pages = command.pages()
    # the pages are those of this query, with its settings, its plan and its progress
    assert any("spark.redaction.regex" in text for path, text in pages.items() if path.endswith("/environment"))
    assert any("== Physical Plan ==" in text for path, text in pages.items() if path.startswith("/SQL/execution"))
    assert any(path.startswith("/StreamingQuery/statistics") for path in pages)
    assert holding(pages) == []
    printed, said = command.end()
    assert command.process.returncode == 0, said
    files = written(command.folder)
    for kind in ("offsets/0", "commits/0", "metadata", "out/batch-"):
        assert any(kind in name for name in files), (kind, sorted(files))
    assert holding({"stdout": printed, "stderr": said}) == []
    assert holding(files) == []


def fails(commands: list[Command], folder: Path, entries: dict[str, str], code: int) -> None:
    """A run that does not come about says nothing of the marker, whatever it is asked to say."""
    started = [run(commands, folder, entries, *arguments) for arguments in ((), ("--debug",))]
    for command in started:
        printed, said = command.process.communicate(timeout=PATIENCE_S)
        assert said
        assert holding({"stdout": printed, "stderr": said}) == []
    assert started[0].process.returncode == code


def to_files(folder: Path) -> dict[str, str]:
    return {"debezium.sink.type": "file", "debezium.sink.file.path": str(folder / "out")}


@pytest.fixture
def told(database: Database, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Options for a table of PostgreSQL, whose user has the marker for a password."""
    user = f"u_{secrets.token_hex(4)}"
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t values (1, 'a'), (2, 'b')",
        f"create role {user} superuser login password '{MARKER}'",
    )
    slot = database.name.lower()
    fix_invariant.watch(database.server.dsn(), slot, fix_invariant.committed_in(tmp_path / ".tailrace" / "shop"))
    yield database.options(topic_prefix="shop") | {
        "slot.name": slot,
        "database.user": user,
        "database.password": MARKER,
        "database.sslpassword": MARKER,
        "database.initial.statements": f"select '{MARKER}'",
        "column.mask.hash.SHA-256.with.salt." + MARKER: "public.t.v",
        "signal.consumer.sasl.jaas.config": _JAAS,
    }
    database.execute(f"drop owned by {user}", f"drop role {user}")


def test_postgres(commands: list[Command], told: dict[str, str], tmp_path: Path) -> None:
    entries = source("postgresql.Postgres", told) | to_files(tmp_path)
    follow(run(commands, tmp_path, entries), "shop")
    fails(commands, tmp_path, entries | {"debezium.source.database.user": "nobody_here"}, 3)
