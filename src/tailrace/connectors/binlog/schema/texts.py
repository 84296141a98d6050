"""Texts in the server's character sets, converted to UTF-8. Planner and worker.

latin1 is Windows-1252 whose five undefined bytes are control characters. Where Python's codec of a set has other
characters than the server's tables, the server's count: a SELECT shows them. A set without a codec raises an error:
another codec would guess.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from tailrace.errors import DecodeError

PLAIN = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
"""Sets whose texts are UTF-8 already."""

_CODECS = {
    "armscii8": "", "big5": "big5", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256",
    "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "cp932": "cp932",
    "eucjpms": "euc_jp", "euckr": "cp949", "gb18030": "gb18030", "gb2312": "gb2312", "gbk": "gbk",
    "greek": "iso8859_7", "hebrew": "iso8859_8", "koi8r": "koi8_r", "koi8u": "koi8_u", "latin2": "iso8859_2",
    "latin5": "iso8859_9", "latin7": "iso8859_13", "macce": "mac_latin2", "macroman": "mac_roman",
    "sjis": "shift_jis", "tis620": "tis_620", "ucs2": "utf_16_be", "ujis": "euc_jp", "utf16": "utf_16_be",
    "utf16le": "utf_16_le", "utf32": "utf_32_be",
}  # fmt: skip
_OTHERS: Mapping[str, Mapping[int, int]] = {
    name: str.maketrans(*pair)
    for name, pair in {
        "cp866": ("\u2116\xa4", "\u207f\xb2"),
        "eucjpms": ("\u301c\u2016\u2212\xa2\xa3\xac\xa6", "\uff5e\u2225\uff0d\uffe0\uffe1\uffe2\uffe4"),
        "gb18030": ("\ue7c7\u1e3f", "\u1e3f\ue7c7"),
        "greek": ("\u2018\u2019", "\u02bd\u02bc"),
        "hebrew": ("\xaf", "\u203e"),
        "koi8u": ("\u2219", "\u2022"),
        "sjis": ("\uff3c", "\\"),
        "ujis": ("\uff3c", "\\"),
    }.items()
}
"""The server's characters for characters of a codec."""
_FURTHER = "tailrace.binlog.further"
_IBM = (
    "2170 2171 2172 2173 2174 2175 2176 2177 2178 2179 2160 2161 2162 2163 2164 2165 2166 2167 2168 2169 ff07 ff02 "
    "3231 2116 2121 70bb 4efc 50f4 51ec 5307 5324 fa0e 548a 5759 fa0f fa10 589e 5bec 5cf5 5d53 fa11 5fb7 6085 6120 "
    "654e 663b 6665 fa12 f929 6801 fa13 fa14 6a6b 6ae2 6df8 6df2 7028 fa15 fa16 7501 7682 769e fa17 7930 fa18 fa19 "
    "fa1a fa1b 7ae7 fa1c fa1d 7da0 7dd6 fa1e 8362 fa1f 85b0 fa20 fa21 8807 fa22 8b7f 8cf4 8d76 fa23 fa24 fa25 90de "
    "fa26 9115 fa27 fa28 9592 f9dc fa29 973b 974d 9751 fa2a fa2b fa2c 999e 9ad9 9b72 fa2d 9ed1"
)
"""The code points of IBM's characters in eucjpms, in the order of their bytes up to the last."""
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
        found = data.decode(codec(charset), _FURTHER)
        return found.translate(_OTHERS[charset]).encode() if charset in _OTHERS else found.encode()
    except UnicodeError as error:
        raise DecodeError(f"A text of the log is not in its character set {charset}.") from error


def readable(data: bytes, charset: str) -> str:
    """Return a text, with U+FFFD for bytes that the set does not define. Texts of a set without codec are read as
    UTF-8."""
    try:
        return text_of(data, charset).decode()
    except DecodeError:
        return data.decode(_CODECS.get(charset) or "utf-8", "replace")


def codec(charset: str) -> str:
    """Return Python's codec of a set. Raises DecodeError if there is none."""
    found = _CODECS.get(charset, "")
    if not found:
        raise DecodeError(
            f"Texts in the character set {charset} cannot be read; leave the column out with column.exclude.list, or "
            "convert the table to utf8mb4."
        )
    return found


@lru_cache(maxsize=1)
def _further() -> Mapping[str, Mapping[bytes, str]]:
    """Return the characters that a codec lacks and the server has, by codec."""
    trails = range(0xA1, 0xFF)
    # the rows of the users, which have private characters, and those of NEC and IBM in eucjpms
    japanese = {
        prefix + bytes((lead, trail)): chr(first + (lead - 0xF5) * len(trails) + trail - 0xA1)
        for prefix, first in ((b"", 0xE000), (b"\x8f", 0xE3AC))
        for lead in range(0xF5, 0xFF)
        for trail in trails
    }
    for place, trail in enumerate(trails):
        found = bytes((0x87, 0x40 + place + (place >= 0x3F))).decode("cp932", "ignore")
        if found:
            japanese[bytes((0xAD, trail))] = found
    last = [bytes((0x8F, lead, trail)) for lead in (0xF3, 0xF4) for trail in trails]
    ibm = [chr(int(digits, 16)) for digits in _IBM.split()]
    japanese |= zip(last[-len(ibm) :], ibm, strict=True)
    chinese = {bytes((0xF9, 0xD6 + place)): one for place, one in enumerate("碁銹裏墻恒粧嫺")}
    return {"euc_jp": japanese, "big5": chinese}


def _with_further(error: UnicodeError) -> tuple[str, int]:
    """Return a character that the codec lacks, and the place after it."""
    if isinstance(error, UnicodeDecodeError):
        known = _further().get(error.encoding, {})
        for size in (3, 2):
            data = error.object[error.start : error.start + size]
            if data in known:
                return known[data], error.start + len(data)
    raise error


codecs.register_error(_FURTHER, _with_further)


def _latin1(data: bytes) -> bytes:
    return "".join(chr(byte) if byte in _HOLES else bytes([byte]).decode("cp1252") for byte in data).encode()


_HOLES = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))


@lru_cache(maxsize=64)
def table_of(charset: str) -> tuple[np.ndarray, np.ndarray] | None:
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
