"""Capabilities of the installed Spark, determined from its files and attributes. Driver, data source.

Platforms change Spark without a new version number, and leave parts out. Therefore no version is compared. An error
names missing capabilities before anything starts: when a session is made, and when a format is loaded.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tailrace.errors import PrerequisiteError
from tailrace.process.installation import pip_install

_RUNNER = "sql/streaming/python_streaming_source_runner.py"
_NEEDED = (
    ("sql/datasource.py", "class DataSourceStreamReader", "has no sources in Python"),
    ("sql/streaming/datasource.py", "class SupportsTriggerAvailableNow", "gives a source in Python no read limits"),
    ("sql/datasource_internal.py", "class ReadLimitRegistry", "gives a source in Python no read limits"),
    (_RUNNER, "def latest_offset_admission_control_func", "does not tell a source in Python where a batch begins"),
    (_RUNNER, "def prepare_for_trigger_available_now_func", "cannot end a source in Python with what is there"),
)
"""Files of PySpark, a line that each must have, and what PySpark cannot do without it."""

_REMOTE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


def demand_sources() -> None:
    """Raise PrerequisiteError if this Python's PySpark is missing or cannot run the sources. Does not import PySpark.

    Spark must pass a source the position at which a batch begins: the database may discard its log before this
    position. It must also pass a limit for each batch, and make the call that ends a query at the current position.
    """
    if not _place():
        raise PrerequisiteError(
            "PySpark is not installed in this Python.",
            f"Use the Python of your platform's Spark, or install one: {pip_install('tailrace[spark]')}.",
        )
    missing = _missing(_place())
    if missing:
        raise PrerequisiteError(
            f"PySpark {version()} in {_place()} {missing}.",
            "Use a Spark that can, such as 4.2 and newer, with its own PySpark.",
        )


@cache
def _missing(place: str) -> str:
    """Return the part of an error message that says what the PySpark at `place` lacks; "" if it lacks nothing."""
    for name, line, lack in _NEEDED:
        text = _text(name)
        if not text:
            return f"{lack}: it has no {name}"
        if line not in text:
            return f"{lack}: {name} has no `{line}`"
    return ""


def demand_jvm() -> None:
    """Raise PrerequisiteError if this process cannot start a JVM: it is a client of Spark Connect, or has no jars."""
    demand_sources()
    if is_client():
        raise PrerequisiteError(
            "This process is a client of Spark Connect (SPARK_REMOTE), and has no JVM.",
            "Unset SPARK_REMOTE for a Spark of this process's own, or write what spark.readStream gives with a writer "
            "of Spark.",
        )
    home = spark_home()
    if not (home / "bin" / "spark-submit").is_file() or next((home / "jars").glob("spark-core_*.jar"), None) is None:
        raise PrerequisiteError(
            f"The Spark in {home} has no bin/spark-submit or no jars: it cannot start a JVM.",
            "Install the package pyspark, not its client alone, or let SPARK_HOME name a whole Spark.",
        )


def demand_classic(spark: Any, what: str) -> None:
    """Raise PrerequisiteError if `spark` is a session of Spark Connect, and `what` needs the session's JVM."""
    if is_connect(spark):
        raise PrerequisiteError(
            f"{what} needs a session with its JVM in this process, and this session is one of Spark Connect.",
            "Write what spark.readStream gives with a writer of Spark.",
        )


def is_connect(spark: Any) -> bool:
    """Return True if `spark` is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_client() -> bool:
    """Return True if sessions of this process are of Spark Connect.

    The environment may request it, as in the standard mode of Databricks, or PySpark may support nothing else, as the
    package pyspark-client.
    """
    return any(os.environ.get(name) for name in _REMOTE) or bool(_place() and not _text("core/context.py"))


def is_brought() -> bool:
    """Return True if the platform or the user's program provides the JVM, instead of tailrace.

    Then tailrace sets neither its jars, nor its memory, nor Java's options.
    """
    if _SUBMITTED in os.environ or is_client():
        return True
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._active_spark_context is not None


def has_jvm() -> bool:
    """Return True if this process has a JVM, without importing PySpark."""
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def spark_home() -> Path:
    """Return Spark's directory, as PySpark finds it, without importing PySpark: the JVM starts before that."""
    return Path(runpy.run_path(os.path.join(_place(), "find_spark_home.py"))["_find_spark_home"]())


def version() -> str:
    """Return PySpark's version as it states it, for messages only; "" without PySpark."""
    found = re.search(r"""^__version__[^=\n]*= *["']([^"']+)""", _text("version.py"), re.MULTILINE)
    return found.group(1) if found else ""


def _place() -> str:
    """Return the directory of the package that `import pyspark` finds, or its place in an archive; "" without one."""
    found = importlib.util.find_spec("pyspark")
    return "" if found is None or found.origin is None else os.path.dirname(found.origin)


def _text(name: str) -> str:
    """Return the text of one of PySpark's files, which may lie in an archive; "" if it is missing."""
    found = importlib.util.find_spec("pyspark")
    read: Any = getattr(found and found.loader, "get_data", None)
    try:
        return "" if read is None else bytes(read(os.path.join(_place(), name))).decode()
    except OSError:
        return ""
