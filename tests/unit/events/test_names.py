"""Names of topics, schemas and fields."""

from __future__ import annotations

import pytest

from tailrace.columns import TableId
from tailrace.errors import ConfigError
from tailrace.events import names
from tailrace.events.event_settings import placeholder_bytes
from tests.event_settings import event_settings

ODD = TableId("golden", "Odd Schema", "Tab le-é")
TODAY = event_settings("dbserver1", "golden")
AVRO = event_settings("dbserver1", "golden", schema_name_adjustment_mode="avro", field_name_adjustment_mode="avro")
LEGACY = event_settings("dbserver1", "golden", event_format="1.7")


def test_topics_keep_hyphens_and_replace_what_is_illegal() -> None:
    assert names.topic(TODAY, ODD) == "dbserver1.Odd_Schema.Tab_le-_"


@pytest.mark.parametrize(
    ("name", "legal"), [("ta\N{GRINNING FACE}ble", "ta__ble"), ("é\N{CJK UNIFIED IDEOGRAPH-8868}", "__")]
)
def test_topics_have_one_underscore_for_each_java_char_that_is_illegal(name: str, legal: str) -> None:
    odd = TableId("golden", name, name)
    for settings in (TODAY, LEGACY):
        assert names.topic(settings, odd) == names.schema_prefix(settings, odd) == f"dbserver1.{legal}.{legal}"
    assert names.schema_change_topic(event_settings(name, "golden")) == legal
    assert names.message_topic(event_settings(name, "golden")) == f"{legal}.message"
    assert names.transaction_topic(event_settings(name, "golden")) == f"{legal}.transaction"
    assert names.quarantine_topic(event_settings(name, "golden")) == f"{legal}.quarantine"
    assert names.heartbeat_topic(event_settings(name, "golden")) == f"__debezium-heartbeat.{legal}"
    assert names.heartbeat_topic(event_settings("p", "golden", heartbeat_topic=name)) == legal


def test_schema_names_are_avro_names_where_asked_for_and_in_the_legacy_form() -> None:
    assert names.schema_prefix(TODAY, ODD) == "dbserver1.Odd_Schema.Tab_le-_"
    assert names.schema_prefix(AVRO, ODD) == names.schema_prefix(LEGACY, ODD) == "dbserver1.Odd_Schema.Tab_le__"


@pytest.mark.parametrize(
    ("name", "adjusted"),
    [("naïve-col", "na_ve_col"), ("1st", "_1st"), ("emoji😀", "emoji__"), ("dot.col", "dot_col"), ("$d", "_d")],
)
def test_field_names_are_adjusted_by_utf16_units(name: str, adjusted: str) -> None:
    assert names.field_name(AVRO, name) == adjusted
    assert names.field_name(TODAY, name) == name


def test_unicode_adjustment_keeps_names_distinct() -> None:
    assert names.adjusted("a-b_c", "avro_unicode", dots=False) == "a_u002db_u005fc"


def test_a_placeholder_may_be_given_in_hexadecimal() -> None:
    assert placeholder_bytes("hex:00ff") == b"\0\xff"
    assert placeholder_bytes("none") == b"none"
    with pytest.raises(ConfigError, match="hexadecimal"):
        placeholder_bytes("hex:zz")
