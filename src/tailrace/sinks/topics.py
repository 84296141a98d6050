"""Creation of Kafka topics by `topic.creation.*`, before records are written to them. Driver.

The administrative client is the JVM's, from the jar that the sink writes with. It accepts the producer's options
unchanged, including Java key stores and logins, and needs no package besides PySpark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tailrace.config.config import Config
from tailrace.config.expressions import Expression, compile_expression
from tailrace.config.option import split_list
from tailrace.errors import ConfigError, ConnectionFailed, SinkError
from tailrace.sinks.base import TOPICS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT = "default"
"""The group of all topics that no other group includes."""

_PARTITIONS, _REPLICATION, _INCLUDE, _EXCLUDE = "partitions", "replication.factor", "include", "exclude"
_LEGAL = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_TIMEOUT_S = 60
_EXISTS = "TopicExistsException"
# Class name and message of an exception. Kafka's messages hold names and settings of the topic, but no data.
_SAID = re.compile(r"\borg\.apache\.kafka\.[\w.]*?(\w+Exception)(?:: ([^\n]+))?")
_TOO_SLOW = "java.util.concurrent.TimeoutException"
_PASSING = ("TimeoutException", "DisconnectException", "NetworkException", "NotControllerException")


@dataclass(frozen=True, slots=True)
class Group:
    """A group of topics with the settings to create them with; -1 partitions or replicas is the broker's default."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str] = field(default_factory=dict)
    include: tuple[Expression, ...] = ()
    exclude: tuple[Expression, ...] = ()

    def has(self, topic: str) -> bool:
        """Return True if the topic is in the group."""
        if any(expression.fullmatch(topic) for expression in self.exclude):
            return False
        return self.name == DEFAULT or any(expression.fullmatch(topic) for expression in self.include)


def groups(source: Config) -> tuple[Group, ...]:
    """Return the groups of `topic.creation.*` in order, the default last; () if no option is given or they are
    disabled.

    Raises ConfigError for options that Kafka Connect refuses.
    """
    given = {name: text for name, text in source.given.items() if name.startswith(TOPICS)}
    enabled = given.pop(f"{TOPICS}enable", "true").strip().lower()
    names: list[str] = [name for name in source["topic.creation.groups"] if name != DEFAULT]
    given.pop(f"{TOPICS}groups", None)
    if not given and not names:
        return ()
    options: dict[str, dict[str, str]] = {name: {} for name in (*names, DEFAULT)}
    for name, text in given.items():
        group, _, option = name.removeprefix(TOPICS).partition(".")
        if group not in options:
            raise ConfigError(f"{name} belongs to no group in topic.creation.groups.", "Name the group there.")
        options[group][option] = text.strip()
    default = _group(DEFAULT, options.pop(DEFAULT), None)
    found = tuple(_group(name, own, default) for name, own in options.items())
    return () if enabled == "false" else (*found, default)


def _group(name: str, options: dict[str, str], default: Group | None) -> Group:
    start = f"{TOPICS}{name}."
    numbers = {}
    for option, inherited in (
        (_PARTITIONS, default and default.partitions),
        (_REPLICATION, default and default.replication),
    ):
        text = options.pop(option, "")
        if not text and inherited is None:
            raise ConfigError(f"{start}{option} is missing.", "topic.creation needs it, as in Kafka Connect.")
        if text and (not re.fullmatch(r"-?[0-9]{1,5}", text) or int(text) == 0 or int(text) < -1):
            raise ConfigError(f"{start}{option} must be at least 1, or -1 for the broker's own.", "Correct it.")
        numbers[option] = int(text) if text else inherited
    if default is None and (_INCLUDE in options or _EXCLUDE in options):
        raise ConfigError(f"{start}include and {start}exclude are not supported.", "The group has all other topics.")
    if default is not None and not options.get(_INCLUDE):
        raise ConfigError(f"{start}include is missing.", "Name the topics of the group.")
    include, exclude = (_expressions(start + option, options.pop(option, "")) for option in (_INCLUDE, _EXCLUDE))
    return Group(name, numbers[_PARTITIONS] or -1, numbers[_REPLICATION] or -1, options, include, exclude)


def _expressions(option: str, text: str) -> tuple[Expression, ...]:
    try:
        return tuple(compile_expression(part, ignore_case=False) for part in split_list(text))
    except ValueError as fault:
        raise ConfigError(f"{option} holds an expression that is not supported: {fault}.", "Correct it.") from None


def named(topic: str) -> SinkError | None:
    """Return the error for an illegal topic name; None if the name is legal."""
    if _LEGAL.fullmatch(topic):
        return None
    return SinkError(
        f"Kafka refuses the topic name {topic!r}: it may have up to 249 letters, digits, '.', '_' and '-'.",
        "Change topic.prefix, the topic options or the transform that made the name.",
    )


class Topics:
    """A creator of missing topics. `options` are options of Spark's Kafka sink."""

    def __init__(self, groups: tuple[Group, ...], options: Mapping[str, str]) -> None:
        self._groups = groups
        self._options = {name.removeprefix("kafka."): text for name, text in options.items()}

    def demand(self, spark: SparkSession, topics: Iterable[str]) -> None:
        """Create those of `topics` that do not exist.

        Raises SinkError if Kafka refuses a topic for its name, its settings or missing rights, and ConnectionFailed if
        no broker answers in time.
        """
        wanted = sorted(topics)
        for topic in wanted:
            fault = named(topic)
            if fault is not None:
                raise fault
        jvm: Any = spark._jvm
        client = None
        try:
            client = jvm.org.apache.kafka.clients.admin.Admin.create(self._properties(jvm))
            seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
            there = client.listTopics().names().get(_TIMEOUT_S, seconds)
            for topic in wanted:
                if not there.contains(topic):
                    made = jvm.java.util.Collections.singletonList(self._topic(jvm, topic))
                    self._await(client.createTopics(made).all(), seconds, topic)
        except Py4JJavaError as error:
            raise self._failure(error, "") or error from None
        finally:
            if client is not None:
                client.close()

    def _await(self, future: Any, seconds: Any, topic: str) -> None:
        try:
            future.get(_TIMEOUT_S, seconds)
        except Py4JJavaError as error:
            # Another pipeline or the broker itself may have created the topic meanwhile.
            if _EXISTS not in str(error):
                raise self._failure(error, topic) or error from None

    def _topic(self, jvm: Any, topic: str) -> Any:
        group = next(group for group in self._groups if group.has(topic))
        made = jvm.org.apache.kafka.clients.admin.NewTopic(topic, group.partitions, group.replication)
        settings = jvm.java.util.HashMap()
        for name, text in group.settings.items():
            settings.put(name, text)
        return made.configs(settings)

    def _properties(self, jvm: Any) -> Any:
        """Return the options that the administrative client knows, since it warns of others."""
        known = jvm.org.apache.kafka.clients.admin.AdminClientConfig.configNames()
        properties = jvm.java.util.Properties()
        for name, text in self._options.items():
            if known.contains(name) or name.startswith(("ssl.", "sasl.")):
                properties.put(name, text)
        return properties

    def _failure(self, error: Py4JJavaError, topic: str) -> SinkError | ConnectionFailed | None:
        """Return the error for an exception of the client; None for failures of the login, which the sink reports.

        `topic` is the topic that was being created, or "".
        """
        said = [(kind, words) for kind, words in _SAID.findall(str(error)) if kind != "KafkaException"]
        kind, words = said[-1] if said else ("", "")
        is_slow = kind in _PASSING or (not said and _TOO_SLOW in str(error))
        if not is_slow and not (said and topic):
            return None
        if is_slow:
            why = words or "no broker answers in time"
            return ConnectionFailed(
                f"Kafka could not be asked for its topics: {why.rstrip('.')}.",
                "Check debezium.sink.kafka.producer.bootstrap.servers and the security options beside it.",
            )
        remedy = f"Check topic.creation.{next(group.name for group in self._groups if group.has(topic))}.*."
        if "Authorization" in kind:
            remedy = "Give the producer's user the right to create topics, or create the topic yourself."
        return SinkError(f"Kafka does not create the topic {topic}: {words.rstrip('.') or kind} ({kind}).", remedy)
