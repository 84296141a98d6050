"""Texts stay unchanged, and bytes follow each binary.handling.mode."""

from __future__ import annotations

import base64
import json

import pytest

from tailrace import values
from tailrace.columns.logical import BYTES, STRING
from tailrace.values import binaries, strings
from tailrace.values.fragments import lsn_texts
from tailrace.values.lsns import lsn_text
from tests.layout_blocks import plan_of, text_column
from tests.unit.values.shown_values import NOTHING, converted, held, shown

EVERY = "".join(
    map(chr, [*range(0x20), 0x22, 0x2F, 0x5C, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF])
)


@pytest.mark.parametrize("text", ["", "a", EVERY, EVERY * 40, "a" * 300, "é" * 300, "x" * 127 + '"', "😀" * 130])
def test_a_text_stays_as_it_is(text: str) -> None:
    assert shown(strings.text(), text, "b") == held(strings.text(), text, "b") == [text, "b"]


def test_texts_are_escaped_as_jackson_does_it() -> None:
    assert converted(strings.text(), '"\\\b\t\n\f\r\x00\x1f/', "😀é").shown == [
        r'"\"\\\b\t\n\f\r\u0000\u001F/"', r'"\uD83D\uDE00é"',
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"\xff", b"\xc3", b"a\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\x80"])
def test_what_is_no_utf_8_is_lost(data: bytes) -> None:
    """Surrogates, overlong forms and bytes beyond the last character are not UTF-8."""
    assert shown(strings.text(), "é", data, "b") == held(strings.text(), "é", data, "b") == ["é", NOTHING, "b"]


def test_texts_say_what_is_in_them() -> None:
    conversion = strings.text(strings.UUID, zero="00000000-0000-0000-0000-000000000000")
    assert (conversion.logical.name, conversion.logical.version) == ("io.debezium.data.Uuid", 1)
    assert json.loads(f'"{conversion.zero}"') == "0" * 8 + "-0000-0000-0000-" + "0" * 12
    found = strings.enumeration(("sad", "happy, really"))
    assert (found.name, found.parameters) == ("io.debezium.data.Enum", (("allowed", "sad,happy, really"),))
    kinds = (strings.JSON, strings.XML, strings.LTREE, strings.TSVECTOR)
    assert [kind.name for kind in kinds] == [
        f"io.debezium.data.{name}" for name in ("Json", "Xml", "Ltree", "Tsvector")
    ]


PARTS = (b"", b"\x00", b"\x00\xff", b"\xfb\xff\xfe", bytes(range(256)))
NONE = ("", "\\", "00", "\\X00", "\\x0", "\\xFF", "\\x0g", "\\x 00")


@pytest.mark.parametrize("mode", ["bytes", "base64", "base64-url-safe", "hex"])
def test_bytes_are_written_as_their_mode_says(mode: str) -> None:
    texts = [f"\\x{part.hex()}" for part in PARTS]
    write = {"base64-url-safe": base64.urlsafe_b64encode, "hex": lambda part: part.hex().encode()}.get(
        mode, base64.b64encode
    )
    wanted = [write(part).decode() for part in PARTS]
    conversion = binaries.binary(mode, None)
    assert conversion.logical == (BYTES if mode == "bytes" else STRING)
    assert shown(conversion, *texts, *NONE) == [*wanted, *[NOTHING] * len(NONE)]
    assert held(conversion, *texts, *NONE) == [*(PARTS if mode == "bytes" else wanted), *[NOTHING] * len(NONE)]
    assert [binaries.binary_text(mode)(part) for part in PARTS] == wanted
    assert binaries.binary_type(mode) == conversion.logical


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (bytes(10), "00000000:00000000:0000"),
        (bytes.fromhex("0000002700000758ff03"), "00000027:00000758:ff03"),
        (bytes(range(240, 256)), "f0f1f2f3:f4f5f6f7:f8f9fafbfcfdfeff"),
    ],
)
def test_the_lsn_of_a_change_table_is_hexadecimal_digits_in_three_parts(data: bytes, text: str) -> None:
    assert lsn_text(data) == text
    column = text_column(b"\xff" * 9, data, None, data).slice(1)
    assert lsn_texts(column).to_pylist() == [text, None, text]


def test_a_column_of_no_rows_has_no_values() -> None:
    for conversion in (strings.text(), binaries.binary("bytes", None), binaries.binary("hex", None)):
        assert values.arrow(plan_of(conversion), text_column()).to_pylist() == []
