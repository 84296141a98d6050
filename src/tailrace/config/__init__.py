"""Configurations: one typed table of options per connector, the files they come in, the lists that filter tables."""

from tailrace.config.config import TABLES, Config, parse
from tailrace.config.filters import PrefixFilter, TableFilter
from tailrace.config.option import Kind, Option

__all__ = ["TABLES", "Config", "Kind", "Option", "PrefixFilter", "TableFilter", "parse"]
