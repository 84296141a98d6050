"""Chromium without a window, for tests of the page: Debian's package, spoken to over a pipe.

Chrome DevTools Protocol, "Protocol": with `--remote-debugging-pipe` the browser reads commands from its descriptor 3,
and writes answers and events to 4, each as JSON that ends with a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 60.0
"""The longest time for an answer: the machine may be busy."""


class BrowserError(AssertionError):
    """The browser is missing, does not answer, or a script has failed."""


class Chromium:
    """A browser with one page. A context manager.

    `dialogs` are the questions that the page has asked; each is answered with yes. `errors` are messages of the page's
    console, and of its policy.
    """

    def __init__(self) -> None:
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        self._number, self._rest = 0, b""
        self._session = ""

    def __enter__(self) -> Self:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise BrowserError("There is no Chromium: apt-get install chromium.")
        self._home = tempfile.mkdtemp(prefix="tailrace-chromium-")
        heard, self._write = os.pipe()
        self._read, said = os.pipe()
        # the browser wants the descriptors 3 and 4
        shell = f'exec "$0" "$@" 3<&{heard} 4>&{said}'
        options = (
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
            "--no-first-run", f"--user-data-dir={self._home}", "about:blank",
        )  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *options],
            pass_fds=(heard, said), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(heard)
        os.close(said)
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Performance.enable", timeDomain="threadTicks")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._home, ignore_errors=True)

    # --- the page --------------------------------------------------------------------------------------------------

    def show(self, address: str) -> None:
        """Load a page."""
        self.ask("Page.navigate", url=address)

    def size(self, width: int, height: int, *, is_phone: bool = False) -> None:
        """Set the size of the window, in pixels."""
        given = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
        self.ask("Emulation.setDeviceMetricsOverride", **given)

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript. Raises BrowserError if it fails."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(f"{script}: {found['exceptionDetails']['exception'].get('description')}")
        return found["result"].get("value")

    def until(self, script: str, seconds: float = PATIENCE_S) -> None:
        """Wait until an expression of JavaScript is true."""
        deadline = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > deadline:
                raise BrowserError(f"it does not come: {script}")

    def work(self) -> float:
        """Return the seconds for which the page's main thread has used a processor since it was loaded."""
        found = self.ask("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))

    def picture(self) -> bytes:
        """Return the window as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    # --- the protocol ----------------------------------------------------------------------------------------------

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result. Raises BrowserError."""
        number = self._send(method, parameters)
        while True:
            message = self._next()
            if message.get("id") == number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                result: dict[str, Any] = message["result"]
                return result

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        return self._number

    def _next(self) -> dict[str, Any]:
        """Return the next message, and handle it if it is an event."""
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], PATIENCE_S)[0]:
                raise BrowserError("the browser does not answer")
            found = os.read(self._read, 1 << 20)
            if not found:
                raise BrowserError("the browser has ended")
            self._rest += found
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        kind, told = message.get("method"), message.get("params", {})
        if kind == "Page.javascriptDialogOpening":
            self.dialogs.append(told["message"])
            self._send("Page.handleJavaScriptDialog", {"accept": True})
        elif kind == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"].get("text")))
        elif kind == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(told["entry"]["text"])
        return message
