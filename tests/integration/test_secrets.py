"""With a marker in every secret of a running pipeline, no page of Spark, no file and no output shows the marker.

Over the tests' session, the tests search Spark's events, of which its pages are made, and its files.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import pipeline
from tailrace.command import cli
from tailrace.pipeline import Pipeline
from tdsserver.process import TestDatabase, TestServer
from tests import fix_invariant
from tests.extent import by_day, is_full, turn
from tests.fix_db2 import Db2Database
from tests.fix_kafka import Kafka
from tests.fix_mongodb import running
from tests.fix_postgres import Database
from tests.servers.listening import BROKER, listening
from tests.servers.nats import NatsServer
from tests.servers.redis import RedisServer
from tests.servers.secantus import SET_NAME, Secantus
from tests.servers.web import Request, WebServer
from tests.waiting import until

MARKER = "hunter2marker"
PATIENCE_S = 600
_JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{MARKER}";'
_LINK = re.compile(r"""(?:href|src)=["'](?:http://[^/"']+)?(/[^"'#]*)""")
_OTHERS = re.compile(r"kill|[sS]ort=|pageSize=")
"""Links that end a job, or show the same table in another order."""
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
        """Wait until a page matches the expression."""

        def is_held() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"{path} never held {expression}: {self.process.communicate()}")
            try:
                return re.search(expression, self.get(path)) is not None
            except OSError:
                return False

        until(is_held, f"{expression} at {path}", PATIENCE_S, pace=0.1)

    def pages(self) -> dict[str, str]:
        """Return all linked pages of Spark, and the answers of its REST interface, by address."""
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
                # A job that has ended meanwhile, or a page that this Spark does not have.
                found[path] = error.read().decode("utf-8", "replace")
            links = {link.replace("&amp;", "&") for link in _LINK.findall(found[path])}
            asked += [link for link in sorted(links) if _PAGES.match(link) and not _OTHERS.search(link)]
        assert not asked, sorted(found)
        return found

    def end(self) -> tuple[str, str]:
        """Stop the run like an administrator. Return its output."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def commands() -> Iterator[list[Command]]:
    """Yield the list of commands that a test starts, and end them after it."""
    made: list[Command] = []
    yield made
    for one in made:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()


def file_of(folder: Path, entries: dict[str, str]) -> Path:
    """Write the file that describes a pipeline."""
    file = folder / "application.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in entries.items()).replace("\\", "\\\\"))
    return file


def run(commands: list[Command], folder: Path, entries: dict[str, str], *arguments: str) -> Command:
    file = file_of(folder, entries)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "events").mkdir(exist_ok=True)
    shown = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        # The source of Spark's history server about a finished run.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        # Logical plans as well, which name the options of sources and sinks.
        "spark.sql.ui.explainMode": "extended",
    }
    settings = [part for name, value in shown.items() for part in ("--conf", f"{name}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace.command.cli", "run", str(file), *settings, *arguments],
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
    """Return every file of the checkpoint and of the sink, and Spark's event log."""
    places = [folder / ".tailrace", folder / "out", folder / "events"]
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def logged(files: dict[str, bytes]) -> bytes:
    """Return Spark's event log among `files`."""
    return b"".join(content for place, content in files.items() if place.startswith("events/"))


def holding(texts: dict[str, str] | dict[str, bytes]) -> list[str]:
    """Return the places of the texts that hold the marker."""
    found = []
    for place, text in texts.items():
        raw = text.encode() if isinstance(text, str) else text
        if MARKER.encode() in raw or MARKER.encode() in place.encode():
            found.append(place)
    return found


def follow(command: Command, *kinds: str) -> None:
    """Assert that a pipeline that has written a batch shows no marker, while it runs and after a regular end.

    `kinds` are files that it has written then, besides those of the checkpoint.
    """
    command.wait(r"(?s)shop.*StreamingQuery/statistics", "/StreamingQuery/")
    commits = command.folder / ".tailrace" / "shop" / "commits" / "0"
    until(lambda: commits.exists() or command.process.poll() is not None, "a commit", PATIENCE_S)
    command.wait(r"== Physical Plan ==", "/SQL/execution/?id=0")
    pages = command.pages()
    # The pages are those of this query, with its settings, its plan and its progress.
    assert any("spark.redaction.regex" in text for path, text in pages.items() if path.endswith("/environment"))
    assert any("== Physical Plan ==" in text for path, text in pages.items() if path.startswith("/SQL/execution"))
    assert any(path.startswith("/StreamingQuery/statistics") for path in pages)
    assert holding(pages) == []
    assert holding({"processes": processes(command)}) == []
    printed, said = command.end()
    assert command.process.returncode == 0, said
    files = written(command.folder)
    for kind in ("offsets/0", "commits/0", "metadata", *kinds):
        assert any(kind in name for name in files), (kind, sorted(files))
    assert b"SparkListenerSQLExecutionEnd" in logged(files)
    assert holding({"stdout": printed, "stderr": said}) == []
    assert holding(files) == []


def processes(command: Command) -> str:
    """Return the command lines of the run's processes, which everybody on the machine may list."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    found, family = [], {command.process.pid}
    while grown := [row for row in rows if row not in found and {int(row[0]), int(row[1])} & family]:
        found += grown
        family |= {int(row[0]) for row in grown}
    text = "\n".join(row[2] for row in found)
    assert "org.apache.spark" in text, text
    return text


def fails(commands: list[Command], folder: Path, entries: dict[str, str], code: int) -> None:
    """Assert that a run that fails at its start does not show the marker, with any verbosity."""
    for arguments in ((), ("--debug",)):
        # One after the other, because a run holds its checkpoint from the beginning.
        command = run(commands, folder, entries, *arguments)
        printed, said = command.process.communicate(timeout=PATIENCE_S)
        assert said
        assert holding({"stdout": printed, "stderr": said}) == []
        assert command.process.returncode == (1 if arguments else code), said


@dataclass(frozen=True)
class Told:
    """The entries of a file for a source whose secrets hold the marker, entries that its server refuses, and the exit
    code for them."""

    entries: dict[str, str]
    refused: dict[str, str]
    code: int


@pytest.fixture
def postgres_told(database: Database, tmp_path: Path) -> Iterator[Told]:
    """Return entries for a table, with a user whose password is the marker."""
    user = f"u_{secrets.token_hex(4)}"
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t values (1, 'a'), (2, 'b')",
        f"create role {user} superuser login password '{MARKER}'",
    )
    slot = database.name.lower()
    fix_invariant.watch(database.server.dsn(), slot, fix_invariant.committed_in(tmp_path / ".tailrace" / "shop"))
    options = database.options(topic_prefix="shop") | {
        "slot.name": slot,
        "database.user": user,
        "database.password": MARKER,
        "database.sslpassword": MARKER,
        "database.initial.statements": f"select '{MARKER}'",
        "column.mask.hash.SHA-256.with.salt." + MARKER: "public.t.v",
        "signal.consumer.sasl.jaas.config": _JAAS,
    }
    yield Told(source("postgresql.Postgres", options), {"debezium.source.database.user": "nobody_here"}, 3)
    database.execute(f"drop owned by {user}", f"drop role {user}")


@pytest.fixture
def mongodb_told(make_secantus: Callable[..., Secantus]) -> Told:
    """Return entries for a collection, with a user whose password is the marker."""
    server = make_secantus()
    with running(server).client() as client:
        client.shop.t.insert_many([{"_id": 1}, {"_id": 2}])
        client.admin.command({"createUser": "capture", "pwd": MARKER, "roles": ["root"]})
    server.stop()
    server.options = ("--auth",)
    server.start()
    name = "debezium.source.mongodb.connection.string"
    options = {
        "mongodb.connection.string": f"mongodb://capture:{MARKER}@{server.address}/?replicaSet={SET_NAME}",
        "mongodb.ssl.keystore.password": MARKER,
        "mongodb.ssl.truststore.password": MARKER,
        "signal.consumer.sasl.jaas.config": _JAAS,
        "topic.prefix": "shop",
        "database.include.list": "shop",
    }
    entries = source("mongodb.MongoDb", options)
    return Told(entries, {name: entries[name].replace("capture:", "nobody_here:")}, 3)


@pytest.fixture
def db2_told(db2: Db2Database) -> Told:
    """Return entries for a table and a user of Derby, which accepts any password."""
    db2.execute("CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL PRIMARY KEY, V VARCHAR(10))")
    db2.capture.register("INVENTORY", "T")
    db2.capture.run("INSERT INTO INVENTORY.T VALUES (1, 'a')")
    options = db2.options(topic_prefix="shop") | {
        "database.password": MARKER,
        "driver.SSLClientKeystoreDBPassword": MARKER,
        "column.mask.hash.SHA-256.with.salt." + MARKER: "INVENTORY.T.V",
        "signal.consumer.sasl.jaas.config": _JAAS,
    }
    return Told(source("db2.Db2", options), {"debezium.source.database.dbname": "NOWHERE"}, 4)


@pytest.fixture
def sqlserver_told(sqlserver: TestServer, sqlserver_database: TestDatabase) -> Iterator[Told]:
    """Return entries for a table, with a login whose password is the marker."""
    login = f"l_{secrets.token_hex(4)}"
    sqlserver.execute(f"create login [{login}] with password = '{MARKER}'")
    sqlserver_database.execute(
        "create table t (id int not null primary key, v varchar(10))",
        f"create user [{login}] for login [{login}]",
        f"alter role db_owner add member [{login}]",
    )
    sqlserver_database.enable("t")
    sqlserver_database.execute("insert into t values (1, 'a'), (2, 'b')")
    sqlserver_database.capture()
    options = sqlserver_database.options(topic_prefix="shop") | {
        "database.user": login,
        "database.password": MARKER,
        "driver.encrypt": "false",
        "column.mask.hash.SHA-256.with.salt." + MARKER: f"{sqlserver_database.name}.dbo.t.v",
    }
    yield Told(source("sqlserver.SqlServer", options), {"debezium.source.database.user": "nobody_here"}, 3)
    sqlserver_database.execute(f"drop user [{login}]")
    sqlserver.execute(f"drop login [{login}]")


def producer(**options: str) -> dict[str, str]:
    """Return entries for the Kafka sink with the marker in each of the producer's secrets."""
    named = {name.replace("_", "."): text for name, text in options.items()}
    named |= {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": _JAAS,
        "ssl.key.password": MARKER,
        "ssl.keystore.key": MARKER,
        "ssl.keystore.password": MARKER,
        "ssl.truststore.password": MARKER,
    }
    entries = {f"debezium.sink.kafka.producer.{name}": text for name, text in named.items()}
    return {"debezium.sink.type": "kafka"} | entries


def sunk(**options: str) -> dict[str, str]:
    """Return entries of a sink, with underscores for dots."""
    return {f"debezium.sink.{name.replace('__', '-').replace('_', '.')}": text for name, text in options.items()}


@pytest.fixture
def file_sink(tmp_path: Path) -> Told:
    """Return entries for files, and for a path that is refused because it belongs to no file system."""
    return Told(sunk(type="file", file_path=str(tmp_path / "out")), sunk(file_path="nowhere://x/out"), 8)


@pytest.fixture
def kafka_sink(kafka: Kafka) -> Iterator[Told]:
    """Return entries for created topics, and for brokers that only accept connections."""
    creation = {f"debezium.source.topic.creation.default.{name}": "1" for name in ("partitions", "replication.factor")}
    with listening(BROKER) as deaf:
        away = producer(bootstrap_servers=deaf, security_protocol="SASL_PLAINTEXT", max_block_ms="2000")
        away["debezium.source.topic.creation.enable"] = "false"
        yield Told(creation | producer(bootstrap_servers=kafka.servers), away, 8)


@pytest.fixture
def redis_sink(redis_program: None) -> Iterator[Told]:
    with RedisServer("--requirepass", MARKER) as server:
        given = sunk(type="redis", redis_address=server.address, redis_password=MARKER)
        yield Told(given, sunk(redis_password=f"{MARKER}2"), 8)


@pytest.fixture
def nats_sink(nats_program: None) -> Iterator[Told]:
    """Return entries with the login in the URL, which is an option whose name does not reveal a secret."""
    with NatsServer(f"authorization {{ user: cdc, password: {MARKER} }}", user="cdc", password=MARKER) as server:
        url = f"nats://cdc:{MARKER}@127.0.0.1:{server.port}"
        given = {"url": url, "create-stream": "true", "subjects": "shop,shop.>"}
        entries = {f"debezium.sink.nats-jetstream.{name}": text for name, text in given.items()}
        entries["debezium.sink.type"] = "nats-jetstream"
        yield Told(entries, {"debezium.sink.nats-jetstream.url": url.replace(MARKER, f"{MARKER}2")}, 8)


@pytest.fixture
def http_sink() -> Iterator[Told]:
    """Return entries for a server that gives a token for the marker, and a path that it refuses with the marker in its
    answer."""

    def answer(request: Request) -> tuple[int, bytes]:
        if request.path == "/token":
            return 200, json.dumps({"access_token": f"token-{MARKER}"}).encode()
        if request.path.startswith("/refused"):
            return 403, MARKER.encode()
        return (200 if request.header("authorization") == f"Bearer token-{MARKER}" else 401), b""

    with WebServer(answer) as server:
        login = {"client_id": "me", "client_secret": MARKER, "token_url": f"{server.url}/token"}
        entries = {f"debezium.sink.http.authentication.oauth2.{name}": text for name, text in login.items()}
        entries |= sunk(type="http", http_url=f"{server.url}/?key={MARKER}", http_authentication_type="oauth2")
        yield Told(entries, sunk(http_url=f"{server.url}/refused?key={MARKER}", http_retries="0"), 8)
        assert any(request.path.startswith("/?key=") for request in server.requests)


@pytest.fixture
def jdbc_sink(database: Database) -> Iterator[Told]:
    role = f"w_{secrets.token_hex(4)}"
    database.execute(f"create role {role} login superuser password '{MARKER}'")
    place = f"{database.server.host}:{database.server.port}/{database.name}"
    entries = sunk(
        type="jdbc",
        jdbc_connection_url=f"jdbc:postgresql://{place}?password={MARKER}",
        jdbc_connection_username=role,
        jdbc_connection_password=MARKER,
        jdbc_schema_evolution="basic",
    )
    yield Told(
        entries | {"debezium.format.schemas.enable": "true"},
        sunk(jdbc_schema_evolution="none", jdbc_table_name_format="nowhere"),
        8,
    )
    database.execute(f"drop owned by {role} cascade; drop role {role}")


PAIRS = [
    ("postgres", "jdbc"),
    ("mongodb", "redis"),
    ("db2", "http"),
    ("sqlserver", "kafka"),
    ("sqlserver", "nats"),
    ("db2", "file"),
]
"""Each source, each sink."""


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Return a function for Spark's log of the events of this test, which waits until all are written."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext._jsc.sc()
    folder = tmp_path / "events"
    folder.mkdir()
    place = jvm.java.net.URI(folder.as_uri())
    conf = context.getConf().set("spark.eventLog.compress", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        context.applicationId(), jvm.scala.Option.empty(), place, conf, context.hadoopConfiguration()
    )
    listener.start()
    context.addSparkListener(listener)
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    yield context.listenerBus().waitUntilEmpty
    spark.conf.unset("spark.sql.ui.explainMode")
    context.removeSparkListener(listener)
    listener.stop()


@pytest.mark.parametrize(("connector", "sink"), by_day(PAIRS, 4))
def test_a_session_is_told_no_secret(
    connector: str,
    sink: str,
    spark: SparkSession,
    events: Callable[[], None],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run delivers, another one is ended by its sink, and a third one is refused by its server."""
    told: Told = request.getfixturevalue(f"{connector}_told")
    place: Told = request.getfixturevalue(f"{sink}_sink")
    monkeypatch.setattr(pipeline, "Pipeline", lambda run, **_: Pipeline(run, spark))

    def run_here(folder: Path, entries: dict[str, str]) -> int:
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        code = cli.main(["run", str(file_of(folder, entries)), "--once"])
        assert holding(dict(zip(("stdout", "stderr"), capsys.readouterr(), strict=True))) == []
        return code

    entries = told.entries | place.entries
    assert run_here(tmp_path, entries) == 0
    assert run_here(tmp_path / "again", entries | place.refused) == place.code
    assert run_here(tmp_path / "refused", entries | told.refused) == told.code
    events()
    files = written(tmp_path) | written(tmp_path / "again")
    assert any(name.endswith("commits/0") for name in files)
    assert b"SparkListenerSQLExecutionEnd" in logged(files)
    assert b"== Analyzed Logical Plan ==" in logged(files)
    assert holding(files) == []


@turn(0, 6)
def test_a_process_shows_no_secret(
    commands: list[Command], postgres_told: Told, file_sink: Told, tmp_path: Path
) -> None:
    entries = postgres_told.entries | file_sink.entries
    follow(run(commands, tmp_path, entries), "out/batch-")
    if is_full():
        fails(commands, tmp_path, entries | postgres_told.refused, postgres_told.code)


@pytest.mark.full
@pytest.mark.parametrize(("connector", "sink"), PAIRS)
def test_a_process_of_each_source_and_sink_shows_none(
    connector: str, sink: str, commands: list[Command], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    told: Told = request.getfixturevalue(f"{connector}_told")
    place: Told = request.getfixturevalue(f"{sink}_sink")
    entries = told.entries | place.entries
    follow(run(commands, tmp_path, entries))
    ends(commands, tmp_path / "again", entries | place.refused, place.code)
    fails(commands, tmp_path, entries | told.refused, told.code)


def ends(commands: list[Command], folder: Path, entries: dict[str, str], code: int) -> None:
    """Assert that a run that its sink ends does not show the marker, and that Spark keeps nothing of it."""
    folder.mkdir()
    command = run(commands, folder, entries)
    printed, said = command.process.communicate(timeout=PATIENCE_S)
    assert command.process.returncode == code, said
    assert holding({"stdout": printed, "stderr": said}) == []
    assert holding(written(folder)) == []


@pytest.mark.full
def test_signals_of_kafka(commands: list[Command], sqlserver_told: Told, kafka: Kafka, tmp_path: Path) -> None:
    # A client that the brokers refuse, beside a producer that they accept.
    signals = {
        "signal.enabled.channels": "kafka",
        "signal.kafka.bootstrap.servers": "127.0.0.1:1",
        "signal.consumer.security.protocol": "SASL_PLAINTEXT",
        "signal.consumer.sasl.mechanism": "PLAIN",
        "signal.consumer.sasl.jaas.config": _JAAS,
    }
    entries = sqlserver_told.entries | {f"debezium.source.{name}": text for name, text in signals.items()}
    follow(run(commands, tmp_path, entries | producer(bootstrap_servers=kafka.servers)))
    fails(commands, tmp_path, entries | producer(bootstrap_servers="127.0.0.1:1") | sqlserver_told.refused, 3)


@pytest.mark.full
def test_brokers_that_are_away(commands: list[Command], sqlserver_told: Told, tmp_path: Path) -> None:
    """The query ends with an error of Spark's, which shows its plan."""
    with listening(BROKER) as deaf:
        away = producer(bootstrap_servers=deaf, security_protocol="SASL_PLAINTEXT", max_block_ms="2000")
        command = run(commands, tmp_path, sqlserver_told.entries | away, "--debug")
        printed, said = command.process.communicate(timeout=PATIENCE_S)
    assert command.process.returncode == 1
    assert "Traceback" in said
    assert "not present in metadata" in said
    files = written(tmp_path)
    assert b"JobFailed" in logged(files)
    assert holding({"stdout": printed, "stderr": said}) == []
    assert holding(files) == []
