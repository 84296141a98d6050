"""Hostile signals through a Kafka topic and a file: a warning, no effect, and the next valid signal is handled."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fix_postgres import Database
from tests.integration.postgres.signalled import SIGNALS, is_over, reads, run
from tests.property.test_signals import HOSTILE, IDS, SECRET

# The most bytes of one record that the planner reads, and that the broker accepts.
LONGEST = 900_000
CONDITIONS = (
    "1=1)); delete from public.t; --", "1=1) or (1=1", "((1=1", "1=1 /*", "1=1; drop table public.t", f"{SECRET} = '",
    "1 / (id - 2) > -99", f"v::int > 0 and '{SECRET}' <> ''",
    "lo_create(0) > 0", 'exists (select from "no\\u0000ne")',
)  # fmt: skip
OTHERS = ("null", "[]", '"no json"', '{"data-collections": "public.t"}', '{"data-collections": ["public.(t"]}')


def lines() -> list[bytes]:
    """Return the hostile signals, each as one line of a file or one record of a topic."""
    found = [*HOSTILE, *OTHERS, "no json", "{", "\x00", "[1]", '{"type": 7}', "null"]
    found += ['{"id": "1", "type": "execute-snapshot", "data": ' + data + "}" for data in (*HOSTILE, *OTHERS)]
    found += [json.dumps({"id": id_, "type": "log", "data": {"message": "m"}}) for id_ in IDS]
    for kind in ("incremental", "blocking"):
        for condition in CONDITIONS:
            sql = condition if kind == "incremental" else f"select * from public.t where {condition}"
            listed = [{"data-collection": "public.t", "filter": sql}]
            data = {"type": kind, "data-collections": ["public.t"], "additional-conditions": listed}
            found.append(json.dumps({"id": "c", "type": "execute-snapshot", "data": data}))
    encoded = [text.encode("utf-8", "replace").replace(b"\n", b" ") for text in found]
    return [line for line in (*encoded, b"\xff\xfe", b"") if len(line) < LONGEST]


LAST = b'{"id": "last", "type": "execute-snapshot", "data": {"data-collections": ["public.u"]}}'


@pytest.mark.parametrize("channel", ["kafka", "file"])
def test_hostile_signals_of_a_channel_are_passed_and_the_next_one_is_obeyed(
    database: Database,
    make_query: Any,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    channel: str,
) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    database.execute(
        SIGNALS,
        "create table t (id int primary key, v text)",
        "insert into t select i, 'text' from generate_series(1, 5) i",
        "create table u (id int primary key)",
        "insert into u values (1)",
    )
    options = {"signal_enabled_channels": channel, "signal_poll_interval_ms": "1"}
    file = tmp_path / "signals"
    if channel == "kafka":
        servers = request.getfixturevalue("kafka").servers
        topic = f"signals-{database.name}"
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        options |= {"signal_kafka_bootstrap_servers": servers, "signal_kafka_topic": topic}
    else:
        options["signal_file"] = str(file)
        file.touch()
    one = make_query(**options)

    def send(*signals: bytes) -> None:
        if channel == "file":
            with file.open("ab") as opened:
                opened.writelines(signal + b"\n" for signal in signals)
            return
        producer = Producer({"bootstrap.servers": servers})
        for signal in signals:
            producer.produce(topic, signal, "s", partition=0)
        assert producer.flush(30) == 0

    def position() -> int:
        told = (one.committed or {}).get("progress", {}).get("positions", [])
        return dict(told).get(channel, -1)

    run(one, lambda _: channel == "file" or position() >= 0)
    hostile = lines()
    send(*hostile)
    wanted = sum(len(line) + 1 for line in hostile) if channel == "file" else len(hostile)
    run(one, lambda _: position() >= wanted)
    one.kill()
    database.execute("insert into t values (6, 'later')")
    send(LAST)
    run(one, lambda q: bool(reads(q, "u")) and ("c", "t", (b"6", b"later")) in q.changes)
    run(one, is_over)
    assert reads(one, "u")[0] == (b"1",)
    with database.connect() as connection:
        assert [row[0] for row in connection.execute("select id from t order by id")] == [1, 2, 3, 4, 5, 6]
    assert SECRET not in caplog.text
    assert sum("ignored" in line for line in caplog.messages) >= 20
    assert sum("public.t" in line and "SQLSTATE" in line for line in caplog.messages) >= 2
