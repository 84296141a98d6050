"""Any signal, in every channel, is logged without its data, ignored if it is wrong, and does not stop the pipeline."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.config.expressions import signal_expression
from tailrace.connectors.mongodb.snapshot import windows as mongodb
from tailrace.connectors.mongodb.snapshot.chunks import condition
from tailrace.snapshot import signal_handler, signals
from tailrace.snapshot.channels import FileChannel
from tailrace.snapshot.incremental import Notifications
from tailrace.snapshot.progress import NO_PROGRESS, Progress
from tailrace.snapshot.signal_handler import SignalHandler
from tailrace.snapshot.signals import TYPES, WINDOW_CLOSE, WINDOW_OPEN, MalformedSignal, Signal
from tests.extent import examples

TABLES = [("public", "a"), ("public", "b"), ("s", "a" * 40)]
SECRET = "s3cret"
DEEP = "[" * 700 + "]" * 700


def asked(*entries: str, more: str = "") -> str:
    """Return the data of a signal for tables named by JSON texts."""
    return '{"data-collections": [' + ", ".join(entries) + "]" + more + "}"


HOSTILE = [
    asked(DEEP), asked("[" * 100_000), asked('"public.a"', more=f', "additional-conditions": [{DEEP}]'),
    asked('"a{4294967296}"'), asked(f'"(?={SECRET})a", "a++", "({SECRET}"'), asked(f'"({SECRET}"'),
    asked(f'"{SECRET}\\u0000"'), asked(f'"{SECRET}\\ud800"'), asked('"public.a"', more=', "\\ud800": 1'),
    asked('"public.a"', more=f', "additional-condition": "{SECRET}\\u0000"'),
    asked('"public.a"', more=', "n": ' + "9" * 5000), asked('"public.a"', more=', "n": 1e999, "surrogate-key": NaN'),
    asked('"public.a"', more=', "type": "' + "x" * 2_000_000 + '"'), asked('"(.+)+x"', '"((a|aa)+)+b"'),
    asked(*(f'"(x*{number})*"' for number in range(5000))), asked(*(f'"public.{number}"' for number in range(20_000))),
    '{"message": "a\\nforged line"}', "\ud800", "9" * 5000, '"', "{" * 5000, "",
]  # fmt: skip
IDS = ["1", "\ud800", "a\nb", "\0", "x" * 1_000_000, "", "9" * 5000, " "]

TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["public.a", "s.*", "(.+)+", "a{4294967296}", "[", '"a', "\ud800", "\0", "blocking"]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
NAMES = ["data-collections", "additional-conditions", "additional-condition", "surrogate-key", "type", "message"]
CONDITIONS = st.lists(st.fixed_dictionaries({"data-collection": TEXTS, "filter": TEXTS}), max_size=2)
DATA = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(st.lists(TEXTS, max_size=3), TEXTS, VALUES, CONDITIONS), max_size=4
)


def obeyed(signal: Signal, progress: Progress = NO_PROGRESS) -> Progress:
    """Return the progress after a signal, as read back from a checkpoint."""
    obedience = SignalHandler(lambda: TABLES, Notifications("p"), lambda condition: "")
    reached, _, notes = obedience.handle(signal, "0/1", progress, None)
    text = json.dumps(Progress.to_json(reached), ensure_ascii=False).encode()
    for note in notes:
        "".join((note.id, *(value for _, value in note.data))).encode()
    assert Progress.from_json(json.loads(text)) == reached
    return reached


@pytest.mark.parametrize("kind", TYPES)
def test_a_hostile_signal_leaves_a_running_pipeline_as_it_was(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for data in HOSTILE:
        obeyed(Signal("1", kind, data))
    for id_ in IDS:
        obeyed(Signal(id_, kind, '{"data-collections": ["public.a"], "message": "m"}'))
    assert all(len(line) < 20_000 and "\n" not in line for line in caplog.messages)
    assert not any(SECRET in line for line in caplog.messages)
    assert sum("ignored" in line for line in caplog.messages) >= 5


def test_the_next_signal_is_obeyed_after_a_hostile_one() -> None:
    progress = NO_PROGRESS
    for data in HOSTILE:
        progress = obeyed(Signal("1", "execute-snapshot", data), progress)
    found = obeyed(Signal("2", "execute-snapshot", '{"data-collections": ["public.b"]}'), progress).state
    assert found is not None
    assert (found.id, str(found.collections[-1])) == ("2", "public.b")


@settings(max_examples=examples(60))
@given(st.one_of(st.sampled_from([*TYPES, WINDOW_OPEN, WINDOW_CLOSE]), st.text(max_size=3)), DATA, TEXTS)
def test_any_signal_is_obeyed_or_ignored(kind: str, data: dict[str, Any], id_: str) -> None:
    obeyed(Signal(id_, kind, json.dumps(data)), obeyed(Signal("0", "execute-snapshot", '{"data-collections": [".*"]}')))


@pytest.mark.parametrize("step", ["read", "resolve"])
def test_a_fault_that_nobody_foresaw_is_told_without_the_data(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError(SECRET)

    signal = Signal("1", "execute-snapshot", '{"data-collections": ["public.a"]}')
    with monkeypatch.context() as patch:
        patch.setattr(signals, step, fails)
        assert obeyed(signal) == NO_PROGRESS
    (line,) = caplog.messages
    assert "is ignored" in line
    assert "RuntimeError" in line
    assert SECRET not in line
    assert obeyed(signal) != NO_PROGRESS


def test_the_work_of_one_signal_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Limited are the number of expressions, their size times the names, and the number of waiting tables."""
    most = signals.MOST_EXPRESSIONS
    many = [f"x{number}.*" for number in range(most + 1)]
    assert len(signals.resolve(many[:most], TABLES)[1]) == most
    with pytest.raises(MalformedSignal, match="too much work"):
        signals.resolve(many, TABLES)
    # Literal names cost nothing.
    assert len(signals.resolve(["public.a"] * (most + 1), TABLES)[0]) == 1
    names = [("public", "x" * 50 + str(number)) for number in range(1000)]
    steps = signal_expression("(x*y?)*").size * sum(len(f"{schema}.{table}") for schema, table in names)
    monkeypatch.setattr(signals, "MOST_STEPS", steps)
    assert signals.resolve(["(x*y?)*"], names) == ([], ["(x*y?)*"])
    monkeypatch.setattr(signals, "MOST_STEPS", steps - 1)
    with pytest.raises(MalformedSignal, match="too much work"):
        signals.resolve(["(x*y?)*"], names)
    monkeypatch.setattr(signal_handler, "MOST_WAITING", 2)
    data = asked('"public.a"', '"public.b"', '"public.none"')
    assert obeyed(Signal("1", "execute-snapshot", data)) == NO_PROGRESS
    assert "more than 2 tables would wait" in caplog.text
    two = obeyed(Signal("2", "execute-snapshot", asked('"public.a"', '"public.b"')))
    assert two != NO_PROGRESS
    assert obeyed(Signal("3", "execute-snapshot", asked('"public.a"')), two) == two


def test_a_failure_to_list_the_tables_is_not_the_signal_s() -> None:
    def lost() -> list[tuple[str, str]]:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        SignalHandler(lost, Notifications("p"), lambda condition: "").handle(
            Signal("1", "execute-snapshot", '{"data-collections": ["a"]}'), "0/1", NO_PROGRESS, None
        )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=40), st.builds(lambda *parts: json.dumps(dict(zip(("id", "type", "data"), parts,
       strict=True))).encode(), VALUES, TEXTS, VALUES)))  # fmt: skip
def test_any_line_of_a_file_is_passed(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "signals"
    path.write_bytes(line.replace(b"\n", b" ") + b"\n" + b'{"id": "last", "type": "log", "data": {"message": "m"}}\n')
    found = FileChannel(path).poll(None)
    assert found[-1][1] == path.stat().st_size
    assert found[-1][0] == Signal("last", "log", '{"message": "m"}')
    for signal, _ in found:
        if signal is not None:
            obeyed(signal)


def test_hostile_lines_of_a_file_are_passed(tmp_path: Path) -> None:
    path = tmp_path / "signals"
    lines = [*HOSTILE, *('{"id": "1", "type": "execute-snapshot", "data": ' + data + "}" for data in HOSTILE)]
    lines += [json.dumps({"id": id_, "type": "log", "data": {"message": "m"}}) for id_ in IDS]
    path.write_bytes(b"\n".join(line.encode("utf-8", "replace").replace(b"\n", b" ") for line in lines) + b"\n")
    found = FileChannel(path).poll(None)
    assert found[-1][1] == path.stat().st_size
    for signal, _ in found:
        if signal is not None:
            obeyed(signal)


def document(content: dict[str, Any]) -> Any:
    data = bson.encode({"fullDocument": content})
    return SimpleNamespace(at=np.array([0]), data=np.frombuffer(data, np.uint8))


def deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": [found]}
    return found


def test_hostile_documents_of_a_signal_collection_are_passed() -> None:
    far = b"\x1e\x00\x00\x00\x03fullDocument\x00\x10\x00\x00\x00\x09_id\x00" + b"\xff" * 7 + b"\x7f\x00\x00"
    parts = [
        document({"_id": "1", "type": "execute-snapshot", "data": deep(90)}),
        document({"_id": deep(90), "type": deep(90), "data": {"data-collections": [deep(60)]}}),
        document({"_id": "\0", "type": "log", "data": {"message": bson.Regex("a\u00ff")}}),
        document({"_id": bson.MaxKey(), "type": 7, "data": [1]}),
        SimpleNamespace(at=np.array([0]), data=np.frombuffer(far, np.uint8)),
        SimpleNamespace(at=np.array([0]), data=np.frombuffer(b"\x05\x00\x00\x00\x01", np.uint8)),
        # Valid BSON without a document where one belongs.
        SimpleNamespace(at=np.array([0]), data=np.frombuffer(bson.encode({"fullDocument": [1]}), np.uint8)),
    ]
    for part in parts:
        signal = mongodb._signal(part, 0)
        if signal is not None:
            obeyed(signal)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, DEEP, '{"a": ' + DEEP + "}", '{"a": ' * 160 + "1" + "}" * 160,
     '{"a": 1' + "9" * 30 + "}", '{"a": ' + "9" * 5000 + "}", '{"a\\u0000": 1}',
     '{"a": "\\ud800"}', '{"$oid": 1}', '{"a": {"$date": 1e300}}', '{"a": {"$numberLong": "9e99"}}',
     '{"a": {"$regularExpression": 1}}', '{"a": {"$binary": [1]}}', "a(" + " " * 99_999],
)  # fmt: skip
def test_a_condition_that_cannot_be_sent_is_told_as_such(text: str) -> None:
    with pytest.raises(ValueError, match=r"^.{1,300}$"):
        condition(text)


@given(VALUES.map(json.dumps) | st.text(max_size=20))
def test_any_condition_can_be_sent_or_is_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        bson.encode(condition(text))
