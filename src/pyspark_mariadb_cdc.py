"""The format mariadb-cdc, row changes of MariaDB: Spark looks for modules of such names."""

from __future__ import annotations

from typing import ClassVar

from tailrace.spark.source import ChangeDataSource


class DefaultSource(ChangeDataSource):
    """See tailrace.spark.source."""

    connector: ClassVar[str] = "mariadb"
