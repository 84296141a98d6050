"""Channels deliver signals in order, with positions that give the same signals again."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tailrace.config import Config
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError
from tailrace.snapshot import kafka
from tailrace.snapshot.channels import Channels, FileChannel
from tailrace.snapshot.signals import MalformedSignal, Signal, from_json, to_json

LOG = Signal("a", "log", '{"message": "x"}')
LINE = b'{"id":"a","type":"log","data":{"message":"x"}}\n'
REQUIRED = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}


def config(**options: str) -> Config:
    return parse("postgres", REQUIRED | {name.replace("__", "."): text for name, text in options.items()})


def test_a_line_is_a_signal_and_a_position_counts_bytes(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_bytes(LINE + b"\n" + '{"type":"log","data":"{\\"message\\":\\"é\\"}"}\n'.encode())
    channel = FileChannel(path)
    found = channel.poll(None)
    size = path.stat().st_size
    second = Signal(f"signals-{len(LINE) + 1}", "log", '{"message":"é"}')
    assert found == [(LOG, len(LINE)), (None, len(LINE) + 1), (second, size)]
    assert channel.poll(None) == found
    assert channel.poll(len(LINE)) == found[1:]
    assert channel.poll(size) == []


def test_an_unfinished_line_waits_unless_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_bytes(LINE + LINE[:-8])
    channel = FileChannel(path)
    assert channel.poll(None) == [(LOG, len(LINE))]
    path.write_bytes(LINE + LINE[:-1])
    at = 2 * len(LINE) - 1
    assert channel.poll(len(LINE)) == [(LOG, at)]
    path.write_bytes(LINE + LINE + LINE)
    assert channel.poll(at) == [(None, at + 1), (LOG, at + 1 + len(LINE))]


def test_a_malformed_line_is_told_without_its_content_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "signals"
    bad = [b"{secret", b'["secret"]', b'{"id":"secret"}', b'{"type":"log","data":["secret"]}', b"\xffsecret"]
    bad += [b'{"type":7}', b'{"type":""}', b'{"type":"log","id":true}', b"[" * 100_000]
    path.write_bytes(b"\n".join(bad) + b"\n" + LINE)
    with caplog.at_level(logging.WARNING, "tailrace"):
        found = FileChannel(path).poll(None)
    assert [signal for signal, _ in found] == [None] * len(bad) + [LOG]
    assert len(caplog.messages) == len(bad)
    assert "secret" not in caplog.text
    assert "at byte 0 is not a signal and is skipped: it is not JSON" in caplog.messages[0]


def test_a_file_that_has_shrunk_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_bytes(LINE)
    assert FileChannel(path).poll(len(LINE) + 1) == [(LOG, len(LINE))]
    path.write_bytes(b"")
    assert FileChannel(path).poll(len(LINE)) == []


def test_a_missing_file_is_empty_and_a_folder_an_error(tmp_path: Path) -> None:
    assert FileChannel(tmp_path / "none").poll(None) == []
    with pytest.raises(ConfigError, match=r"signal\.file cannot be read"):
        FileChannel(tmp_path).poll(None)


def test_windows_lines_and_a_byte_order_mark_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_bytes(b"\xef\xbb\xbf" + LINE.replace(b"\n", b"\r\n") * 2)
    assert [signal for signal, _ in FileChannel(path).poll(None) if signal] == [LOG, LOG]


def test_what_is_written_is_read_as_the_same_signal() -> None:
    for signal in (LOG, Signal("é\n", "pause-snapshot", None)):
        assert from_json(to_json(signal).encode(), "") == signal
    assert "\n" not in to_json(Signal("é\n", "log", '{"message": "a\\nb"}'))


def test_a_number_is_an_id_as_well() -> None:
    assert from_json(b'{"id":7,"type":"log"}', "n") == Signal("7", "log", None)
    with pytest.raises(MalformedSignal, match="its id is not a text"):
        from_json(b'{"id":[],"type":"log"}', "n")


def test_channels_are_read_at_their_interval_and_from_the_positions_that_were_kept(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    path.write_bytes(LINE)
    now = [0.0]
    of = Channels({"file": FileChannel(path)}, 5.0, lambda: now[0])
    assert of.poll({}) == ([LOG], {"file": len(LINE)})
    now[0] = 4.9
    assert of.poll({}) == ([], {})
    now[0] = 5.0
    # The offset with the first answer was never committed.
    assert of.poll({}) == ([LOG], {"file": len(LINE)})
    now[0] = 10.0
    assert of.poll({"file": len(LINE)}) == ([], {"file": len(LINE)})
    of.close()


def test_the_configuration_names_the_channels() -> None:
    assert not Channels.of(config())
    named = config(signal__enabled__channels="FILE, kafka", signal__kafka__bootstrap__servers="h:1")
    assert Channels.of(named)
    assert sorted(Channels.of(named)._channels) == ["file", "kafka"]


def test_the_kafka_client_gets_librdkafkas_options() -> None:
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"w";'
    named = config(
        signal__enabled__channels="kafka",
        signal__kafka__bootstrap__servers="a:1,b:2",
        **{
            "signal__consumer__security.protocol": "SASL_SSL",
            "signal__consumer__sasl.mechanism": "SCRAM-SHA-256",
            "signal__consumer__sasl.jaas.config": login,
            "signal__consumer__key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        },
    )
    assert kafka.client_options(named) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": 'p"w',
    }
    assert "ScramLoginModule" not in repr(named)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("enable.auto.commit", "true", "the channel sets enable.auto.commit itself"),
        ("ssl.truststore.location", "t.jks", "reads no Java key stores"),
        ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required;", "only PlainLoginModule"),
    ],
)
def test_options_of_java_alone_are_refused_by_name(name: str, text: str, said: str) -> None:
    named = config(signal__enabled__channels="kafka", signal__kafka__bootstrap__servers="a:1")
    with pytest.raises(ConfigError) as caught:
        kafka.client_options({**named, f"signal.consumer.{name}": text})
    assert f"signal.consumer.{name} is not supported" in str(caught.value)
    assert said in str(caught.value)


def test_an_option_that_the_client_does_not_know_is_an_error_without_its_value() -> None:
    named = config(signal__enabled__channels="kafka", signal__kafka__bootstrap__servers="127.0.0.1:1")
    channel = kafka.KafkaChannel({**named, "signal.consumer.max.poll.records": "s3cret"})
    with pytest.raises(ConfigError, match=r"refuses signal\.consumer\.max\.poll\.records") as caught:
        channel.poll(None)
    assert "s3cret" not in str(caught.value)


def test_brokers_that_cannot_be_reached_are_told_once_and_stop_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_METADATA_S", 0.1)
    named = config(signal__enabled__channels="kafka", signal__kafka__bootstrap__servers="127.0.0.1:1")
    channel = kafka.KafkaChannel(named)
    with caplog.at_level(logging.WARNING, "tailrace"):
        assert channel.poll(None) == channel.poll(3) == []
    channel.close()
    assert len([text for text in caplog.messages if text.startswith("no signals from the topic p-signal")]) == 1


def test_brokers_that_do_not_answer_are_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_METADATA_S", 0.1)
    named = config(signal__enabled__channels="kafka", signal__kafka__bootstrap__servers="127.0.0.1:1")
    channel = kafka.KafkaChannel(named)
    asked: list[int | None] = []
    begin = channel._begin
    monkeypatch.setattr(channel, "_begin", lambda position: asked.append(position) or begin(position))
    now = [100.0]
    monkeypatch.setattr(kafka.time, "monotonic", lambda: now[0])
    for at in (100.0, 129.0, 130.0):
        now[0] = at
        assert channel.poll(3) == []
    assert asked == [3, 3]
    channel.close()


def test_a_missing_client_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    named = config(signal__enabled__channels="kafka", signal__kafka__bootstrap__servers="127.0.0.1:1")
    monkeypatch.setattr(kafka.importlib.util, "find_spec", lambda name: None)
    for use in (lambda: kafka.KafkaChannel(named), lambda: kafka.send(named, LOG)):
        with pytest.raises(ConfigError, match=r"pip install .*\[kafka\]"):
            use()


def test_the_json_of_a_signal_has_its_data_as_an_object() -> None:
    assert json.loads(to_json(LOG))["data"] == {"message": "x"}
