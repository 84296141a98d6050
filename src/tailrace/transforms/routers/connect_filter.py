"""Kafka Connect's Filter: drops the records of its predicate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.records.layout import RecordLayout
from tailrace.records.transform import Rewritten
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class ConnectFilter:
    """A tailrace.records.transform.Transform that drops every record."""

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return None


def connect_filter(options: Mapping[str, str]) -> ConnectFilter:
    """Make the transform, which has no options."""
    OptionReader(options).done()
    return ConnectFilter()
