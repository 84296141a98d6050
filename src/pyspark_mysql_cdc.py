"""The format mysql-cdc, row changes of MySQL: Spark looks for modules of such names."""

from __future__ import annotations

from typing import ClassVar

from tailrace.spark.source import ChangeDataSource


class DefaultSource(ChangeDataSource):
    """See tailrace.spark.source."""

    connector: ClassVar[str] = "mysql"
