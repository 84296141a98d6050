"""Texts in the server's character sets are what a SELECT shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.connectors.binlog.schema.texts import text_of
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import driven
from tests.servers.mysql import MARIADB_11, MYSQL_8, MYSQL_57, Version

ONE_BYTE = (
    "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "greek", "hebrew", "koi8r", "koi8u", "latin1",
    "latin2", "latin5", "latin7", "macce", "macroman", "tis620",
)  # fmt: skip
TWO_BYTES = ("big5", "cp932", "eucjpms", "euckr", "gb2312", "gb18030", "gbk", "sjis", "ujis")
NO_CHARACTERS = {"", "?", "\ufffd"}
# the server has two bytes sequences for the tilde, one of which is ASCII's
TWICE = {"8FA2B7"}


def shown(database: MySqlDatabase, charset: str, texts: list[bytes]) -> dict[str, str]:
    """Return the characters that the server shows for the bytes of a set."""
    database.execute("create table b (b varbinary(4))")
    for low in range(0, len(texts), 8000):
        listed = ",".join(f"(x'{one.hex()}')" for one in texts[low : low + 8000])
        database.execute(f"insert into b values {listed}")
    found = database.execute(
        f"select hex(b), convert(convert(b using {charset}) using utf8mb4) from b "
        f"where char_length(convert(b using {charset})) = 1"
    )
    return {data: text for data, text in found if text not in NO_CHARACTERS}


@pytest.mark.parametrize("charset", [*ONE_BYTE, *TWO_BYTES])
def test_every_character_of_a_set_is_read(mysql: MySqlDatabase, charset: str) -> None:
    if charset in ONE_BYTE:
        texts = [bytes((byte,)) for byte in range(256) if byte != 0x3F]
    else:
        # in the Japanese sets of Shift-JIS a lead between A1 and DF is a character
        is_shifted = charset in ("sjis", "cp932")
        leads = [lead for lead in range(0x81, 0xFF) if not (is_shifted and 0xA1 <= lead <= 0xDF)]
        texts = [bytes((lead, trail)) for lead in leads for trail in range(0x40, 0xFF)]
    if charset in ("ujis", "eucjpms"):
        texts += [bytes((0x8F, lead, trail)) for lead in range(0xA1, 0xFF) for trail in range(0xA1, 0xFF)]
    found = shown(mysql, charset, texts)
    assert len(found) > 128
    read = {data: text_of(bytes.fromhex(data), charset).decode() for data in found if data not in TWICE}
    assert read == {data: text for data, text in found.items() if data not in TWICE}


@pytest.mark.parametrize("version", [MYSQL_8, MYSQL_57, MARIADB_11], ids=lambda version: version.name)
def test_statements_are_in_the_character_set_of_their_session(
    make_mysql: Callable[[Version], MySqlDatabase], version: Version
) -> None:
    database = make_mysql(version)
    database.execute("create table done (id int primary key)")
    is_described = version is not MYSQL_57
    if is_described:
        database.server.execute("set global binlog_row_metadata=MINIMAL")
    try:
        with driven(database) as planner:
            planner.until(lambda: bool(planner.offset["log"].get("file")) and not planner.batch())
            with database.connect(charset="latin5") as session, session.cursor() as cursor:
                cursor.execute(
                    "create table t (id int primary key, e enum('ş', 'ğ') character set latin5, `sütun` int)"
                )
                cursor.execute("insert into t values (1, 'ğ', 1)")
                cursor.execute("alter table t modify e enum('ş', 'ğ', 'ı') character set latin5")
                cursor.execute("insert into t values (2, 'ı', 2)")
                session.commit()
            planner.until(lambda: len(planner.of("t")) == 2)
    finally:
        if is_described:
            database.server.execute("set global binlog_row_metadata=FULL")
    found = [row["value"]["after"] for row in planner.of("t")]
    assert found == [{"id": 1, "e": "ğ", "sütun": 1}, {"id": 2, "e": "ı", "sütun": 2}]
