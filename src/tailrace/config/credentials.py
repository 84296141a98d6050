"""Credential: the source of a password, which may be a program or a cloud that every login asks; and its options.

Driver, planner and worker, each for its own logins. No error and no log line shows the answer of a program or a cloud.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.connector import ConfigDraft
from tailrace.config.option import Kind, Option, at_least
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.process.installation import pip_install

_MOST_BYTES = 1 << 20

LEFT_OUT = "its message is not shown, because it may have a secret in it"
"""The text in the place of a message of a server or a driver, if a secret in it cannot be told from other words."""

_LONG = 8


def without_secrets(text: str, secrets: Iterable[str | None], named: Iterable[str | None] = ()) -> str:
    """Return a message of a server or a driver without the secrets in it.

    A secret that cannot be in a message by chance becomes `***`. A secret of letters or digits alone, or of less than
    four characters, may be an ordinary word of the message, so `***` would disclose it. If the message has it as a
    word, or if it is long, the result is LEFT_OUT. If it is short and part of a longer word, such as `a` in `database`,
    it stays. A secret that equals one of `named` stays too: these are texts that messages name anyway, such as the
    user.
    """
    shown = set(named)
    for secret in sorted({secret for secret in secrets if secret} - shown, key=len, reverse=True):
        if secret not in text:
            continue
        if len(secret) >= 4 and not secret.isalpha() and not secret.isdigit():
            text = text.replace(secret, "***")
        elif len(secret) >= _LONG or _is_word(secret, text):
            return LEFT_OUT
    return text


def _is_word(secret: str, text: str) -> bool:
    """Return True if a secret stands in a text as a whole word."""
    before = r"(?<!\w)" if re.match(r"\w", secret) else ""
    after = r"(?!\w)" if re.match(r"\w", secret[-1]) else ""
    return re.search(f"{before}{re.escape(secret)}{after}", text) is not None


def command_fault(text: str) -> str:
    """Return the fault of a program with its arguments, in words that follow an option's name; "" if none."""
    try:
        return "" if shlex.split(text) else "names no program"
    except ValueError:
        return "has a quotation mark without its second one"


def options(area: str) -> tuple[Option, ...]:
    """Return the options of a password by a program; `area` begins their names, such as `database.`."""
    command = f"{area}password.command"
    return (
        Option(command, Kind.TEXT,
               "Program whose output is the password, with its arguments, quoted as in a shell. It runs at every "
               "login, on executors too.", check=command_fault),
        Option(f"{command}.timeout.ms", Kind.INTEGER, f"Longest time of {command}, in ms.", 10_000,
               check=at_least(100)),
        Option(f"{command}.shell", Kind.BOOLEAN, f"Give {command} to /bin/sh, for pipes and variables.", False),
    )  # fmt: skip


PROVIDERS = {
    "aws-rds-iam": ("aws", "botocore.session"),
    "azure-entra": ("azure", "azure.identity"),
    "gcp-iam": ("gcp", "google.auth"),
}
"""The clouds whose tokens are passwords, with the extra that installs the client and the client's module."""

CLOUD = (
    Option("database.auth.provider", Kind.TEXT,
           "Cloud whose token is the password: aws-rds-iam (Amazon RDS and Aurora), azure-entra (Microsoft Entra ID), "
           "gcp-iam (Cloud SQL). The cloud's own client finds the identity in the environment, and is asked at every "
           "login, on executors too. The login needs TLS.", choices=tuple(PROVIDERS)),
    Option("database.auth.region", Kind.TEXT, "Region of the server, for aws-rds-iam; unset: the client's own."),
    Option("database.auth.scope", Kind.TEXT, "Scope of the token, for azure-entra and gcp-iam; unset: that of the "
           "cloud's own service."),
)  # fmt: skip

_SCOPES = {
    "azure-entra": "https://ossrdbms-aad.database.windows.net/.default",
    "gcp-iam": "https://www.googleapis.com/auth/sqlservice.login",
}


def settle(draft: ConfigDraft, area: str = "database.") -> None:
    """Note the faults of options that contradict each other."""
    values, command = draft.values, f"{area}password.command"
    provider = values.get("database.auth.provider")
    ways = [f"{area}password"] if values[f"{area}password"] else []
    ways += [command] if values[command] else []
    ways += ["database.auth.provider"] if provider else []
    if len(ways) > 1:
        draft.faults.append(f"{ways[1]} and {ways[0]} both give the password: keep one")
    for name in (f"{command}.timeout.ms", f"{command}.shell"):
        if name in draft.given and not values[command]:
            draft.faults.append(f"{name} needs {command}")
    for name, fitting in (
        ("database.auth.region", ("aws-rds-iam",)),
        ("database.auth.scope", ("azure-entra", "gcp-iam")),
    ):
        if name in draft.given and provider not in fitting:
            draft.faults.append(f"{name} needs database.auth.provider = {' or '.join(fitting)}")


@dataclass(frozen=True, slots=True)
class Credential:
    """The source of a login's password. Picklable, with a fixed password, which `repr` hides.

    `option` names the source in errors. `command` is a program with its arguments, which may run for `seconds`.
    `provider` is a word of PROVIDERS, and `place` has the host, port, user, region and scope for it.
    """

    option: str
    fixed: str = field(default="", repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)
    seconds: float = 10.0
    provider: str = ""
    place: tuple[str, str, str, str, str] = ("", "", "", "", "")

    @classmethod
    def of(cls, config: Mapping[str, Any], area: str = "database.") -> Credential:
        """Return the source that a configuration names; `area` begins the names of its options."""
        option = f"{area}password.command"
        text = config.get(option)
        if text:
            command = ("/bin/sh", "-c", text) if config[f"{option}.shell"] else tuple(shlex.split(text))
            return cls(option, command=command, seconds=config[f"{option}.timeout.ms"] / 1000)
        provider = config.get("database.auth.provider")
        if provider:
            names = ("hostname", "port", "user", "auth.region", "auth.scope")
            host, port, user, region, scope = (str(config[f"database.{name}"] or "") for name in names)
            return cls("database.auth.provider", provider=provider, place=(host, port, user, region, scope))
        return cls(f"{area}password", config[f"{area}password"] or "")

    @property
    def is_fixed(self) -> bool:
        """True if every login has the same password."""
        return not self.command and not self.provider

    def password(self) -> str:
        """Return the password for a login that begins now.

        Raises ConnectionFailed if the program or the cloud gives none, which another try may change. Raises
        PrerequisiteError if there is no such program, or no client of the cloud.
        """
        if self.command:
            return self._said()
        return self._token() if self.provider else self.fixed

    def _said(self) -> str:
        """Run the program and return what it writes, without the line's end."""
        try:
            # in a process group of its own, so that what it has started ends with it
            running = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it has a null byte"
            raise PrerequisiteError(
                f"The program of {self.option} cannot be run here: {reason}.",
                "Name a program that exists wherever the pipeline logs in: on the driver and on every executor.",
            ) from None
        with running:
            try:
                output, _ = running.communicate(timeout=self.seconds)
            except subprocess.TimeoutExpired:
                self._end(running)
                raise ConnectionFailed(
                    f"{self.option} gave no password within {self.seconds:g} s.",
                    f"Run it by hand, or raise {self.option}.timeout.ms.",
                ) from None
            except BaseException:
                self._end(running)
                raise
        if running.returncode:
            ended = f"exit code {running.returncode}" if running.returncode > 0 else f"signal {-running.returncode}"
            raise ConnectionFailed(
                f"{self.option} ended with {ended} instead of a password.", "Run it by hand; its output is never shown."
            )
        try:
            text = output.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            text = "\0"
        if not text or "\0" in text or len(output) > _MOST_BYTES:
            raise ConnectionFailed(
                f"{self.option} wrote {'nothing' if not text else 'no text'} instead of a password.",
                "Its standard output has to be the password in UTF-8, with or without an end of the line.",
            )
        return text

    def _end(self, running: subprocess.Popen[bytes]) -> None:
        try:
            os.killpg(running.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _token(self) -> str:
        extra, module = PROVIDERS[self.provider]
        try:
            importlib.import_module(module)
        except ImportError:
            raise PrerequisiteError(
                f"The client for database.auth.provider = {self.provider} is not installed.",
                f"{pip_install(f'tailrace[{extra}]')}, on the driver and on every executor.",
            ) from None
        try:
            return _TOKENS[self.provider](self.place)
        except Exception as error:
            # the client's text may hold a part of its answer
            raise ConnectionFailed(
                f"database.auth.provider = {self.provider} gives no token: {type(error).__name__}.",
                "Check the identity that the cloud's own client finds here, and its right to log in to the database.",
            ) from None


_Place = tuple[str, str, str, str, str]


@functools.cache
def _signer(region: str) -> Any:
    import botocore.session

    return botocore.session.get_session().create_client("rds", region_name=region or None)


def _aws(place: _Place) -> str:
    host, port, user, region, _ = place
    made = _signer(region).generate_db_auth_token(DBHostname=host, Port=int(port), DBUsername=user)
    return str(made)


@functools.cache
def _entra() -> Any:
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()


def _azure(place: _Place) -> str:
    # the client keeps a token until shortly before its end
    return str(_entra().get_token(place[4] or _SCOPES["azure-entra"]).token)


@functools.cache
def _google(scope: str) -> Any:
    import google.auth

    found, _ = google.auth.default(scopes=[scope])
    return found


def _gcp(place: _Place) -> str:
    from google.auth.transport.requests import Request

    found = _google(place[4] or _SCOPES["gcp-iam"])
    if not found.valid:
        found.refresh(Request())
    return str(found.token)


_TOKENS: Mapping[str, Callable[[_Place], str]] = {"aws-rds-iam": _aws, "azure-entra": _azure, "gcp-iam": _gcp}
