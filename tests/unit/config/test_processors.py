"""post.processors is read in both spellings with every option, and wrong settings are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.config import Config
from tailrace.config.processors import RESELECT, Reselection, processors
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError

NEEDED = {
    "postgres": {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"},
    "sqlserver": {"database.hostname": "h", "database.user": "u", "database.names": "d", "topic.prefix": "p"},
    "db2": {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"},
    "mongodb": {"mongodb.connection.string": "mongodb://h", "topic.prefix": "p"},
    "mysql": {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"},
    "mariadb": {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"},
}
OPTIONS = {
    "type": RESELECT,
    "reselect.columns.include.list": r"public\.wide:long_.*, public.pair:long_text",
    "reselect.unavailable.values": "false",
    "reselect.null.values": "FALSE",
    "reselect.use.event.key": "true",
    "reselect.error.handling.mode": "FAIL",
}


def given(options: dict[str, str], start: str = "post.processors.re.", connector: str = "postgres") -> Config:
    named = {f"{start}{name}": text for name, text in options.items()}
    return parse(connector, NEEDED[connector] | {"post.processors": "re"} | named)


def made(config: Config) -> Reselection:
    (found,) = processors(config).processors
    return found


@pytest.mark.parametrize("connector", ["postgres", "sqlserver", "db2"])
@pytest.mark.parametrize("start", ["post.processors.re.", "re."])
def test_both_spellings_say_the_same(start: str, connector: str) -> None:
    config = given(OPTIONS, start, connector)
    found = made(config)
    assert [one.pattern for one in found.included] == [r"public\.wide:long_.*", "public.pair:long_text"]
    assert (found.unavailable, found.nulls, found.by_event_key, found.fails) == (False, False, True, True)
    # In the form that the source gets.
    assert made(parse(connector, config.texts)) == found


def test_without_options_what_is_not_there_and_nulls_are_read() -> None:
    found = made(given({"type": "ReselectColumnsPostProcessor"}))
    assert found == Reselection()
    assert found.concerns("public.t", "c")


def test_a_table_of_signals_is_left_out() -> None:
    config = parse("postgres", NEEDED["postgres"] | {
        "post.processors": "re", "re.type": RESELECT, "signal.data.collection": "public.signals"})  # fmt: skip
    assert not made(config).concerns("public.signals", "data")
    assert made(config).concerns("public.t", "data")


def test_expressions_are_over_schema_table_and_column_without_regard_to_case() -> None:
    found = made(given({"type": RESELECT, "reselect.columns.exclude.list": r"public\.T:A.*"}))
    assert [found.concerns("public.t", column) for column in ("abc", "b", "xabc")] == [False, True, True]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "post.processors.re.type is missing"),
        ({"type": "x.Y"}, "post.processors.re.type = x.Y is not supported: only io.debezium.processors.reselect."),
        ({"type": RESELECT, "reselect.null.value": "true"}, "the nearest is reselect.null.values"),
        ({"type": RESELECT, "reselect.null.values": "yes"}, "re.reselect.null.values must be true or false"),
        ({"type": RESELECT, "reselect.error.handling.mode": "skip"}, "must be one of warn, fail"),
        ({"type": RESELECT, "reselect.columns.include.list": "("}, "re.reselect.columns.include.list: "),
        (
            {"type": RESELECT, "reselect.columns.include.list": "a", "reselect.columns.exclude.list": "b"},
            "exclude each other",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        given(options)
    assert said in str(caught.value)


def test_a_cache_has_no_effect() -> None:
    config = given({"type": RESELECT, "reselect.cache.ttl.ms": "1"}, "re.")
    assert any(notice.startswith("re.reselect.cache.ttl.ms has no effect") for notice in config.notices)
    assert not any("cache" in name for name in config.texts)


def test_options_of_processors_that_are_not_named_pass() -> None:
    texts: dict[str, Any] = NEEDED["postgres"] | {"post.processors.re.type": RESELECT}
    config = parse("postgres", texts)
    assert processors(config).processors == ()
    assert any("post.processors does not name re" in notice for notice in config.notices)
    with pytest.raises(ConfigError, match=r"re\.type is not an option"):
        parse("postgres", NEEDED["postgres"] | {"re.type": RESELECT})


def test_documents_have_none() -> None:
    with pytest.raises(ConfigError, match=r"post\.processors = re is not supported: Debezium has post-processors for"):
        given({}, connector="mongodb")
