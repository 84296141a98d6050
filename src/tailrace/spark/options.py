"""Options on their way through Spark, which makes the names of a Python source's options lower case.

Some names hold parts whose case counts: a salt, a digest, a table. So all options travel in the value of one, as JSON.
Spark prints the options of a source in its plans, but for the values of those whose names its redaction knows as
secret: the name of the one is such a name, whatever the session is like.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

from tailrace.config.option import holds_secret
from tailrace.errors import ConfigError

CARRIER = "tailrace.options.secret"
"""The option whose value is the JSON object of all options, their names as they were written."""

_LIMIT, _IN_FILES = "event.max.change.bytes", "tasks.in.files"

_log = logging.getLogger("tailrace")

_CASE_COUNTS = re.compile(r"column\.mask\.hash\..+", re.IGNORECASE | re.DOTALL)
# what Spark's own setting of spark.redaction.regex finds
_REDACTED = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


def options(mapping: Mapping[str, str]) -> dict[str, str]:
    """`mapping` in a form that keeps the case of names: `readStream.format(…).options(**options(mapping))`. Driver.

    Plans, Spark's pages and its logs show nothing of any option. Where Spark runs already and `mapping` says nothing of
    event.max.change.bytes, that becomes a share of the memory of Spark's JVM; of tasks.in.files, so does what the
    master allows.
    """
    from pyspark import SparkContext

    from tailrace.spark.cluster import is_local
    from tailrace.spark.memory import most_change_bytes
    from tailrace.temporary import can_share_files

    given = dict(mapping)
    named = {name.strip().lower() for name in given}
    context = SparkContext._active_spark_context
    if context is not None and _LIMIT not in named:
        given[_LIMIT] = str(most_change_bytes(context))
    if context is not None and _IN_FILES not in named:
        given[_IN_FILES] = str(is_local(str(context.master)) and can_share_files()).lower()
    return {CARRIER: json.dumps(given, ensure_ascii=False)}


def unpacked(given: Mapping[str, str]) -> dict[str, str]:
    """The options that Spark handed over, with those of CARRIER among them under their own names.

    Raises ConfigError when CARRIER is no JSON object of texts, when an option is given twice with different texts,
    and for a name whose case counts but did not travel inside CARRIER.
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
