"""Options of signals and notifications are read, depend on each other, and are refused with a reason."""

from __future__ import annotations

import pytest

from tailrace.config import Config, TableFilter
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.snapshot.selection import selected

REQUIRED = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


def config(**options: str) -> Config:
    return parse("postgres", REQUIRED | {name.replace("__", "."): text for name, text in options.items()})


def fault(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**options)
    return str(caught.value)


@pytest.mark.seed("002-03")
def test_defaults_are_debeziums() -> None:
    plain = config()
    assert plain["signal.enabled.channels"] == ["source"]
    assert plain["signal.kafka.topic"] == "p-signal"
    assert plain["signal.poll.interval.ms"] == 5000
    assert plain["incremental.snapshot.chunk.size"] == 1024
    assert plain["incremental.snapshot.watermarking.strategy"] == "insert_insert"
    assert plain["read.only"] is False
    assert plain["notification.enabled.channels"] == []


def test_channels_are_words_that_are_known() -> None:
    assert config(signal__enabled__channels="FILE,source")["signal.enabled.channels"] == ["file", "source"]
    without = config(signal__enabled__channels="source,jmx", notification__enabled__channels="JMX")
    assert (without["signal.enabled.channels"], without["notification.enabled.channels"]) == (["source"], [])
    assert "signal.enabled.channels goes without jmx: it needs the management beans" in without.notices[0]
    assert "there are sink, log, http." in without.notices[1]
    assert "knows source, kafka, file, not 'carrier'" in fault(signal__enabled__channels="carrier")
    assert "knows sink, log, http, not 'mail'" in fault(notification__enabled__channels="mail")


def test_a_channel_needs_what_it_is_configured_with() -> None:
    assert "signal.kafka.bootstrap.servers is missing" in fault(signal__enabled__channels="kafka")
    assert "notification.sink.topic.name is missing" in fault(notification__enabled__channels="sink")
    assert "notification.http.url is missing" in fault(notification__enabled__channels="http")
    assert config(notification__enabled__channels="log")["notification.enabled.channels"] == ["log"]


@pytest.mark.parametrize("name", ["signals", "a.b.c.d", ".b", "a.", '"a.b"', '"a"b.c'])
def test_the_signal_table_has_a_schema(name: str) -> None:
    assert "signal.data.collection must be schema.table" in fault(signal__data__collection=name)


@pytest.mark.parametrize("name", ["a.b", "d.a.b", '"a.b"."c.d"', 'a."b""c"'])
def test_names_of_the_signal_table(name: str) -> None:
    assert config(signal__data__collection=name)["signal.data.collection"] == name


def test_the_signal_table_is_captured_whatever_the_lists_say_except_in_1_7() -> None:
    given = {"signal__data__collection": 'own."my.signals"', "table__include__list": r"public\.t"}
    lists = TableFilter(config(**given))
    assert not TableFilter(config(**given, event__format="1.7")).includes("own", "my.signals")
    assert lists.includes("own", "my.signals")
    assert not lists.includes("own", "other")
    assert lists.includes("public", "t")


def test_todays_snapshot_leaves_the_signal_table_out_and_that_of_1_7_reads_it() -> None:
    names = ["own.my.signals", "public.t"]
    given = {"signal__data__collection": 'own."my.signals"'}
    assert selected(config(**given), names) == ["public.t"]
    assert selected(config(**given, event__format="1.7"), names) == names
    assert selected(config(), names) == names


def test_secrets_of_the_kafka_client_are_not_shown() -> None:
    given = config(
        signal__enabled__channels="kafka",
        signal__kafka__bootstrap__servers="a:1, b:2",
        signal__consumer__sasl__password="s3cret",
    )
    assert given["signal.consumer.sasl.password"] == "s3cret"
    assert "s3cret" not in repr(given)
    assert given["signal.kafka.bootstrap.servers"] == ["a:1", "b:2"]


def test_retries_of_watermarks_have_no_effect_and_the_reason_is_told() -> None:
    told = config(signal__emit__failure__max__retries="3").notices
    assert "a watermark that cannot be written stops the pipeline" in told[0]
    assert "must be at least 1" in fault(incremental__snapshot__chunk__size="0")
    assert "signal.kafka.nonsense is not an option" in fault(signal__kafka__nonsense="1")


def test_schema_changes_are_always_allowed_and_so_the_option_only_says_so() -> None:
    given = config(incremental__snapshot__allow__schema__changes="true")
    assert given.notices == (
        "incremental.snapshot.allow.schema.changes has no effect: tables may always change: a chunk whose table has "
        "changed is read again.",
    )
