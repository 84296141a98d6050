"""Kafka Connect's Filter: leaves records out, those of its predicate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.records.layout import RecordLayout
from tailrace.records.transform import Rewritten
from tailrace.transforms.given import Given


@dataclass(frozen=True, slots=True)
class Filter:
    """See tailrace.records.transform.Transform."""

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return None


def connect_filter(options: Mapping[str, str]) -> Filter:
    """The transform, which has no options."""
    Given(options).done()
    return Filter()
