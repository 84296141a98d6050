"""Character sets, by the numbers of their collations and by names. No I/O."""

from __future__ import annotations

from bisect import bisect_right

_RANGES = (
    "0 -,1 big5,2 latin2,3 dec8,4 cp850,5 latin1,6 hp8,7 koi8r,8 latin1,9 latin2,10 swe7,11 ascii,12 ujis,"
    "13 sjis,14 cp1251,15 latin1,16 hebrew,17 -,18 tis620,19 euckr,20 latin7,21 latin2,22 koi8u,23 cp1251,"
    "24 gb2312,25 greek,26 cp1250,27 latin2,28 gbk,29 cp1257,30 latin5,31 latin1,32 armscii8,33 utf8mb3,"
    "34 cp1250,35 ucs2,36 cp866,37 keybcs2,38 macce,39 macroman,40 cp852,41 latin7,43 macce,44 cp1250,"
    "45 utf8mb4,47 latin1,50 cp1251,53 macroman,54 utf16,56 utf16le,57 cp1256,58 cp1257,60 utf32,62 utf16le,"
    "63 binary,64 armscii8,65 ascii,66 cp1250,67 cp1256,68 cp866,69 dec8,70 greek,71 hebrew,72 hp8,73 keybcs2,"
    "74 koi8r,75 koi8u,76 utf8mb3,77 latin2,78 latin5,79 latin7,80 cp850,81 cp852,82 swe7,83 utf8mb3,84 big5,"
    "85 euckr,86 gb2312,87 gbk,88 sjis,89 tis620,90 ucs2,91 ujis,92 geostd8,94 latin1,95 cp932,97 eucjpms,"
    "99 cp1250,100 -,101 utf16,125 -,128 ucs2,160 utf32,184 -,192 utf8mb3,224 utf8mb4,248 gb18030,251 -,"
    "255 utf8mb4,576 utf8mb3,608 utf8mb4,640 ucs2,672 utf16,736 utf32,768 -,2048 utf8mb3,2304 utf8mb4,"
    "2560 ucs2,2816 utf16,3072 utf32,3328 -"
)
_FIRST = [int(part.split()[0]) for part in _RANGES.split(",")]
_NAMES = [part.split()[1] for part in _RANGES.split(",")]
_NOPAD = 1024


def charset_of(collation: int) -> str | None:
    """Return the character set of a collation's number; None for an unknown number."""
    # MariaDB's collation without padding has the number of the padded one plus 1024
    number = collation - _NOPAD if _NOPAD <= collation < 2 * _NOPAD else collation
    place = bisect_right(_FIRST, number) - 1
    return None if place < 0 or _NAMES[place] == "-" else _NAMES[place]


def charset_of_collation(name: str) -> str:
    """Return the character set of a collation's name."""
    name = name.lower()
    if name.startswith("uca1400"):
        # MariaDB's short names leave the character set to the table
        return ""
    return name.partition("_")[0]


def canonical(name: str) -> str:
    """Return the normal form of a character set's name: in lower case, and `utf8mb3` for utf8."""
    name = name.lower()
    return "utf8mb3" if name == "utf8" else name
