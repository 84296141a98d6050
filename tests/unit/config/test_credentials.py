"""Passwords that a program or a cloud gives at each login. The clouds' own clients ask stubs of their servers."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from tailrace.config import credentials
from tailrace.config.credentials import LEFT_OUT, Credential, without_secrets
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError, TailraceError
from tests.waiting import until

MARKER = "hunter2marker"
GIVEN = {"database.hostname": "db.example", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
TLS = {"database.sslmode": "verify-full"}


def of(**options: str) -> Credential:
    named = {f"database.{name.replace('_', '.')}": text for name, text in options.items()}
    return Credential.of(parse("postgres", GIVEN | TLS | named))


_PLACES = {"sqlserver": {"database.names": "d"}, "mysql": {}, "mariadb": {}}


@pytest.mark.parametrize("connector", ["postgres", "sqlserver", "db2", "mysql", "mariadb"])
def test_a_program_is_asked_at_every_login(connector: str, tmp_path: Path) -> None:
    place = _PLACES.get(connector, {"database.dbname": "d"})
    file = tmp_path / "of the day"
    given = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p", **place}
    found = Credential.of(parse(connector, given | {"database.password.command": f"cat '{file}'"}))
    for password in ("one", " two {} ", "dréi\n"):
        file.write_text(f"{password}\n", encoding="utf-8")
        assert pickle.loads(pickle.dumps(found)).password() == password
    assert found.option == "database.password.command"


def test_mongodb_has_an_option_of_its_own() -> None:
    given = {"mongodb.connection.string": "mongodb://h", "mongodb.user": "u", "topic.prefix": "p"}
    found = Credential.of(parse("mongodb", given | {"mongodb.password.command": "echo one"}), "mongodb.")
    assert (found.password(), found.option, found.is_fixed) == ("one", "mongodb.password.command", False)
    with pytest.raises(ConfigError, match=r"mongodb\.password\.command and mongodb\.password both give"):
        parse("mongodb", given | {"mongodb.password.command": "echo one", "mongodb.password": MARKER})
    del given["mongodb.user"]
    with pytest.raises(ConfigError, match=r"mongodb\.password\.command is given without mongodb\.user"):
        parse("mongodb", given | {"mongodb.password.command": "echo one"})


def test_no_shell_unless_it_is_asked_for() -> None:
    assert of(password_command="echo $HOME ; true").password() == "$HOME ; true"
    with_shell = of(password_command="printf '%s' one | tr o 0", password_command_shell="true")
    assert with_shell.password() == "0ne"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"sh -c 'echo {MARKER}; echo {MARKER} >&2; exit 7'", "ended with exit code 7"),
        (f"sh -c 'echo {MARKER}; kill -9 $$'", "ended with signal 9"),
        ("true", "wrote nothing"),
        (f"printf '{MARKER}\\000'", "wrote no text"),
        (f"printf '{MARKER}\\377'", "wrote no text"),
        (f"/nowhere/{MARKER}", "cannot be run here"),
    ],
)
def test_a_failure_names_the_option_and_the_exit_code_and_nothing_else(
    command: str, message: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    found = of(password_command=command)
    with pytest.raises(TailraceError) as caught:
        found.password()
    assert message in str(caught.value)
    assert "database.password.command" in str(caught.value)
    out, err = capfd.readouterr()
    assert MARKER not in f"{caught.value!r}{caught.value.__cause__!r}{found!r}{caplog.text}{out}{err}"
    assert isinstance(caught.value, PrerequisiteError if "cannot" in message else ConnectionFailed)


def test_a_program_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    found = of(
        password_command=f"sleep 600 & echo $! > {file}; wait",
        password_command_shell="true",
        password_command_timeout_ms="300",
    )
    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match=r"no password within 0\.3 s.*timeout\.ms"):
        found.password()
    assert time.monotonic() - began < 60
    pid = int(file.read_text())

    def is_gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        # nobody may be left to collect it
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"

    until(is_gone, "the program's child is gone", 30)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"password": MARKER, "password.command": "true"}, "password.command and database.password both give"),
        ({"password.command": "true", "auth.provider": "aws-rds-iam"}, "both give the password"),
        ({"password.command.shell": "true"}, "database.password.command.shell needs database.password.command"),
        ({"password.command": "echo 'one"}, "database.password.command has an invalid value"),
        ({"auth.provider": "gcp-iam", "auth.region": "x"}, "auth.region needs database.auth.provider = aws-rds-iam"),
        ({"auth.provider": "gcp-iam", "sslmode": "prefer"}, "would show the token"),
        ({"auth.provider": "vault"}, "must be one of aws-rds-iam, azure-entra, gcp-iam"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("postgres", GIVEN | {f"database.{name}": text for name, text in options.items()})
    assert message in str(caught.value)
    assert MARKER not in str(caught.value)


def test_a_token_needs_tls() -> None:
    config = parse("postgres", GIVEN | {"database.auth.provider": "aws-rds-iam"})
    assert config["database.sslmode"] == "require"
    assert any("verify-full" in notice for notice in config.notices)
    strict = parse("postgres", GIVEN | TLS | {"database.auth.provider": "aws-rds-iam"})
    assert not any("verify-full" in notice for notice in strict.notices)


class Cloud(HTTPServer):
    """A stub of a cloud's metadata server. Each answer has another token; `status` is that of every answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.paths: list[str] = []
        self.status = 200
        self.lasts_s = 3600


class _Answers(BaseHTTPRequestHandler):
    server: Cloud

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        token = f"token{len(self.server.paths)}"
        body: dict[str, object] = {"access_token": token, "token_type": "Bearer"}
        if self.path.startswith("/computeMetadata"):
            body |= {"expires_in": self.server.lasts_s}
            if "recursive=true" in self.path:
                body = {"email": "u@p.iam", "scopes": [], "aliases": ["default"]}
        else:
            body |= {"expires_on": str(int(time.time()) + self.server.lasts_s), "resource": "r"}
        text = json.dumps(body if self.server.status == 200 else {"error": MARKER, "error_description": MARKER})
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Metadata-Flavor", "Google")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    for made in (credentials._signer, credentials._entra, credentials._google):
        made.cache_clear()
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    stub = Cloud()
    place = f"127.0.0.1:{stub.server_port}"
    monkeypatch.setenv("GCE_METADATA_HOST", place)
    monkeypatch.setenv("GCE_METADATA_IP", place)
    # the client reads the host once, when it is imported
    monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", place)
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{place}/token")
    monkeypatch.setenv("IDENTITY_HEADER", "h")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    thread = Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stub
    stub.shutdown()
    thread.join()
    stub.server_close()


def test_amazons_token_is_signed_for_the_server_and_the_user(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", MARKER)
    token = of(auth_provider="aws-rds-iam", auth_region="eu-west-1").password()
    parts = urlsplit(f"https://{token}")
    asked = {name: texts[0] for name, texts in parse_qs(parts.query).items()}
    assert parts.netloc == "db.example:5432"
    assert (asked["Action"], asked["DBUser"], asked["X-Amz-Expires"]) == ("connect", "u", "900")
    assert "eu-west-1/rds-db" in asked["X-Amz-Credential"]
    assert MARKER not in token


def test_googles_token_is_asked_for_again_when_it_ends(cloud: Cloud) -> None:
    found = of(auth_provider="gcp-iam")
    first = found.password()
    assert found.password() == first
    assert any("sqlservice.login" in path for path in cloud.paths)
    credentials._google.cache_clear()
    # the client regards the last minutes of a token as over
    cloud.lasts_s = 1
    second = found.password()
    assert found.password() not in (first, second)


def test_microsofts_token_is_that_of_the_identity_of_the_host(cloud: Cloud) -> None:
    found = of(auth_provider="azure-entra")
    assert found.password() == f"token{len(cloud.paths)}"
    assert "ossrdbms-aad" in cloud.paths[-1]


@pytest.mark.parametrize("provider", ["aws-rds-iam", "azure-entra", "gcp-iam"])
def test_a_cloud_that_gives_no_token(provider: str, cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    cloud.status = 403
    with pytest.raises(ConnectionFailed, match=rf"{provider} gives no token") as caught:
        of(auth_provider=provider).password()
    assert MARKER not in f"{caught.value!r}"
    assert MARKER not in "".join(one.getMessage() for one in caplog.records if one.name.startswith("tailrace"))


@pytest.mark.parametrize("provider", ["aws-rds-iam", "azure-entra", "gcp-iam"])
def test_a_client_that_is_not_installed_names_its_extra(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, module = credentials.PROVIDERS[provider]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PrerequisiteError, match=rf"pip install .*\[{extra}\]"):
        of(auth_provider=provider).password()


def test_signals_of_the_terminal_reach_no_program() -> None:
    """Ctrl-C while a login waits for its password must not look like a failed program."""
    found, before = (
        of(password_command="ps -o pgid= -p $$", password_command_shell="true"),
        signal.getsignal(signal.SIGINT),
    )
    assert int(found.password()) != os.getpgrp()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        # nothing by chance: only the secret itself is hidden, wherever it stands
        ("hunter2", "the password hunter2 is odd: xhunter2y", "the password *** is odd: x***y"),
        ("s3cr!", "user=bob password=s3cr!", "user=bob password=***"),
        # a part of other words says nothing
        ("a", "database shop has no table", "database shop has no table"),
        ("on", "connection to server failed", "connection to server failed"),
        ("7", "host 10.0.17.1", "host 10.0.17.1"),
        # as a word it would be known by its gap
        ("a", "this is a message", LEFT_OUT),
        ("on", "dsn: password=on", LEFT_OUT),
        ("on", "postgres://bob:on@db", LEFT_OUT),
        ("42", "password '42' is too short", LEFT_OUT),
        ("!", "that failed!", LEFT_OUT),
        # a long one of letters is never a part of a word by chance
        ("password", "no passwords are known", LEFT_OUT),
        # in another case it is another word
        ("On", "it is on", "it is on"),
        # what messages name anyway
        ("shop", "no database shop", "no database shop"),
        ("", "nothing is asked for", "nothing is asked for"),
        (None, "nothing is asked for", "nothing is asked for"),
    ],
)
def test_a_message_shows_no_secret_and_is_no_riddle(secret: str | None, text: str, shown: str) -> None:
    assert without_secrets(text, (secret,), ("bob", "shop", None)) == shown


def test_of_two_secrets_the_longer_one_is_hidden_first() -> None:
    assert without_secrets("pass1word2 and pass1", ("pass1", "pass1word2")) == "*** and ***"
