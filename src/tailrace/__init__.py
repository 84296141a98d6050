"""tailrace: change data capture that delivers Debezium change events through Apache Spark."""

__version__ = "0.1.0"

from tailrace.compiled import settle

settle()
