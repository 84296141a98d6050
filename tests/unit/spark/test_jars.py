"""Jars of sinks come from a directory, a repository or Maven Central, by the proxies of pip and Java."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tailrace.command import cli
from tailrace.command import jars as command
from tailrace.config.jar import Jar
from tailrace.errors import PrerequisiteError
from tailrace.sinks.kafka import KafkaSink
from tailrace.spark.startup import jars, proxies
from tailrace.spark.startup.jars import JARS, files_of

BYTES = {name: name.encode() * 100 for name in ("one", "two", "three")}
WANTED = [Jar("org.some", name, "1.0", hashlib.sha256(text).hexdigest()) for name, text in BYTES.items()]
LOGIN = "Basic " + base64.b64encode(b"me:p w").decode()


class Repository(ThreadingHTTPServer):
    """A Maven repository under /maven that wants a login, and a proxy for any other host, with another login.

    `lacks` are modules that it does not have, `asked` the paths or addresses of all requests.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.lacks: set[str] = set()
        self.asked: list[str] = []

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        proxied = self.path.startswith("http://")
        path = "/" + self.path.split("/", 3)[3] if proxied else self.path
        module = path.split("/")[-3]
        if self.headers["Proxy-Authorization" if proxied else "Authorization"] != LOGIN:
            return self.send_error(407 if proxied else 401)
        if module in self.server.lacks or path != f"/maven/org/some/{module}/1.0/{module}-1.0.jar":
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(BYTES[module])))
        self.end_headers()
        self.wfile.write(BYTES[module])
        return None

    def do_CONNECT(self) -> None:
        self.server.asked.append(self.path)
        self.send_error(502)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def repository() -> Iterator[Repository]:
    with Repository() as made:
        Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let neither the user's cache nor the machine's proxies take part."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # restored at the end, though commands set it
    monkeypatch.setenv(JARS, "")
    for name in ("http_proxy", "https_proxy", "no_proxy", "pip_proxy", "pip_cert", "java_tool_options"):
        for text in (name, name.upper()):
            monkeypatch.delenv(text, raising=False)
    monkeypatch.setattr(proxies, "_configured", lambda name: "")


def filled(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}-1.0.jar").write_bytes(BYTES[name])
    return folder


# --- a directory


def test_a_directory_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = filled(tmp_path / "jars", *BYTES)
    monkeypatch.setenv(JARS, str(place))
    assert files_of(WANTED) == [place / jar.file_name for jar in WANTED]
    assert not (tmp_path / "cache").exists()


def test_all_files_that_a_directory_lacks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = filled(tmp_path / "jars", "one")
    (place / "three-1.0.jar").write_bytes(b"other")
    monkeypatch.setenv(JARS, str(place))
    words = rf"{place} lacks two-1\.0\.jar, three-1\.0\.jar; three-1\.0\.jar is there with another SHA-256\."
    with pytest.raises(PrerequisiteError, match=words) as refused:
        files_of(WANTED)
    assert "tailrace jars --to DIR" in refused.value.remedy
    # `tailrace check` says it in the same words
    (finding,) = command.check(WANTED)
    assert (finding.level, finding.text, finding.remedy) == ("error", refused.value.message, refused.value.remedy)


def test_check_says_what_will_be_fetched(tmp_path: Path) -> None:
    filled(tmp_path / "cache").joinpath("tailrace").mkdir()
    filled(tmp_path / "cache" / "tailrace" / "jars", "one", "two")
    (finding,) = command.check(WANTED)
    assert (finding.level, finding.text) == ("ok", "To be fetched at the first start: three-1.0.jar.")
    filled(tmp_path / "cache" / "tailrace" / "jars", "three")
    assert command.check(WANTED) == []


# --- a repository


def test_a_repository_with_a_login_fills_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Repository
) -> None:
    monkeypatch.setenv(JARS, f"http://me:p%20w@{repository.place}/maven/")
    cache = tmp_path / "cache" / "tailrace" / "jars"
    assert files_of(WANTED) == [cache / jar.file_name for jar in WANTED]
    assert [(cache / jar.file_name).read_bytes() for jar in WANTED] == list(BYTES.values())
    assert len(repository.asked) == 3
    files_of(WANTED)
    assert len(repository.asked) == 3
    assert sorted(path.name for path in cache.iterdir()) == sorted(jar.file_name for jar in WANTED)


def test_all_jars_that_a_repository_lacks_are_named_and_the_login_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Repository
) -> None:
    repository.lacks = {"one", "three"}
    monkeypatch.setenv(JARS, f"http://me:p%20w@{repository.place}/maven")
    words = rf"2 jars cannot be fetched from http://{repository.place}/maven: one-1\.0\.jar, three-1\.0\.jar \(one-1"
    with pytest.raises(PrerequisiteError, match=words) as refused:
        files_of(WANTED)
    assert "me:" not in str(refused.value)
    # nothing is kept by halves: the next start asks for all of them again
    assert not (tmp_path / "cache" / "tailrace" / "jars").exists()


def test_a_jar_with_other_bytes_is_refused(monkeypatch: pytest.MonkeyPatch, repository: Repository) -> None:
    monkeypatch.setenv(JARS, f"http://me:p%20w@{repository.place}/maven")
    with pytest.raises(PrerequisiteError, match=r"1 jar of http.* another SHA-256 than expected: one-1\.0\.jar"):
        files_of([Jar("org.some", "one", "1.0", "0" * 64)])


# --- proxies


def test_a_repository_is_reached_by_the_proxy_of_pip(monkeypatch: pytest.MonkeyPatch, repository: Repository) -> None:
    monkeypatch.setenv("PIP_PROXY", f"http://me:p%20w@{repository.place}")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "elsewhere.invalid")
    monkeypatch.setenv(JARS, "http://nowhere.invalid/maven")
    monkeypatch.setattr(jars, "_is_genuine", lambda path, jar: path.is_file() and path.parent.name != "jars")
    files_of(WANTED[:1])
    assert repository.asked == ["http://nowhere.invalid/maven/org/some/one/1.0/one-1.0.jar"]


def test_a_host_without_proxy_is_reached_without(monkeypatch: pytest.MonkeyPatch, repository: Repository) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,.example.com")
    monkeypatch.setenv(JARS, f"http://me:p%20w@{repository.place}/maven")
    files_of(WANTED)
    assert repository.asked[0].startswith("/maven/")


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"HTTPS_PROXY": "http://h:1"}, {"https": "http://h:1"}),
        ({"HTTPS_PROXY": "http://h:1", "PIP_PROXY": "p:2"}, {"http": "http://p:2", "https": "http://p:2"}),
        (
            {"PIP_PROXY": "p:2", "JAVA_TOOL_OPTIONS": "-Xss1m -Dhttps.proxyHost=j -Dhttps.proxyPort=3"},
            {"https": "http://j:3"},
        ),
        ({"NO_PROXY": "a,b"}, {}),
    ],
)
def test_java_goes_before_pip_and_pip_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: dict[str, str]
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    assert proxies.proxies() == wanted
    if "JAVA_TOOL_OPTIONS" in environment:
        assert proxies.java_options(wanted) == []


def test_ivy_gets_the_proxy_and_its_login_is_in_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\ncat "${{1#@}}" > {tmp_path}/options\nexit 1\n')
    java.chmod(0o755)
    monkeypatch.setattr(jars, "find_java", lambda: (java, 17))
    monkeypatch.setenv("HTTPS_PROXY", "http://me:p%20w@proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.example.org")
    words = r"3 jars cannot be fetched from Maven Central: one-1\.0\.jar, two-1\.0\.jar, three-1\.0\.jar\."
    with pytest.raises(PrerequisiteError, match=words) as refused:
        files_of(WANTED)
    assert "tailrace jars --to DIR" in refused.value.remedy
    assert (tmp_path / "options").read_text().splitlines() == [
        '"-Dhttps.proxyHost=proxy.example.com"',
        '"-Dhttps.proxyPort=3128"',
        '"-Dhttp.proxyUser=me"',
        '"-Dhttp.proxyPassword=p w"',
        '"-Djdk.http.auth.tunneling.disabledSchemes="',
        '"-Dhttp.nonProxyHosts=localhost|*.example.org"',
    ]
    assert "p w" not in (tmp_path / "arguments").read_text()


def test_ivy_itself_goes_by_the_proxy(monkeypatch: pytest.MonkeyPatch, repository: Repository) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{repository.place}")
    monkeypatch.setattr(jars, "write_trust_store", lambda path: [])
    with pytest.raises(PrerequisiteError, match="1 jar cannot be fetched from Maven Central"):
        files_of(WANTED[:1])
    assert repository.asked
    assert all(address.endswith(":443") for address in repository.asked)


# --- the command and the option


def test_the_command_fills_a_directory_which_then_is_enough(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    repository: Repository,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "needed", lambda names: WANTED if names == ["some"] else [])
    target = tmp_path / "carried" / "jars"
    address = f"http://me:p%20w@{repository.place}/maven"
    assert cli.main(["jars", "--to", str(target), "--sink", "some", "--jars", address]) == 0
    assert capsys.readouterr().out.splitlines() == [str(target / jar.file_name) for jar in WANTED]
    monkeypatch.setenv(JARS, str(target))
    assert files_of(WANTED) == [target / jar.file_name for jar in WANTED]
    # again, from the directory itself
    assert cli.main(["jars", "--to", str(target), "--sink", "some"]) == 0
    monkeypatch.setenv(JARS, address)
    assert cli.main(["jars", "--to", str(tmp_path / "carried" / "jars" / "one-1.0.jar"), "--sink", "some"]) == 2


def test_the_jars_of_sinks_are_those_that_they_declare() -> None:
    modules = {jar.module for jar in command.needed([])}
    assert {"kafka-clients", "delta-storage", "iceberg-core"} <= modules
    assert {jar.module for jar in command.needed(["kafka"])} < modules
    assert command.needed(["file"]) == []


def test_a_jar_that_an_option_needs_is_among_those_of_its_sink_alone_and_carried_along() -> None:
    brokers = {"producer.bootstrap.servers": "b:9098"}
    module = "software.amazon.msk.auth.iam.IAMLoginModule required;"
    plain, amazons = (KafkaSink(brokers | more) for more in ({}, {"producer.sasl.jaas.config": module}))
    (further,) = set(amazons.jars) - set(plain.jars)
    assert further.file_name == "aws-msk-iam-auth-2.3.5-all.jar"
    assert set(KafkaSink(brokers | {"producer.sasl.mechanism": "AWS_MSK_IAM"}).jars) == set(amazons.jars)
    assert further in command.needed(["kafka"])


@pytest.mark.parametrize("name", ["run", "check", "verify"])
def test_commands_that_need_jars_have_the_option(name: str) -> None:
    command.apply(cli._parser().parse_args([name, "file", "--jars", "/somewhere"]))
    assert os.environ[JARS] == "/somewhere"
