"""Options keep the case of their names on the way through Spark."""

from __future__ import annotations

import json
import re

import pytest

from tailrace.connectors.registry import find
from tailrace.errors import ConfigError
from tailrace.spark import data_source
from tailrace.spark.options import CARRIER, options, unpacked

HASH = "column.mask.hash.SHA-256.with.salt.CzQMA0cB5K"
GIVEN = {"database.hostname": "db", "database.user": "u", "database.dbname": "d", "database.password": "s3cret"}


def lower(mapping: dict[str, str]) -> dict[str, str]:
    """Return options with their names in lower case, as from Spark."""
    return {name.lower(): text for name, text in mapping.items()}


def test_names_come_back_as_they_were_written() -> None:
    given = GIVEN | {HASH: "a.b.c", "Slot.Name": "x", "event.max.change.bytes": "0", "tasks.in.files": "false"}
    assert unpacked(lower(options(given))) == given


def test_no_option_has_a_name_that_spark_shows_the_value_of() -> None:
    sent = options(GIVEN | {"driver.APIKey": "s3cret", HASH: "a.b.c"})
    assert all(re.search("(?i)secret|password|token|access[.]?key", name) for name in sent)


def test_a_secret_that_spark_would_show_is_told(caplog: pytest.LogCaptureFixture) -> None:
    unpacked({"mongodb.connection.string": "mongodb://u:s3cret@h/", "database.password": "s3cret"})
    assert len(caplog.messages) == 1
    assert "mongodb.connection.string came as an option of its own" in caplog.messages[0]
    assert "s3cret" not in caplog.text


def test_the_source_reads_them() -> None:
    source = data_source(find("postgres"))(lower(options(GIVEN | {HASH: "public.t.c"})))
    assert source._config[HASH] == ["public.t.c"]


def test_a_hash_that_spark_made_lower_case_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"Pass all options through tailrace.spark.options") as caught:
        data_source(find("postgres"))(lower(GIVEN | {HASH: "public.t.c"}))
    assert "czqma" not in str(caught.value).lower()


def test_options_beside_the_carrier_add_to_it_but_do_not_contradict_it() -> None:
    sent = lower(options(GIVEN))
    assert unpacked(sent | {"slot.name": "x"})["slot.name"] == "x"
    assert unpacked(sent | {"database.user": "u"})["database.user"] == "u"
    with pytest.raises(ConfigError, match="user is given beside"):
        unpacked(sent | {"database.user": "other"})


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"a": 1})])
def test_anything_but_an_object_of_texts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a JSON object of texts"):
        unpacked({CARRIER: text})
