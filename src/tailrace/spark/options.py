"""The transport of options through Spark: all of them as JSON in the value of one option, CARRIER.

Spark makes the names of a Python source's options lower case, but the case of some parts of names counts: of a salt, a
digest or a table. Spark also prints a source's options in plans, except values whose names its redaction knows as
secret. CARRIER has such a name, whatever the session's settings.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

from tailrace.config.option import holds_secret
from tailrace.errors import ConfigError

CARRIER = "tailrace.options.secret"
"""The option whose value is a JSON object of all options, under their names as written by the user."""

_LIMIT, _IN_FILES = "event.max.change.bytes", "tasks.in.files"

_log = logging.getLogger("tailrace")

_CASE_COUNTS = re.compile(r"column\.mask\.hash\..+", re.IGNORECASE | re.DOTALL)
# the default of spark.redaction.regex
_REDACTED = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


def options(mapping: Mapping[str, str]) -> dict[str, str]:
    """Pack `mapping` so that names keep their case: `readStream.format(…).options(**options(mapping))`. Driver.

    Plans, Spark's pages and its logs show no packed option. If Spark runs already, two options get defaults of its:
    event.max.change.bytes a share of the JVM's memory, tasks.in.files true if tasks run on this host and can share
    files.
    """
    from pyspark import SparkContext

    from tailrace.process.temporary import can_share_files
    from tailrace.spark.cluster import is_local
    from tailrace.spark.memory import most_change_bytes

    given = dict(mapping)
    named = {name.strip().lower() for name in given}
    context = SparkContext._active_spark_context
    if context is not None and _LIMIT not in named:
        given[_LIMIT] = str(most_change_bytes(context))
    if context is not None and _IN_FILES not in named:
        given[_IN_FILES] = str(is_local(str(context.master)) and can_share_files()).lower()
    return {CARRIER: json.dumps(given, ensure_ascii=False)}


def unpacked(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that Spark handed over, with those inside CARRIER unpacked.

    Raises ConfigError if CARRIER is no JSON object of texts, if an option is given twice with different texts, or if a
    name whose case counts did not travel inside CARRIER.
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
        raise ConfigError(f"{CARRIER} is no JSON object of texts.", "Let tailrace.spark.options(mapping) write it.")
    places = {name.lower(): name for name in inside}
    for name, text in bare.items():
        same = places.get(name.lower())
        if same is not None and inside[same] != text:
            raise ConfigError(f"{name} is given beside {CARRIER} and, differently, in it.", "Give it once.")
    return {name: text for name, text in bare.items() if name.lower() not in places} | inside
