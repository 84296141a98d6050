"""Options keep the case of their names on the way through Spark."""

from __future__ import annotations

import json

import pytest

from tailrace.errors import ConfigError
from tailrace.spark import PostgresDataSource
from tailrace.spark.options import CARRIER, options, unpacked

HASH = "column.mask.hash.SHA-256.with.salt.CzQMA0cB5K"
GIVEN = {"database.hostname": "db", "database.user": "u", "database.dbname": "d", "database.password": "s3cret"}


def lower(mapping: dict[str, str]) -> dict[str, str]:
    """What Spark makes of the names."""
    return {name.lower(): text for name, text in mapping.items()}


def test_names_come_back_as_they_were_written() -> None:
    given = GIVEN | {HASH: "a.b.c", "Slot.Name": "x"}
    assert unpacked(lower(options(given))) == given


def test_secrets_travel_on_their_own() -> None:
    sent = options(GIVEN)
    assert sent["database.password"] == "s3cret"
    assert "s3cret" not in sent[CARRIER]


def test_the_source_reads_them() -> None:
    source = PostgresDataSource(lower(options(GIVEN | {HASH: "public.t.c"})))
    assert source._config[HASH] == ["public.t.c"]


def test_a_hash_that_spark_made_lower_case_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"Pass all options through tailrace.spark.options") as caught:
        PostgresDataSource(lower(GIVEN | {HASH: "public.t.c"}))
    assert "czqma" not in str(caught.value).lower()


def test_options_beside_the_carrier_add_to_it_but_do_not_contradict_it() -> None:
    sent = lower(options(GIVEN))
    assert unpacked(sent | {"slot.name": "x"})["slot.name"] == "x"
    assert unpacked(sent | {"database.user": "u"})["database.user"] == "u"
    with pytest.raises(ConfigError, match="user is given beside"):
        unpacked(sent | {"database.user": "other"})


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"a": 1})])
def test_anything_but_an_object_of_texts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no JSON object of texts"):
        unpacked({CARRIER: text})
