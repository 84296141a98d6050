"""Values are cut, masked and hashed before events show them."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest

from tailrace.values.shapes import ByteTruncation, Digest, Mask, Shape, Truncation
from tests.layout_blocks import text_column


def shaped(shape: Shape, *texts: str | bytes | None) -> list[Any]:
    """Return the texts shaped as a column, which must equal each text shaped alone."""
    column = shape.column(text_column("before", *texts).slice(1))
    alone = [None if text is None else shape.text(text) for text in text_column(*texts).to_pylist()]
    assert column.to_pylist() == alone
    return [text if text is None else text.decode("utf-8", "surrogateescape") for text in alone]


@pytest.mark.parametrize(
    ("length", "texts", "wanted"),
    [
        (3, ("abcd", "abc", "", None), ["abc", "abc", "", None]),
        (2, ("éàü", "東京都"), ["éà", "東京"]),
        # Two units make one character, which does not fit into one.
        (2, ("a😀b", "😀x"), ["a", "😀"]),
        (3, ("a😀b",), ["a😀"]),
        (0, ("a", "😀"), ["", ""]),
    ],
)
def test_texts_are_cut_to_utf_16_units(length: int, texts: tuple[str | None, ...], wanted: list[Any]) -> None:
    assert shaped(Truncation(length), *texts) == wanted


def test_what_is_no_text_is_left_to_its_conversion() -> None:
    assert shaped(Truncation(1), b"\xff\xfe\xfd", "ab") == ["\udcff\udcfe\udcfd", "a"]


def test_bytes_are_cut_behind_their_beginning() -> None:
    assert shaped(ByteTruncation(2), "\\x0001ff", "\\x00", "\\x", None) == ["\\x0001", "\\x00", "\\x", None]


def test_a_mask_hides_even_length_and_absence() -> None:
    assert shaped(Mask(4), "a", "", "long text", None) == ["****"] * 3 + [None]
    assert (Mask(4).null(), Mask(0).text(b"x")) == (b"****", b"")
    assert (Truncation(1).null(), Digest("sha256", "s", 2, 64).null()) == (None, None)


@pytest.mark.parametrize("algorithm", ["sha256", "md5", "sha512"])
def test_a_digest_is_of_the_salt_and_the_text(algorithm: str) -> None:
    texts = ("", "a", "é😀", "a")
    wanted = [hashlib.new(algorithm, b"salt" + text.encode()).hexdigest() for text in texts]
    assert shaped(Digest(algorithm, "salt", 2, 128), *texts) == wanted
    assert shaped(Digest(algorithm, "salt", 2, 7), *texts, None) == [*(text[:7] for text in wanted), None]


@pytest.mark.parametrize(
    ("text", "modified"),
    [
        ("a", b"a"),
        ("", b""),
        ("é", "é".encode()),
        ("\0", b"\xc0\x80"),
        ("😀", b"\xed\xa0\xbd\xed\xb8\x80"),
        ("x\0😀\0", b"x\xc0\x80\xed\xa0\xbd\xed\xb8\x80\xc0\x80"),
    ],
)
def test_an_older_digest_is_of_the_text_as_java_serialises_it(text: str, modified: bytes) -> None:
    """After the header of a stream come TC_STRING, a length of two bytes, and UTF-8 as modified by Java."""
    data = b"\xac\xed\x00\x05t" + struct.pack(">H", len(modified)) + modified
    wanted = hashlib.sha256(b"salt" + data).hexdigest()
    assert shaped(Digest("sha256", "salt", 1, 64), text) == [wanted]


def test_a_text_of_more_than_65535_bytes_is_a_long_string() -> None:
    data = b"\xac\xed\x00\x05|" + struct.pack(">Q", 70_000) + b"a" * 70_000
    assert shaped(Digest("sha256", "salt", 1, 64), "a" * 70_000) == [hashlib.sha256(b"salt" + data).hexdigest()]


def test_a_salt_is_never_shown() -> None:
    assert "secret" not in repr(Digest("sha256", "secret", 2, 64))
