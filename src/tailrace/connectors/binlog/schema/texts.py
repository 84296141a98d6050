"""Conversion from the server's character sets to UTF-8. Worker.

latin1 is Windows-1252 whose five undefined bytes are control characters. A set without a codec raises an error: another
codec would guess.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tailrace.errors import DecodeError

PLAIN = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
"""Sets whose texts are UTF-8 already."""

_CODECS = {
    "armscii8": "", "big5": "big5hkscs", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256",
    "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "cp932": "cp932",
    "eucjpms": "euc_jp", "euckr": "cp949", "gb18030": "gb18030", "gb2312": "gb2312", "gbk": "gbk",
    "greek": "iso8859_7", "hebrew": "iso8859_8", "koi8r": "koi8_r", "koi8u": "koi8_u", "latin2": "iso8859_2",
    "latin5": "iso8859_9", "latin7": "iso8859_13", "macce": "mac_latin2", "macroman": "mac_roman",
    "sjis": "shift_jis", "tis620": "tis_620", "ucs2": "utf_16_be", "ujis": "euc_jp", "utf16": "utf_16_be",
    "utf16le": "utf_16_le", "utf32": "utf_32_be",
}  # fmt: skip
_ONE_BYTE = frozenset(
    (
        "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "greek", "hebrew", "koi8r", "koi8u",
        "latin1", "latin2", "latin5", "latin7", "macce", "macroman", "tis620",
    )
)  # fmt: skip


def text_of(data: bytes, charset: str) -> bytes:
    """Return a text in UTF-8. Raises DecodeError for bytes that the set does not define, and for a set without
    codec."""
    try:
        if charset in PLAIN:
            data.decode()
            return data
        if charset == "latin1":
            return _latin1(data)
        return data.decode(codec(charset)).encode()
    except UnicodeError as error:
        raise DecodeError(f"A text of the log is not in its character set {charset}.") from error


def codec(charset: str) -> str:
    """Return Python's codec of a set. Raises DecodeError if there is none."""
    found = _CODECS.get(charset, "")
    if not found:
        raise DecodeError(
            f"Texts in the character set {charset} cannot be read; leave the column out with column.exclude.list, or "
            "convert the table to utf8mb4."
        )
    return found


def _latin1(data: bytes) -> bytes:
    return "".join(chr(byte) if byte in _HOLES else bytes([byte]).decode("cp1252") for byte in data).encode()


_HOLES = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))


@lru_cache(maxsize=64)
def table(charset: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the UTF-8 of each byte of a single-byte set, padded to four bytes, and its lengths (0: no character).

    Returns None for other sets.
    """
    if charset not in _ONE_BYTE:
        return None
    texts, lengths = np.zeros((256, 4), np.uint8), np.zeros(256, np.uint8)
    for byte in range(256):
        try:
            found = text_of(bytes([byte]), charset)
        except DecodeError:
            continue
        texts[byte, : len(found)] = list(found)
        lengths[byte] = len(found)
    flat = texts.reshape(-1)
    flat.flags.writeable = lengths.flags.writeable = False
    return flat, lengths
