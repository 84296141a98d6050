"""tailrace in Spark: the data sources, and a session with the settings that suit them."""

from typing import TYPE_CHECKING, Any

from tailrace.spark.capabilities import demand_sources
from tailrace.spark.options import options

if TYPE_CHECKING:
    from tailrace.spark.source import data_source, register

__all__ = ["data_source", "options", "register"]


def __getattr__(name: str) -> Any:
    """Import `tailrace.spark.source` on first use, because it imports PySpark and the JVM should start before that.

    Raises PrerequisiteError if this Spark cannot run the sources.
    """
    if name not in ("data_source", "register"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    demand_sources()
    from tailrace.spark import source

    return getattr(source, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
