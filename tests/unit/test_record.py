"""The recorder's own parts that do not need Debezium."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.properties import parse
from tools.record.engine import Engine, full

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXTS.filter(bool), TEXTS))
def test_debezium_reads_the_very_configuration_that_the_case_names(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("engine")
    Engine("", options, folder, "UTC", "__debezium-heartbeat", 1)
    read = parse((folder / "connector.properties").read_text("ascii"))
    assert {whole(name): whole(value) for name, value in read.items()} == options


def whole(text: str) -> str:
    """Return `text` with its UTF-16 surrogates, the escapes of the file, joined."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


def test_heartbeats_and_unfinished_lines_do_not_count(tmp_path: Path) -> None:
    engine = Engine("", {}, tmp_path, "UTC", "__debezium-heartbeat", 1)
    engine.records.write_bytes(b'{"topic":"a.b"}\n{"topic":"__debezium-heartbeat.a"}\n{"topic":"a.')
    assert engine.count() == 1
    with engine.records.open("ab") as more:
        more.write(b'c"}\n')
    assert engine.count() == 2


def test_a_version_may_leave_its_qualifier_out() -> None:
    assert [full("3.6.1"), full("1.0.0.Final"), full("3.7.0.CR1")] == ["3.6.1.Final", "1.0.0.Final", "3.7.0.CR1"]
