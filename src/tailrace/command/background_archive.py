"""Creation of the class archive in the background: a run without an archive starts `tailrace warm` when idle. Driver.

The process has the lowest priority and outlives the run. Several such processes do not disturb each other: one makes
the archive, the others wait and find it. After a change of Java, Spark or a jar, a run makes another archive.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys

from tailrace.command import room

SWITCH = "TAILRACE_ARCHIVE"
"""The environment variable that turns the creation off by the value `off`."""

LEAST = 2 << 30
"""Bytes of memory that must be free: the process runs a Spark of its own."""

_log = logging.getLogger("tailrace")


class Warming:
    """Starts the process at most once. `java_options` are the options with which the run's JVM was started."""

    def __init__(self, java_options: str) -> None:
        is_off = os.environ.get(SWITCH, "").strip().lower() == "off"
        is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        self._is_done = (
            is_off or is_submitted or "-XX:SharedArchiveFile=" in java_options or "-Xshare:off" in java_options
        )

    def start(self) -> None:
        """Start the process, if it was not started yet. Any thread.

        Does nothing if the creation is off, if spark-submit started the run, if memory is short, or if the options of
        the JVM name an archive or forbid one.
        """
        if self._is_done:
            return
        self._is_done = True
        free = room.available()
        if free is not None and free < LEAST:
            return
        command = [sys.executable, "-m", "tailrace.command.cli", "warm"]
        nice = shutil.which("nice")
        try:
            subprocess.Popen(
                [nice, "-n", "19", *command] if nice else command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            _log.debug("the class archive is not made (%s)", error)
        else:
            _log.info("A class archive is made in the background, at low priority: later starts are shorter.")
