"""Options become typed values, and every fault is reported."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tailrace.config import Config, Kind
from tailrace.connectors.registry import parse, table
from tailrace.errors import ConfigError
from tailrace.events.event_settings import EventSettings

REQUIRED = {"database.hostname": "db", "database.user": "reader", "database.dbname": "shop"}


def config(**options: str) -> Config:
    return parse("postgres", REQUIRED | {name.replace("__", "."): text for name, text in options.items()})


def fault(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**options)
    return str(caught.value)


def test_values_are_typed_and_defaults_are_applied() -> None:
    read = config(tombstones__on__delete="FALSE", max__batch__size=" 17 ", table__include__list=r"a\.b, c\.d\,e")
    assert read["tombstones.on.delete"] is False
    assert read["max.batch.size"] == 17
    assert read["table.include.list"] == [r"a\.b", r"c\.d,e"]
    assert read["database.port"] == 5432
    assert read.is_set("max.batch.size")
    assert not read.is_set("database.port")


def test_names_match_without_regard_to_case() -> None:
    assert parse("postgres", {**REQUIRED, "DATABASE.tcpkeepalive": "false"})["database.tcpKeepAlive"] is False


def test_an_unknown_option_is_told_with_the_nearest_name() -> None:
    assert "slot.nmae is not an option; the nearest is slot.name" in fault(slot__nmae="x")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            "Topic",
            "row.columns names Topic, which is not a column of the rows; the nearest is topic. They have topic, key,",
        ),
        ("key,xyz", "row.columns names xyz, which is not a column of the rows. They have topic, key, value, headers,"),
        ("key, value,key", "row.columns names key twice"),
        (" , ", "row.columns names no column"),
    ],
)
def test_columns_of_rows_are_those_that_there_are(columns: str, said: str) -> None:
    assert said in fault(row__columns=columns)


def test_columns_of_rows_keep_their_order() -> None:
    assert config(row__columns="value, topic")["row.columns"] == ["value", "topic"]
    assert config()["row.columns"] is None


def test_all_faults_come_in_one_message() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("postgres", {"max.batch.size": "many", "bogus": "1"})
    text = str(caught.value)
    for part in ("max.batch.size must be a whole number", "bogus is not", "database.hostname is missing"):
        assert part in text


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("plugin.name", "nonsense", "must be one of pgoutput"),
        ("snapshot.mode", "custom", "is not supported"),
        ("snapshot.isolation.mode", "chaos", "must be one of serializable"),
        ("snapshot.mode", "configuration_based", "does nothing unless"),
        ("heartbeat.interval.ms", "-1", "must be at least 0"),
        ("post.processors", "reselector", "post.processors.reselector.type is missing"),
        ("transforms", "unwrap", "transforms.unwrap.type is missing"),
        ("key.converter", "io.apicurio.registry.utils.converter.ProtobufConverter", "keys are written by"),
        ("slot.name", "Not-Legal", "lower-case letters"),
        ("database.port", "70000", "must lie between 1 and 65535"),
        ("skipped.operations", "c,x", "knows c, u, d, t and none, not x"),
        ("skipped.operations", "none,c", "names none beside operations"),
        ("unavailable.value.placeholder", "hex:abc", "hexadecimal"),
        ("replica.identity.autoset.values", "public.t", "expression:identity"),
        ("slot.stream.params", "messages=off", "cannot set messages, which the reader"),
        ("slot.stream.params", "origin=any;binary=on", "cannot set binary: values are read as text"),
        ("slot.stream.params", "origin", "must list name=value"),
        ("event.format", "2", "must be one of 1.7, 3"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("postgres", {**REQUIRED, name: text})
    assert name in str(caught.value)
    assert reason in str(caught.value)


def test_every_unsupported_option_may_be_given_with_its_default() -> None:
    for option in table("postgres"):
        if option.unsupported and not option.pattern and option.default not in (None, [], ""):
            default = option.default
            text = ",".join(default) if isinstance(default, list) else str(default)
            text = text.lower() if isinstance(default, bool) else text
            parse("postgres", {**REQUIRED, option.name: text})


def test_every_option_of_the_reference_has_a_row() -> None:
    names = (Path(__file__).parent / "debezium-options.txt").read_text().split()
    assert len(names) > 130
    unknown = []
    for name in names:
        if not any(name.lower() == o.name.lower() or o.matches(name) for o in table("postgres")):
            unknown.append(name)
    assert unknown == []


def test_the_defaults_that_are_typed_pass_their_own_checks() -> None:
    for option in table("postgres"):
        if option.default is None:
            continue
        if option.choices:
            assert option.default in option.choices, option.name
        if option.check is not None:
            assert not option.check(option.default), option.name


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({"database.server.name": "a"}, "1.7"),
        ({"topic.prefix": "a"}, "3"),
        ({"topic.prefix": "a", "database.server.name": "a"}, "3"),
        ({"topic.prefix": "a", "event.format": "1.7"}, "1.7"),
        ({"database.server.name": "a", "event.format": "3"}, "3"),
        ({}, "1.7"),
    ],
)
def test_the_generation_of_the_configuration_decides_the_format(options: dict[str, str], form: str) -> None:
    read = parse("postgres", REQUIRED | options)
    assert read.event_format == form
    assert parse("postgres", read.texts).event_format == form
    assert parse("postgres", {name.lower(): text for name, text in read.texts.items()}).typed == read.typed


def test_the_logical_name_falls_back_to_the_name_and_the_database() -> None:
    assert config().logical_name == "shop"
    assert config(name="inventory").logical_name == "inventory"


def test_two_names_of_one_option_must_agree() -> None:
    assert "contradict" in fault(topic__heartbeat__prefix="a", heartbeat__topics__prefix="b")


@pytest.mark.parametrize(
    ("connector", "older", "form"),
    [
        ("postgres", "database.server.name", "3"),
        ("sqlserver", "database.server.name", "3"),
        ("mongodb", "mongodb.name", "3"),
        # Db2's documentation uses topic.prefix itself.
        ("db2", "database.server.name", "2.3"),
    ],
)
@pytest.mark.parametrize("text", ["new", "old"])
def test_the_prefix_of_topics_goes_before_the_older_name(connector: str, older: str, form: str, text: str) -> None:
    needed = {
        "database.hostname": "h",
        "database.user": "u",
        "database.password": "p",
        "database.dbname": "d",
    }
    if connector == "mongodb":
        needed = {"mongodb.connection.string": "mongodb://h:1/?replicaSet=rs0"}
    both = {"topic.prefix": "new", older: text}
    for options in (both, dict(reversed(both.items()))):
        read = parse(connector, needed | options)
        assert read.logical_name == "new"
        assert read.event_format == form
        assert [notice for notice in read.notices if notice.startswith(f"{older} has no effect: topic.prefix")]
        assert parse(connector, read.texts).typed == read.typed


def test_truncates_have_one_answer_in_both_generations() -> None:
    def answer(**options: str) -> tuple[str, bool]:
        read = config(**options)
        return read["truncate.handling.mode"], "t" in read["skipped.operations"]

    skipped, included = ("skip", True), ("include", False)
    assert answer(topic__prefix="a") == skipped
    assert answer(topic__prefix="a", skipped__operations="none") == included
    assert answer(topic__prefix="a", truncate__handling__mode="include") == included
    assert answer(database__server__name="a") == skipped
    assert answer(database__server__name="a", skipped__operations="d") == skipped
    assert answer(database__server__name="a", truncate__handling__mode="include") == included
    assert "contradicts" in fault(truncate__handling__mode="include", skipped__operations="t")


def test_older_names_work_and_are_told() -> None:
    read = config(table__whitelist="a.b", toasted__value__placeholder="none")
    assert read["table.include.list"] == ["a.b"]
    assert read["unavailable.value.placeholder"] == "none"
    assert any("table.whitelist is the older name of table.include.list" in notice for notice in read.notices)


def test_options_of_the_offset_storage_are_taken_with_a_notice() -> None:
    read = config(offset__storage__file__filename="/x", offset__flush__interval__ms="0")
    assert len(read.notices) == 2
    assert all("checkpoint" in notice for notice in read.notices)
    assert "offset.storage.file.filename" not in read.texts


def test_converters_take_the_shared_setting_unless_they_have_their_own() -> None:
    read = config(converter__schemas__enable="false", key__converter__schemas__enable="true")
    assert read["key.converter.schemas.enable"] is True
    assert read["value.converter.schemas.enable"] is False
    assert config(value__converter__replace__null__with__default="false")["replace.null.with.default"] is False


def test_snapshot_modes_of_older_versions_mean_those_of_today() -> None:
    assert config(snapshot__mode="never")["snapshot.mode"] == "no_data"
    assert config(snapshot__mode="exported")["snapshot.mode"] == "initial"


def test_secrets_are_never_shown() -> None:
    read = config(database__password="hunter2", database__sslpassword="hunter3")
    assert "hunter" not in repr(read)
    assert "hunter" not in str(read)
    assert {option.name for option in table("postgres") if option.kind is Kind.SECRET} >= {"database.password"}


def test_a_configuration_pickles_and_compares() -> None:
    read = config(table__include__list="a.b")
    assert pickle.loads(pickle.dumps(read)) == read


def test_events_take_their_settings_from_it() -> None:
    settings = EventSettings.from_options(config(topic__prefix="a", decimal__handling__mode="string"))
    assert settings.decimal_handling_mode == "string"
    assert settings.logical_name == "a"


def test_statements_are_separated_by_single_semicolons() -> None:
    read = config(database__initial__statements="set a = 1; set b = 'x;;y';")
    assert read["database.initial.statements"] == ["set a = 1", "set b = 'x;y'"]
