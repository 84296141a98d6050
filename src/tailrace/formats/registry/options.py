"""The options of converters that register schemas: Confluent's and Apicurio's. No I/O, any process."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from tailrace.config.credentials import Credential, command_fault
from tailrace.errors import ConfigError
from tailrace.formats.option_reader import OptionReader

KEY, VALUE = "key", "value"
_TOPIC, _RECORD, _TOPIC_RECORD, _SIMPLE = "topic", "record", "topic record", "simple topic"
_SPACED_RECORD, _SPACED_TOPIC_RECORD = "record in its namespace", "topic record in its namespace"
_SPACED = (_SPACED_RECORD, _SPACED_TOPIC_RECORD)
_CONFLUENT = "io.confluent.kafka.serializers.subject."
_APICURIO = "io.apicurio.registry.serde.strategy."
_STRATEGIES = {
    _CONFLUENT + "TopicNameStrategy": _TOPIC,
    _CONFLUENT + "RecordNameStrategy": _RECORD,
    _CONFLUENT + "TopicRecordNameStrategy": _TOPIC_RECORD,
    _APICURIO + "TopicIdStrategy": _TOPIC,
    _APICURIO + "SimpleTopicIdStrategy": _SIMPLE,
    "io.apicurio.registry.serde.avro.strategy.RecordIdStrategy": _SPACED_RECORD,
    "io.apicurio.registry.serde.avro.strategy.TopicRecordIdStrategy": _SPACED_TOPIC_RECORD,
    "io.apicurio.registry.serde.avro.strategy.QualifiedRecordIdStrategy": _RECORD,
}
_APIS = "the address ends in /apis/registry/v2 or /apis/registry/v3"


@dataclass(frozen=True, slots=True)
class Access:
    """The address and credentials of a registry.

    `url` may hold a login, and is empty if nothing names it. Besides user and password, `headers` and `bearer` (with
    the names of Confluent's options) authenticate; `token` gives the bearer's token at each request. `trusted`,
    `certificate` and `key` are paths of PEM files.
    """

    url: str = field(repr=False)
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    bearer: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    trusted: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    token: Credential | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry and how a converter uses it for the keys or the values of records.

    `option` is the option of its address. `registers`: schemas are registered, else only looked up; `latest`: a
    subject's latest schema is used instead. `strategy` makes the subject, unless `artifact` names it; `group` is
    Apicurio's, made by the strategy if empty. Ids take `width` bytes, or go into record headers. They are ids of
    contents, or with `is_global` of versions.
    """

    kind: Literal["confluent", "apicurio"]
    part: str
    option: str
    access: Access
    registers: bool
    latest: bool
    strategy: str
    normalizes: bool = False
    width: int = 4
    is_global: bool = False
    group: str = ""
    artifact: str = ""
    if_exists: str = ""
    in_headers: bool = False

    @property
    def head(self) -> int:
        """Number of bytes at the head of a key or value that name its schema."""
        return 0 if self.in_headers else 1 + self.width

    def subject(self, topic: str, record: str | None) -> str:
        """Return the subject of a record's schema; `record` is the schema's full name, None if it is not a record."""
        if self.artifact:
            return self.artifact
        if self.strategy == _TOPIC:
            return f"{topic}-{self.part}"
        if self.strategy == _SIMPLE:
            return topic
        if record is None:
            raise ConfigError(
                f"The {self.part} of the records for {topic} is not an Avro record, so it has no name for its subject.",
                f"Use the strategy by topic for {self.part}.converter.",
            )
        short = record.rpartition(".")[2] if self.strategy in _SPACED else record
        return short if self.strategy in (_RECORD, _SPACED_RECORD) else f"{topic}-{short}"

    def group_of(self, record: str | None) -> str:
        """Return the group of a record's schema."""
        space = (record or "").rpartition(".")[0] if self.strategy in _SPACED else ""
        return self.group or space or "default"


def confluent(part: str, given: OptionReader) -> Registry:
    """Return the registry of a Confluent converter."""
    prefix = f"{part}.converter."
    option = prefix + "schema.registry.url"
    url = given.text("schema.registry.url") or os.environ.get(variable(option), "")
    user, _, password = _login(given).partition(":")
    bearer: tuple[tuple[str, str], ...] = ()
    token = None
    if given.one_of("bearer.auth.credentials.source", ("", "STATIC_TOKEN"), ""):
        names = ("bearer.auth.token", "bearer.auth.logical.cluster", "bearer.auth.identity.pool.id")
        bearer = tuple((name, given.text(name)) for name in names if given.text(name))
        token = _token(given, prefix)
        for name in names[1:2] if token else names[:2]:
            if not given.text(name):
                raise ConfigError(f"{given.prefix}{name} is missing.", "STATIC_TOKEN needs a token and its cluster.")
    strategy = _strategy(given, f"{part}.subject.name.strategy")
    given.idle("schemas.cache.config", "schemas.cache.size", "max.schemas.per.subject", "id.compatibility.strict",
               "avro.remove.java.properties", "avro.use.logical.type.converters", "http.connect.timeout.ms",
               "http.read.timeout.ms", "latest.compatibility.strict", "auto.offset.reset",
               f"{_other(part)}.subject.name.strategy")  # fmt: skip
    _tell_missing(given, option, url)
    access = Access(url.rstrip("/"), user, password, bearer=bearer, token=token, **_tls(given, "schema.registry.ssl."))
    registers = given.boolean("auto.register.schemas", True)
    latest = given.boolean("use.latest.version", False)
    normalizes = given.boolean("normalize.schemas", False)
    return Registry("confluent", part, option, access, registers, latest and not registers, strategy, normalizes)


def apicurio(part: str, given: OptionReader) -> Registry:
    """Return the registry of an Apicurio converter."""
    prefix = "apicurio.registry."
    option = f"{part}.converter.{prefix}url"
    url = given.text(prefix + "url") or os.environ.get(variable(option), "")
    _tell_missing(given, option, url)
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise ConfigError(
            f"{option} holds a user or a password.", "Give them in apicurio.auth.username and apicurio.auth.password."
        )
    if url and not url.rstrip("/").endswith(("/v2", "/v3")):
        raise ConfigError(f"{option} names no version of the registry's interface.", f"Name one: {_APIS}.")
    in_headers = given.boolean(prefix + "headers.enabled", True)
    for name in given.names(prefix + "headers."):
        if in_headers and name.lower() != "enabled":
            raise ConfigError(
                f"{part}.converter.{prefix}headers.{name} is not supported: headers have Apicurio's own names.",
                "Leave it out.",
            )
    width = 4 if given.boolean(prefix + "as-confluent", False) else 8
    is_global = given.one_of(prefix + "use-id", ("globalId", "contentId"), "globalId") == "globalId"
    headers = [
        (name, given.text(f"{prefix}request.headers.{name}")) for name in given.names(f"{prefix}request.headers.")
    ]
    access = Access(
        url.rstrip("/"),
        given.text("apicurio.auth.username", "apicurio.registry.auth.username"),
        given.text("apicurio.auth.password", "apicurio.registry.auth.password"),
        tuple(headers),
        **_tls(given, prefix + "request.ssl."),
    )
    given.idle(prefix + "check-period-ms", prefix + "retry-count", prefix + "retry-backoff-ms",
               prefix + "converter.serializer", prefix + "converter.deserializer")  # fmt: skip
    registers = given.boolean(prefix + "auto-register", False)
    latest = given.boolean(prefix + "find-latest", False)
    exists = ("RETURN_OR_UPDATE", "RETURN", "UPDATE", "FAIL", "FIND_OR_CREATE_VERSION", "CREATE_VERSION")
    return Registry(
        "apicurio",
        part,
        option,
        access,
        registers,
        latest and not registers,
        _strategy(given, prefix + "artifact-resolver-strategy"),
        width=width,
        is_global=is_global,
        group=given.text(prefix + "artifact.group-id"),
        artifact=given.text(prefix + "artifact.artifact-id"),
        if_exists=given.one_of(prefix + "auto-register.if-exists", exists, ""),
        in_headers=in_headers,
    )


def refuse_headers(registry: Registry, why: str) -> None:
    """Raise ConfigError if the ids go into headers; `why` says where that is impossible."""
    if registry.in_headers:
        option = f"{registry.part}.converter.apicurio.registry.headers.enabled"
        raise ConfigError(
            f"{option} is true, its default, and ids in headers are not written {why}.",
            "Set it to false: ids then stand at the head of the bytes.",
        )


def _tell_missing(given: OptionReader, option: str, url: str) -> None:
    if not url:
        given.notices.append(f"{option} is missing: give it, or {variable(option)} in the environment, before a start")


def variable(option: str) -> str:
    """Return the environment variable that Kafka Connect's images use for a worker's option."""
    return "CONNECT_" + option.upper().replace(".", "_").replace("-", "_")


def _login(given: OptionReader) -> str:
    """Return `user:password`; empty if there is none."""
    source = given.one_of("basic.auth.credentials.source", ("", "URL", "USER_INFO"), "")
    info = given.text("basic.auth.user.info", "schema.registry.basic.auth.user.info")
    if source == "USER_INFO":
        return info
    given.idle("basic.auth.user.info", "schema.registry.basic.auth.user.info")
    return ""


def _token(given: OptionReader, prefix: str) -> Credential | None:
    """Return the program that gives the bearer's token; None if the token itself is given."""
    name = "bearer.auth.token.command"
    command = given.text(name)
    if not command:
        return None
    fault = command_fault(command) or ("stands beside bearer.auth.token" if given.text("bearer.auth.token") else "")
    if fault:
        raise given.wrong(name, fault)
    return Credential(prefix + name, command=tuple(shlex.split(command)))


def _strategy(given: OptionReader, name: str) -> str:
    text = given.text(name)
    if not text:
        return _TOPIC
    if text not in _STRATEGIES:
        raise ConfigError(f"{given.prefix}{name} = {text} is not supported.", f"Known: {', '.join(_STRATEGIES)}.")
    return _STRATEGIES[text]


def _tls(given: OptionReader, prefix: str) -> _Tls:
    """Return the TLS options for `Access`. Only PEM files can be read."""
    for store in ("truststore", "keystore"):
        kind = given.text(f"{prefix}{store}.type") or "PEM"
        place = given.text(f"{prefix}{store}.location")
        if kind.upper() != "PEM" or place.lower().endswith((".jks", ".p12", ".pfx")):
            raise ConfigError(
                f"{given.prefix}{prefix}{store} is a Java key store, which cannot be read.",
                f"Convert it to PEM, and set {given.prefix}{prefix}{store}.type to PEM.",
            )
    given.idle(
        f"{prefix}truststore.password", f"{prefix}keystore.password", f"{prefix}endpoint.identification.algorithm"
    )
    certificate = given.text(f"{prefix}keystore.location")
    return {
        "trusted": given.text(f"{prefix}truststore.location"),
        "certificate": certificate,
        "key": certificate,
        "key_password": given.text(f"{prefix}key.password"),
    }


class _Tls(TypedDict):
    trusted: str
    certificate: str
    key: str
    key_password: str


def _other(part: str) -> str:
    return VALUE if part == KEY else KEY
