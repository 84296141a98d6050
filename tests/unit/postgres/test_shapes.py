"""Cuts, masks and hashes: the same for a column as for single texts, and as in Java."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.values.shapes import ByteTruncation, Digest, Mask, Shape, Truncation, java_serialised

SALT = "CzQMA0cB5K"
TEXTS = st.lists(st.none() | st.text(max_size=8).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
SHAPES = st.one_of(
    st.builds(Truncation, st.integers(1, 6)),
    st.builds(ByteTruncation, st.integers(1, 3)),
    st.builds(Mask, st.integers(0, 6)),
    st.builds(Digest, st.sampled_from(["md5", "sha256"]), st.text("ab"), st.sampled_from([1, 2]), st.integers(0, 70)),
)


@given(TEXTS, SHAPES, st.integers(0, 2))
def test_a_column_is_shaped_as_its_texts_are(texts: list[str | None], shape: Shape, skipped: int) -> None:
    column = pa.array([None if text is None else text.encode() for text in texts], pa.binary()).slice(skipped)
    wanted = [None if text is None else shape.text(text.encode()) for text in texts[skipped:]]
    assert shape.column(column).to_pylist() == wanted


@pytest.mark.parametrize(
    ("text", "length", "cut"),
    [("hello", 3, "hel"), ("né", 3, "né"), ("ab😀cd", 4, "ab😀"), ("ab😀cd", 3, "ab"), ("", 1, "")],
)
def test_cuts_count_utf16_units_and_keep_characters_whole(text: str, length: int, cut: str) -> None:
    assert Truncation(length).text(text.encode()).decode() == cut


def test_a_text_in_no_known_encoding_is_left_to_its_conversion() -> None:
    broken = b"\xff\xfe\xfd\xfc"
    assert Truncation(2).column(pa.array([broken, b"abc"], pa.binary())).to_pylist() == [broken, b"ab"]


def test_hashes_are_those_of_the_recordings() -> None:
    first = Digest("sha256", SALT, 1, 2**31 - 1).text(b"sally@acme.com")
    assert first == b"aafb457e5910b05385a3e70e6106efaf470eaeea06945b670c44174526edf049"
    assert Digest("sha512", SALT, 2, 16).text(b"4111111111111111") == b"93cc63e6ee761d0b"


def test_java_serialises_in_modified_utf8_behind_the_length() -> None:
    assert java_serialised("a\0😀".encode()) == b"\xac\xed\0\x05t\0\x09a\xc0\x80\xed\xa0\xbd\xed\xb8\x80"
    long = java_serialised(b"x" * 70_000)
    assert long[4:13] == b"|" + (70_000).to_bytes(8, "big")
    assert len(long) == 70_013


def test_neither_salt_nor_text_is_told() -> None:
    shape = Digest("sha1", "pepper", 2, 40)
    assert "pepper" not in repr(shape)
    assert shape.text(b"v") == hashlib.sha1(b"pepperv").hexdigest().encode()
