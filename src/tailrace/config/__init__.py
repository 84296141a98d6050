"""Configurations: typed options, the files they come from, the lists that filter tables; for all connectors."""

from tailrace.config.config import Config, Foreign, examine, parse
from tailrace.config.filters import PrefixFilter, TableFilter
from tailrace.config.option import Kind, Option

__all__ = ["Config", "Foreign", "Kind", "Option", "PrefixFilter", "TableFilter", "examine", "parse"]
