"""Monitor: observes a pipeline and shows it by status file, HTTP server, OpenTelemetry and lineage. Driver."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tailrace.config.files import RunConfig
from tailrace.config.rows import is_typed
from tailrace.connectors import signalling
from tailrace.connectors.registry import find
from tailrace.connectors.source_status import Describe
from tailrace.errors import ConfigError, TailraceError
from tailrace.log.notification_http import HttpChannel
from tailrace.metrics.tally import SinkCounts
from tailrace.monitoring.failures import cause
from tailrace.monitoring.health import Health
from tailrace.monitoring.lineage import PREFIX, Lineage, Written
from tailrace.monitoring.observation import Observation, PipelineNames
from tailrace.monitoring.server import HttpServer, is_loopback
from tailrace.monitoring.status_file import StatusFile
from tailrace.snapshot.incremental import Notification
from tailrace.snapshot.signals import Signal

TOKEN_FILE = "http.token"
"""The file of the checkpoint with a token that tailrace has made."""

BEAT_SECONDS = 5.0

FLUSH_SECONDS = 10.0
"""The longest time in which the notification of a failure is sent."""

_log = logging.getLogger("tailrace")


class Monitor:
    """Observes the pipeline of a configuration. As a context manager it shows the pipeline, and at last why it ended.

    `written` names the datasets of the sink for lineage; `sink` has its counts, if it has any. The constructor opens
    the port of the HTTP server, if there is one. It raises ConfigError if that fails.
    """

    def __init__(self, run: RunConfig, written: Written = lambda *_: None, sink: SinkCounts | None = None) -> None:
        source = run.source
        names = PipelineNames(run.name, source.logical_name, source.connector)
        self.observation = Observation(described, names, sink=sink)
        self._health = Health(self.observation, source["health.live.timeout.ms"] / 1000)
        self._file = None if run.checkpoint is None else StatusFile(run.checkpoint, self.observation)
        self._closing: list[Callable[[], None]] = []
        self._closed = threading.Event()
        self._lineage: Lineage | None = None
        if source[f"{PREFIX}enabled"]:
            self._lineage = Lineage(source, self.observation, written)
        self.server: HttpServer | None = None
        if source["http.port"]:
            self.server = HttpServer(
                self.observation,
                self._health,
                host=source["http.host"],
                port=source["http.port"],
                token=_token(run),
                send=_sender(run) if signalling.usable(source) else None,
                has_tables=find(source.connector).load_listing() is not None and not is_typed(source),
            )
        self._opentelemetry = source["metrics.opentelemetry"]
        self._source = source

    def __enter__(self) -> Self:
        """Begin to show the pipeline. Raises ConfigError if OpenTelemetry is wanted and not installed."""
        if self._opentelemetry:
            from tailrace.monitoring.opentelemetry import exporting

            self._closing.append(exporting(self.observation))
        if self.server is not None:
            self.server.start()
            self._closing.append(self.server.close)
            _log.info("The pipeline's page is at %s", self.server.address)
        if self._file is not None:
            self._file.start()
            self._closing.append(self._file.close)
        if self._lineage is not None:
            self._lineage.start()
        return self

    def follow(self, is_working: Callable[[], bool]) -> None:
        """Start a thread that notes every few seconds that the query lives: Spark works on a batch, or the planner has
        tried again to reach the database."""

        def beat() -> None:
            while not self._closed.wait(BEAT_SECONDS):
                with suppress(Exception):
                    if self._health.has_tried_again() or is_working():
                        self.observation.beat()

        threading.Thread(target=beat, name="tailrace-beat", daemon=True).start()

    def _report(self, failure: TailraceError) -> None:
        """Send the failure by the channel http, if it is enabled."""
        if "http" in self._source["notification.enabled.channels"]:
            channel = HttpChannel(self._source)
            channel.send([(failed(failure, self._source.logical_name), time.time_ns() // 1_000_000)])
            channel.flush(FLUSH_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Note why the pipeline has ended, write the last status, and end all threads."""
        # an interrupt of the user is no failure
        failure = deliberate(error) if isinstance(error, Exception) else None
        self.observation.end(failure)
        if failure is not None:
            self._report(failure)
        if self._lineage is not None:
            self._lineage.end(failure)
        self._closed.set()
        while self._closing:
            self._closing.pop()()


def failed(error: TailraceError, server: str) -> Notification:
    """Return the notification that an error has ended the pipeline."""
    data = {"connector_name": server, "error": error.message, "remedy": error.remedy, "exit_code": str(error.exit_code)}
    return Notification(str(uuid.uuid4()), "Pipeline", "FAILED", tuple(data.items()))


def described(connector: str) -> Describe:
    """Return the function that describes a connector's offsets; for "" a function that returns an empty status."""
    from tailrace.connectors.source_status import SourceStatus

    return find(connector).load_describe() if connector else lambda *_: SourceStatus()


def deliberate(error: BaseException) -> TailraceError:
    """Return the deliberate error behind an exception, else a new error that names the exception's class."""
    return cause(error) or TailraceError(
        f"The pipeline has failed: {type(error).__name__}.", "This was not expected; --debug shows where it comes from."
    )


def _token(run: RunConfig) -> str | None:
    """Return the token that requests to the HTTP server need, None if they need none.

    Raises ConfigError if a made token cannot be stored in the checkpoint.
    """
    source = run.source
    host = source["http.host"]
    if source["http.auth"] == "none":
        if not is_loopback(host):
            _log.warning(
                "The HTTP server at %s demands no token: everyone who reaches it reads the status and sends signals.",
                host,
            )
        return None
    given: str | None = source["http.token"]
    if given:
        return given
    if run.checkpoint is None:
        raise ConfigError(
            "http.port is given without http.token, and a checkpoint that is not local cannot keep a token.",
            "Set http.token, for example to ${env:TAILRACE_TOKEN}, or http.auth to none.",
        )
    return kept_token(run.checkpoint)


def kept_token(directory: Path) -> str:
    """Return the token in the checkpoint's file, which only this user can read. If there is none, make it first.

    Raises ConfigError if the file cannot be written.
    """
    path = directory / TOKEN_FILE
    with suppress(OSError):
        found = path.read_text("ascii").strip()
        if found:
            return found
    made = secrets.token_urlsafe(24)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            os.fchmod(handle, 0o600)
            file.write(f"{made}\n")
    except OSError as error:
        raise ConfigError(
            f"The token of the HTTP server cannot be kept in {path}: {error.strerror}.", "Set http.token."
        ) from None
    return made


def _sender(run: RunConfig) -> Callable[[str, str, str | None], str]:
    config: Any = run.source

    def send(identity: str, kind: str, data: str | None) -> str:
        return signalling.send(config, Signal(identity, kind, data))

    return send
