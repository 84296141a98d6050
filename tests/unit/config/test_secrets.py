"""No value of an option that can hold a secret is shown: a marker is planted in each and searched for in all texts.

The short extent plants a third of the values in each option, drawn anew in each run.
"""

from __future__ import annotations

import logging
import pickle
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.config import Config
from tailrace.config.option import Kind, Option, holds_secret
from tailrace.config.secrets import resolve
from tailrace.connectors.registry import OWN, from_entries, parse, table
from tailrace.errors import ConfigError
from tests.extent import sized

MARKER = "hunter2marker"
REQUIRED = {
    "postgres": {"database.hostname": "db", "database.user": "u", "database.dbname": "d"},
    "sqlserver": {"database.hostname": "db", "database.user": "u", "database.names": "d", "topic.prefix": "p"},
    "db2": {"database.hostname": "db", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"},
    "mongodb": {"mongodb.connection.string": "mongodb://h/", "topic.prefix": "p"},
    "mysql": {"database.hostname": "db", "database.user": "u", "topic.prefix": "p"},
    "mariadb": {"database.hostname": "db", "database.user": "u", "topic.prefix": "p"},
}
# Names of families: those of other products, and invented ones.
FAMILIES = [
    "producer.override.sasl.jaas.config", "producer.override.ssl.keystore.key", "producer.override.what.ever",
    "key.converter.basic.auth.user.info", "value.converter.schema.registry.basic.auth.user.info",
    "value.converter.apicurio.registry.auth.client-secret", "schema.history.internal.producer.sasl.jaas.config",
    "schema.history.internal.consumer.sasl.jaas.config", "schema.history.internal.kafka.ssl.key.password",
    "schema.history.internal.what.ever", "offset.storage.redis.password", "errors.deadletterqueue.password",
    "topic.creation.default.secret", "transforms.a.token", "transforms.a.what.ever", "predicates.a.password",
    "signal.consumer.sasl.jaas.config", "signal.consumer.sasl.password", "signal.consumer.ssl.key.pem",
    "driver.APIKey", "driver.accessToken", "driver.PWD", "driver.password", "driver.SSLClientKeystash",
    "driver.what.ever", "driver.keyStoreSecret", "driver.user", "database.trustStorePassword",
    "openlineage.integration.job.owners", "memory.management.schemas.class",
]  # fmt: skip
VALUES = [
    MARKER, f"abc${{{MARKER}}}", f"a${{{MARKER}:b}}", f"a${{env:{MARKER}}}", f"{MARKER}${{x}}", f"mongodb://u:{MARKER}@h/?x=1",
    f"mongodb://u:p@{MARKER}:w@h", f"http://{MARKER}", f"a;{MARKER}={{", f" {MARKER} ", f"mongodb://u:{MARKER}@h:x/",
]  # fmt: skip


def named(option: Option) -> list[str]:
    """Return names under which an option may be given whose value must not be shown."""
    if not option.pattern:
        names = [option.name, *option.aliases, *option.deprecated_names]
        return [name for name in names if option.hides(name)]
    return [name for name in FAMILIES if option.matches(name) and (option.hides(name) or option.unsupported)]


CASES = [(connector, name) for connector in OWN for option in table(connector) for name in named(option)]


def texts(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_every_connector_has_options_that_are_hidden() -> None:
    assert {connector for connector, _ in CASES} == set(OWN)
    assert {"database.password", "mongodb.connection.string", "driver.APIKey"} <= {name for _, name in CASES}
    secret = {option.name for connector in OWN for option in table(connector) if option.kind is Kind.SECRET}
    assert all(holds_secret(name) for name in secret if "<" not in name)


@pytest.mark.parametrize(("connector", "name"), CASES)
def test_a_secret_is_in_no_error_no_line_of_the_log_and_no_repr(
    connector: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    option = next(option for option in table(connector) if name in named(option))
    apart = sized(3, 1)
    for value in VALUES[secrets.randbelow(apart) :: apart] if option.hides(name) else VALUES[:1]:
        for entries in ({name: value}, {name: value, name.upper(): f"{value}2"}):
            options = {known: text for known, text in REQUIRED[connector].items() if known != name} | entries
            prefix = "debezium.source."
            server = {f"{prefix}{known}": text for known, text in options.items()}
            reads: list[Any] = [lambda options=options: parse(connector, options)]
            for made in (options, server | {f"{prefix}connector.class": f"x.{connector}Connector"}):
                reads.append(lambda made=made: from_entries(made, {}).source)
            for read in reads:
                try:
                    told = [repr(config := read()), str(config), "".join(config.notices)]
                except ConfigError as error:
                    told = list(texts(error))
                assert not any(MARKER in text for text in told), (value, told)
    assert MARKER not in caplog.text


def test_a_salt_is_in_no_text_whatever_the_slip(caplog: pytest.LogCaptureFixture) -> None:
    for name in (
        f"column.mask.hash.SHA-256.with.salt.{MARKER}", f"column.mask.hash.v2.NONE.with.salt.{MARKER}",
        f"column.mask.hash.SHA-256.with.sal.{MARKER}", f"column.mask.with.hash.SHA-256.salt.{MARKER}",
        f"column.mask.hash.{MARKER}",
    ):  # fmt: skip
        for value in ("a.b.c", "(", ""):
            try:
                told = [repr(parse("postgres", REQUIRED["postgres"] | {name: value}))]
            except ConfigError as error:
                told = list(texts(error))
            assert not any(MARKER in text for text in told)
    assert MARKER not in caplog.text


@pytest.mark.parametrize("expressions", [True, False])
def test_a_part_of_a_password_that_looks_like_a_reference_is_not_told(expressions: bool) -> None:
    for value in (f"abc${{{MARKER}}}", f"${{{MARKER}}}", f"a${{{MARKER}:x}}", f"${{{MARKER}:x}}", f"a${{env:{MARKER}}}",
                  f"a${{dir:{MARKER}:x}}", f"a${{x:${{{MARKER}}}}}"):  # fmt: skip
        told = ""
        try:
            resolve({"debezium.source.database.password": value}, {}, expressions=expressions)
        except ConfigError as error:
            told = str(error)
        assert MARKER not in told
    # A reference that is the whole value is not a secret.
    with pytest.raises(ConfigError, match=r"refers to \$\{env:SHOP_PASSWORD\}, which does not exist"):
        resolve({"database.password": "${env:SHOP_PASSWORD}"}, {}, expressions=expressions)


def test_a_configuration_shows_no_secret_when_it_has_travelled() -> None:
    given = {"database.password": MARKER, "signal.consumer.sasl.jaas.config": MARKER,
             "signal.enabled.channels": "kafka", "signal.kafka.bootstrap.servers": "b:1"}  # fmt: skip
    config: Config = pickle.loads(pickle.dumps(parse("postgres", REQUIRED["postgres"] | given)))
    assert config["database.password"] == MARKER
    assert MARKER not in f"{config!r} {config}"
