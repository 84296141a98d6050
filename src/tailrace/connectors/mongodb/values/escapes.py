r"""The characters that MongoDB's Java driver writes as \u escapes: a table of Unicode 13. Worker.

The driver writes letters, digits, punctuation, symbols and plain spaces literally, and escapes every UTF-16 unit of the
categories Cc, Cf, Cn, Co, Cs, Lm, Mn, Mc, Me, Zl and Zp. A character's category depends on the Unicode version of the
Java that runs the driver, and Python has one of its own; so this table is fixed to Unicode 13, which Java 15 to 18
have. Surrogates are of category Cs: all characters beyond the basic plane are escaped.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Lengths, in base 36, of alternating runs of units: literal, escaped, literal, ...
_RUNS = """
0 w 2n x d 1 ea i 4 c e 5 7 1 1 1 h 34 4 1 3 3 5 4 7 1 1 1 k 1 68 7 4m 1 12 3 1d 2 3 1a 1 1 1 2 1 2 1 9 r 4 6 h
a b 1 2 y 1 a l g 1 2t 8 1 a 1 4 w 2 1 1 u t 2h b 1 e 17 b 4 4 o q f 1 p 5 1 1 b 1h l 1 i 1o 1i 3 1 i 1 7 a 2 d
1 f 4 8 2 2 2 m 1 7 1 1 3 4 3 1 g 1 d 2 1 3 4 o 7 6 4 2 2 m 1 7 1 2 1 2 1 2 v 4 1 1 7 a 2 3 1 1 e 9 1 3 1 m 1 7
1 2 1 5 3 1 i 1 f 2 4 c 7 1 b 8 2 2 2 m 1 7 1 2 1 5 3 1 u 2 1 3 4 i b 1 1 6 3 3 1 4 3 2 1 1 1 2 3 2 3 3 3 c m 1
l l a 8 1 3 1 n 1 g 3 1 q 3 5 2 4 a 7 a 3 9 1 3 1 n 1 a 1 5 3 1 w 1 1 2 4 a 1 2 h 9 1 3 1 15 2 1 g 2 4 3 1 a 4 q
5 i 3 o 1 9 1 1 2 7 v a 4 1 c 1c 1 2 b 7 9 d 11 2 1 1 1 5 1 o 1 1 1 a 1 2 9 1 2 5 b a 2 4 w o 2 r 1 1 1 1 1 4 2
8 1 10 o 1 2 5 1d 8 1 6 1 d 11 17 k n 4 4 3 1 3 2 7 3 4 d c 1 1 a 4 14 1 1 5 1 2 18 1 98 1 4 2 7 1 1 1 4 2 15 1
4 2 x 1 4 2 7 1 1 1 4 2 f 1 1l 1 4 2 1v 5 t 3 q 6 2e 2 6 2 il 3 2h 7 d 1 4 e i 3 2 9 i e d 1 3 f 1g w 3 1 5 3 a
6 a 6 b 5 a 6 z 1 1h 7 5 2 y 1 1 5 1y a v x 1 3 16 2 5 b 18 4 q 6 b 3 1l 7 1j 17 a 6 a 6 7 1 6 2f 1b h 7 4 r 9 9
6 u d 1k m 14 n f 3 17 6 b 7 17 2 b b 1 l 4 1 6 1 2 3 1 5 18 1r d 1 y 2t 7q 2 6 2 12 2 6 2 8 1 1 1 1 1 1 1 v 2
1h 1 f 1 e 2 6 1 j 2 3 1 9 1 b 5 o 7 1d g 1 3 b 1 f h w 1s 3w 4 if p b l 1ec 2 w 1 48 1 1b 1 s 2 35 3 2 5 19 1 1
5 1 2 1k 8 1 f n 9 7 1 7 1 7 1 7 1 7 1 7 1 7 1 7 x 1b 1 z 19 q 1 2h c 5y q c 4 5 1 10 6 1 5 5 1 4 1 2e 4 2 2 2l
3 1 5 17 1 2m 1 2c c 1b 1 lp9 3 l 1 vr 3 1j 9 14 6 7i 1 v k 1b 4 1 a 1 1 s 4 28 2 6 8 n 9 28 1 n 1 1j 2 9 16 3 2
8 1 3 1 4 1 n 5 4 4 a 6 1k a 1e q c o d 1 12 8 p o u 7 1b e d 2 a 4 7 2 o 1 15 n 3 1 8 4 a 2 k 1 a 3 1e 1 1 3 2
2 5 2 1 1 1 o 2 1 d 5 3 e 6 2 6 2 6 9 7 1 7 1 18 4 9 1 2 4 37 8 1 4 a 6 8mc c n 4 1d 6is a6 2 2y 12 7 c 5 5 1 1
o 1 5 1 1 1 2 1 2 1 3g h a5 g 1s 2 1i 14 e i a m z 1 j 1 4 4 5 1 3r 4 33 1 19 2 v 3 6 2 6 2 6 2 3 3 7 1 7 d 2 2
"""


def escaped_units() -> npt.NDArray[np.uint8]:
    """Return 65,536 bits, the lowest first: bit n is 1 if the UTF-16 unit n is escaped."""
    lengths = [int(word, 36) for word in _RUNS.split()]
    flags = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    return np.packbits(flags, bitorder="little")
