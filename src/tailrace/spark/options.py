"""Transport of options through Spark, which makes the names of a Python source's options lower case. Any process."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.config.option import holds_secret
from tailrace.errors import ConfigError
from tailrace.spark.capabilities import is_client
from tailrace.spark.cluster import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext

# --- memory -----------------------------------------------------------------------------------------------------------

SHARE = 16
"""Divisor of the heap for the largest change. In measurements, a change of a sixteenth of the heap was delivered, and a
change of a thirteenth was not (docs/reference/events.md).

The JVM holds several copies of a change. The bytes of the log are in the batch's plan and in the task, each once
written and once read. The event is in Arrow's memory, in Spark's rows and in the sink's rows.
"""

_MESSAGE_MIB = "128"


def most_change_bytes(context: SparkContext) -> int:
    """Return the default of `event.max.change.bytes`.

    On a cluster the smaller heap of driver and executors decides. A task, which holds the change as the log has it,
    must also fit into a message of Spark (spark.rpc.message.maxSize).
    """
    jvm: Any = context._jvm
    heap = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    if is_local(str(context.master)):
        return heap // SHARE
    spark: Any = context._jsc.sc()
    executor = int(spark.executorMemory()) << 20
    message = int(spark.conf().get("spark.rpc.message.maxSize", _MESSAGE_MIB)) << 20
    return min(min(heap, executor) // SHARE, message // 2)


# --- options ----------------------------------------------------------------------------------------------------------

CARRIER = "tailrace.options.secret"
"""The option whose value is a JSON object of all options, under their names as written by the user."""

_LIMIT, _IN_FILES = "event.max.change.bytes", "tasks.in.files"

_log = logging.getLogger("tailrace")

_CASE_COUNTS = re.compile(r"column\.mask\.hash\..+", re.IGNORECASE | re.DOTALL)
# the default of spark.redaction.regex
_REDACTED = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


def options(mapping: Mapping[str, str]) -> dict[str, str]:
    """Pack `mapping` so that names keep their case: `readStream.format(…).options(**options(mapping))`. Driver.

    Plans, Spark's pages and its logs show no packed option. If Spark runs already, two options get defaults that depend
    on it: event.max.change.bytes is a share of the JVM's memory, and tasks.in.files is true if tasks run on this host
    and can share files.
    """
    from tailrace.process.temporary import can_share_files

    given = dict(mapping)
    named = {name.strip().lower() for name in given}
    context = _context()
    if context is not None and _LIMIT not in named:
        given[_LIMIT] = str(most_change_bytes(context))
    if context is not None and _IN_FILES not in named:
        given[_IN_FILES] = str(is_local(str(context.master)) and can_share_files()).lower()
    return {CARRIER: json.dumps(given, ensure_ascii=False)}


def _context() -> SparkContext | None:
    """Return the running context; None if there is none, as always in a client of Spark Connect."""
    if is_client():
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def unpacked(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that Spark handed over, with those inside CARRIER unpacked.

    Raises ConfigError if CARRIER is not a JSON object of texts, or if an option is given twice with different texts.
    Also raises ConfigError for an option outside CARRIER whose name is case-sensitive.
    """
    bare = {name: text for name, text in given.items() if name.lower() != CARRIER}
    for name in bare:
        if _CASE_COUNTS.fullmatch(name):
            raise ConfigError(
                "column.mask.hash.… came as an option of its own, and Spark makes the names of options lower case: "
                "the salt is not what it was.",
                "Pass all options through tailrace.spark.options: .options(**tailrace.spark.options(mapping)).",
            )
    for name in bare:
        if holds_secret(name) and not _REDACTED.search(name):
            _log.warning(
                "%s came as an option of its own, and Spark shows its value in plans: pass all options through "
                "tailrace.spark.options.",
                name,
            )
    carried = next((text for name, text in given.items() if name.lower() == CARRIER), None)
    if carried is None:
        return bare
    try:
        inside = json.loads(carried)
    except ValueError:
        inside = None
    if not isinstance(inside, dict) or not all(isinstance(text, str) for text in inside.values()):
        raise ConfigError(f"{CARRIER} is not a JSON object of texts.", "Let tailrace.spark.options(mapping) write it.")
    places = {name.lower(): name for name in inside}
    for name, text in bare.items():
        same = places.get(name.lower())
        if same is not None and inside[same] != text:
            raise ConfigError(f"{name} is given beside {CARRIER} and, differently, in it.", "Give it once.")
    return {name: text for name, text in bare.items() if name.lower() not in places} | inside
