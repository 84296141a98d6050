"""Notifications over HTTP: each is a POST of JSON to the URL of `notification.http.url`. Planner and driver.

A thread sends them, so that a slow receiver delays nothing else. Notifications that are queued when the process ends
are lost, and a notification may be sent twice after a restart. Only the channel `sink` delivers each of them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.snapshot.incremental import Notification

SIGNATURE = "X-Tailrace-Signature"
"""The header with `sha256=` and the HMAC of the body, in hexadecimal digits, under `notification.http.secret`."""

MOST_WAITING = 1000
FIRST_PAUSE_S = 1.0

_log = logging.getLogger("tailrace")


class HttpChannel:
    """Sends notifications in order. The first notification connects, not the constructor.

    If the receiver cannot be reached, or answers with 429 or 5xx, a notification is sent again, with pauses that
    double, up to `notification.http.retries` times. Then it is dropped with a warning. New notifications are dropped
    too while MOST_WAITING are queued.
    """

    def __init__(self, config: Mapping[str, Any], pause: Callable[[float], None] = time.sleep) -> None:
        self._url: str = config["notification.http.url"] or ""
        self._secret: str | None = config["notification.http.secret"]
        self._retries: int = config["notification.http.retries"]
        self._timeout_s = config["connect.timeout.ms"] / 1000
        self._server: str = config["topic.prefix"]
        self._pause = pause
        self._waiting: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(self, notifications: Sequence[tuple[Notification, int]]) -> None:
        """Queue notifications, each with its time in ms since 1970. Never waits and never fails. Any thread."""
        for notification, at_ms in notifications:
            try:
                self._waiting.put_nowait(body(notification, at_ms, self._server))
            except queue.Full:
                _log.warning("A notification is dropped: %d others wait for its receiver.", MOST_WAITING)
        with self._lock:
            if notifications and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tailrace-notifications", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> None:
        """Wait until everything is sent or dropped, at most `seconds`."""
        deadline = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.02)

    def _run(self) -> None:
        while True:
            content = self._waiting.get()
            try:
                self._deliver(content)
            finally:
                self._waiting.task_done()

    def _deliver(self, content: bytes) -> None:
        for tried in range(self._retries + 1):
            if tried:
                self._pause(FIRST_PAUSE_S * 2.0 ** min(tried - 1, 6))
            reason, may_pass = self._post(content)
            if not reason:
                return
            if not may_pass:
                break
        _log.warning("A notification is dropped: the receiver of notification.http.url %s.", reason)

    def _post(self, content: bytes) -> tuple[str, bool]:
        """Send a body once. Return the reason of a failure, "" for success, and True if another try may succeed."""
        headers = {"Content-Type": "application/json", "User-Agent": "tailrace"}
        if self._secret:
            headers[SIGNATURE] = f"sha256={hmac.new(self._secret.encode(), content, hashlib.sha256).hexdigest()}"
        try:
            request = urllib.request.Request(self._url, content, headers, method="POST")
            with _OPENER.open(request, timeout=self._timeout_s):
                return "", False
        except urllib.error.HTTPError as error:
            error.close()
            return f"answers {error.code}", error.code == 429 or error.code >= 500
        except (OSError, ValueError) as error:
            # no text of the error: it may hold the URL, and with it a secret
            return f"is not reached ({type(error).__name__})", not isinstance(error, ValueError)
        except Exception as error:
            return f"does not answer in HTTP ({type(error).__name__})", True


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the signed body is for the URL that was given."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def body(notification: Notification, at_ms: int, server: str) -> bytes:
    """Return a notification as JSON: Debezium's fields, and `text`, the field that chats show."""
    data = dict(notification.data)
    more = ", ".join(f"{name} {value}" for name, value in data.items() if name != "connector_name")
    text = f"{server}: {notification.aggregate} {notification.type}{f', {more}' if more else ''}"
    content = {
        "id": notification.id,
        "aggregate_type": notification.aggregate,
        "type": notification.type,
        "additional_data": data,
        "timestamp": at_ms,
        "text": text,
    }
    return json.dumps(content).encode()
