"""Topics of Kafka, made before records go to them, as `topic.creation.*` says. Driver.

The administrative client is the JVM's, of the jar that the sink writes with: it takes the options of the producer as
they are, key stores and logins of Java among them, and needs no package beside PySpark.
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
"""The group of all topics that no other one has."""

_PARTITIONS, _REPLICATION, _INCLUDE, _EXCLUDE = "partitions", "replication.factor", "include", "exclude"
_LEGAL = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_TIMEOUT_S = 60
_EXISTS = "TopicExistsException"
# The name of the class and its message: Kafka's own words, which hold names and settings of the topic.
_SAID = re.compile(r"\borg\.apache\.kafka\.[\w.]*?(\w+Exception)(?:: ([^\n]+))?")
_TOO_SLOW = "java.util.concurrent.TimeoutException"
_PASSING = ("TimeoutException", "DisconnectException", "NetworkException", "NotControllerException")


@dataclass(frozen=True, slots=True)
class Group:
    """How some topics are made. -1 leaves partitions or copies to the broker."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str] = field(default_factory=dict)
    include: tuple[Expression, ...] = ()
    exclude: tuple[Expression, ...] = ()

    def has(self, topic: str) -> bool:
        """Whether a topic is of the group."""
        if any(expression.fullmatch(topic) for expression in self.exclude):
            return False
        return self.name == DEFAULT or any(expression.fullmatch(topic) for expression in self.include)


def groups(source: Config) -> tuple[Group, ...]:
    """The groups that `topic.creation.*` names, in their order, with the default at the end; none without any option.

    Raises ConfigError, as Kafka Connect refuses the connector.
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
            raise ConfigError(f"{name} is of no group that topic.creation.groups names.", "Name the group there.")
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
    """What is wrong with a topic's name; None where Kafka takes it."""
    if _LEGAL.fullmatch(topic):
        return None
    return SinkError(
        f"Kafka refuses the topic name {topic!r}: it may have up to 249 letters, digits, '.', '_' and '-'.",
        "Change topic.prefix, the topic options or the transform that the name comes from.",
    )


class Topics:
    """Makes the topics of some groups where they are missing; `options` are those of Spark's Kafka sink."""

    def __init__(self, groups: tuple[Group, ...], options: Mapping[str, str]) -> None:
        self._groups = groups
        self._options = {name.removeprefix("kafka."): text for name, text in options.items()}

    def demand(self, spark: SparkSession, topics: Iterable[str]) -> None:
        """Make those of `topics` that do not exist.

        Raises SinkError where Kafka refuses one, by its name, its options or the rights; ConnectionFailed where no
        broker answers in time.
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
            # Another pipeline, or the broker itself, may have been faster.
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
        """The options that the administrative client knows; it would warn of the others."""
        known = jvm.org.apache.kafka.clients.admin.AdminClientConfig.configNames()
        properties = jvm.java.util.Properties()
        for name, text in self._options.items():
            if known.contains(name) or name.startswith(("ssl.", "sasl.")):
                properties.put(name, text)
        return properties

    def _failure(self, error: Py4JJavaError, topic: str) -> SinkError | ConnectionFailed | None:
        """What an exception of the client means; None where it is not about `topic`: the sink knows those of logins."""
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
            remedy = "Give the user of the producer the right to create topics, or make the topic by hand."
        return SinkError(f"Kafka does not make the topic {topic}: {words.rstrip('.') or kind} ({kind}).", remedy)
