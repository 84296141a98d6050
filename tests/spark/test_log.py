"""Spark's log on stderr shows everything except the errors that tailrace raises in Spark and reports itself."""

from __future__ import annotations

import re

import pytest
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from tailrace.sinks.tables.statements import UNKNOWN, literal
from tailrace.spark.session import _log_settings


def shown(spark: SparkSession, statement: str) -> str:
    """Return the log's text for a failure of the statement."""
    with pytest.raises(CapturedException) as caught:
        spark.sql(statement).collect()
    jvm = spark._jvm
    assert jvm is not None
    pattern = re.sub(r"\\\n", "", _log_settings("error").read_text())
    (pattern,) = re.findall(r"layout\.pattern = (.*)", pattern)
    logging = jvm.org.apache.logging.log4j
    layout = logging.core.layout.PatternLayout.newBuilder().withPattern(pattern)
    event = logging.core.impl.Log4jLogEvent.newBuilder().setLoggerName("a.MergeIntoCommand")
    event = event.setLevel(logging.Level.ERROR).setMessage(logging.message.SimpleMessage("Fatal error in MERGE"))
    event = event.setThrown(jvm.java.lang.RuntimeException("outer", caught.value._origin))
    return str(layout.withAlwaysWriteExceptions(False).build().toSerializable(event.build()))


def test_failures_that_are_told_by_tailrace_are_not_in_the_log(spark: SparkSession) -> None:
    assert shown(spark, f"select raise_error({literal(UNKNOWN)}) from range(1)") == ""
    told = shown(spark, "select raise_error('tailrace of a user') from range(1)")
    assert re.match(
        r"\d\d:\d\d:\d\d ERROR MergeIntoCommand: Fatal error in MERGE\njava.lang.RuntimeException: outer", told
    )
    assert "[USER_RAISED_EXCEPTION] tailrace of a user" in told
    assert told.count("java.lang.RuntimeException: outer") == 1
