"""tailrace: change data capture that delivers Debezium change events through Apache Spark."""

from importlib import import_module
from typing import TYPE_CHECKING

from tailrace.kernels.compiled import settle

if TYPE_CHECKING:
    from tailrace.monitoring.observing import observe
    from tailrace.sinks.tables.positions import ReadAt, complete_until, read_at

__all__ = ["ReadAt", "__version__", "complete_until", "observe", "read_at"]

__version__ = "0.1.0"

_POSITIONS = "tailrace.sinks.tables.positions"
_PLACES = {
    "ReadAt": _POSITIONS,
    "complete_until": _POSITIONS,
    "observe": "tailrace.monitoring.observing",
    "read_at": _POSITIONS,
}

settle()


def __getattr__(name: str) -> object:
    # imported on first use: it imports the sink and Spark, which most programs do not need
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
