"""Distributions of bounded size: histograms with fixed buckets, and quantiles within 1 %. No I/O."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the buckets of every histogram, in seconds. Behind them is a bucket without bound."""


class Histogram:
    """Numbers of durations by bucket, and their sum in seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration; a negative one, of clocks that differ, counts as 0."""
        seconds = max(seconds, 0.0)
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def to_json(self) -> dict[str, Any]:
        """Return the numbers of the buckets, each without the earlier ones, and the sum."""
        return {"counts": self.counts, "sum_s": self.sum_s}


_GROWTH = math.log(1.02)
_MOST = 4096


class Quantiles:
    """Least, greatest, mean and quantiles of numbers that are not negative; quantiles are exact within 1 %.

    Numbers are counted in buckets, each 2 % wider than the one before (DDSketch, VLDB 2019).
    """

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.least = 0.0
        self.most = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, value: float) -> None:
        """Count a number; a negative one counts as 0."""
        value = max(value, 0.0)
        self.least = value if not self.count else min(self.least, value)
        self.most = max(self.most, value)
        self.count += 1
        self.sum += value
        # below 1 all numbers share a bucket, and the largest share one too, so that the number of buckets is bounded
        bucket = min(math.ceil(math.log(value) / _GROWTH), _MOST) if value > 1 else 0
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def quantile(self, share: float) -> float:
        """Return the number below which `share` of all numbers lie; 0 without numbers."""
        rank = share * (self.count - 1)
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank < 0:
                middle = 2 * math.exp(bucket * _GROWTH) / (1 + math.exp(_GROWTH)) if bucket else self.least
                return min(max(middle, self.least), self.most)
        return self.most

    def to_json(self) -> dict[str, float]:
        """Return the numbers for `MilliSecondsBehindSource…`; empty without numbers."""
        if not self.count:
            return {}
        named = {f"P{percent}": self.quantile(percent / 100) for percent in (50, 95, 99)}
        return {"MinValue": self.least, "MaxValue": self.most, "AverageValue": self.sum / self.count, **named}
