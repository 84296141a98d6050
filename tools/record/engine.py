"""Debezium's embedded engine as a process: fetched with Maven, compiled with javac, kept below the user's cache."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrace-record"
STREAMS = re.compile(r"Starting streaming")
"""The log line of every connector at the end of its snapshot."""


class Failed(Exception):
    """A recording that could not be made; the message says why."""


class GaveUp(Failed):
    """Debezium ended with an error, in its own words."""


def full(version: str) -> str:
    """Return a version of Debezium with its qualifier: 3.6.1 is 3.6.1.Final."""
    return version if re.search(r"\.[A-Z]", version) else f"{version}.Final"


def build(connector: str, version: str, worker: bool = False) -> str:
    """Return the class path of the recorder with one connector of one version, which the first call builds.

    With `worker` it has Kafka Connect's transforms and Apicurio's converters too. Raises Failed with Maven's or the
    compiler's words.
    """
    sources = sorted((HERE / "src").rglob("*.java"))
    parts = [path.read_bytes() for path in [HERE / "pom.xml", *sources]]
    kind = f"{connector}-worker" if worker else connector
    folder = CACHE / f"{kind}-{version}-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"
    listing = folder / "classpath"
    if not listing.exists():
        classes = folder / "classes"
        classes.mkdir(parents=True, exist_ok=True)
        pending = folder / "classpath.new"
        _run(
            [
                *("mvn", "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml"), "dependency:build-classpath"),
                *(["--activate-profiles", "worker"] if worker else []),
                *(f"-Dconnector={connector}", f"-Ddebezium={version}", f"-Dmdep.outputFile={pending}"),
            ]
        )
        jars = pending.read_text(encoding="utf-8").strip()
        _run(["javac", "-encoding", "UTF-8", "-cp", jars, "-d", str(classes), *map(str, sources)])
        pending.write_text(f"{classes}{os.pathsep}{jars}", encoding="utf-8")
        pending.rename(listing)
    return listing.read_text(encoding="utf-8")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{command[0]} failed:\n{(done.stdout + done.stderr).strip()[-3000:]}")


class Engine:
    """An engine that may be started and stopped several times; its offsets and records stay in `folder`.

    `zone` is the virtual machine's time zone, `heartbeats` the prefix of topics whose records do not count, `limit`
    the seconds of the whole case, after which every wait raises Failed.
    """

    def __init__(
        self, classpath: str, options: Mapping[str, str], folder: Path, zone: str, heartbeats: str, limit: float
    ) -> None:
        self._deadline = time.monotonic() + limit
        self._classpath = classpath
        self._folder = folder
        self._zone = zone
        self._heartbeats = heartbeats.encode()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._counted = 0
        self._records = 0
        self._last = time.monotonic()
        self.java: Sequence[str] = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        """The virtual machine's options: those of a short life, unless the caller sets others before a start."""
        self.configure(options)

    def configure(self, options: Mapping[str, str]) -> None:
        """Set the options from the next start on."""
        lines = "".join(f"{_escaped(name, True)}={_escaped(value, False)}\n" for name, value in options.items())
        (self._folder / "connector.properties").write_text(lines, encoding="ascii")

    @property
    def records(self) -> Path:
        """The file of the records."""
        return self._folder / "records"

    @property
    def offsets(self) -> Path:
        """The file of the records' offsets."""
        return self._folder / "offsets"

    @property
    def log(self) -> Path:
        """Debezium's own log."""
        return self._folder / "log"

    def start(self) -> None:
        """Start a virtual machine with the engine in it."""
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("java", *self.java, "-Dfile.encoding=UTF-8"),
                    *(f"-Duser.timezone={self._zone}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"),
                    *("-cp", self._classpath, "record.Recorder"),
                    *map(str, (self._folder / "connector.properties", self.records, self.offsets)),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        self._last = time.monotonic()

    def stop(self, seconds: float = 60) -> None:
        """End the engine in order, so that it stores its offsets; raises Failed if it has given up."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failed(f"the engine did not stop within {seconds:.0f} seconds") from None
        if process.returncode:
            raise GaveUp(self.reason())

    def kill(self) -> None:
        """End the virtual machine at once, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def reason(self) -> str:
        """Return the engine's reason for giving up, in its own words, or else the end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        found = re.findall(r"^FAILED (.*)$", text, re.M)
        return str(found[-1])[:2000] if found else f"the engine ended:\n{text[-2000:]}"

    def check(self) -> bool:
        """Return True if the engine runs; raises Failed if it has given up."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        if self._process.returncode:
            raise GaveUp(self.reason())
        return False

    def streams(self) -> bool:
        """Return True if the log says that the snapshot is over, since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return STREAMS.search(log.read().decode("utf-8", "replace")) is not None

    def count(self) -> int:
        """Return the number of records so far, heartbeats not counted."""
        if self.records.exists():
            with self.records.open("rb") as lines:
                lines.seek(self._counted)
                fresh = lines.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self._counted += len(whole)
            added = sum(not line.startswith(b'{"topic":"' + self._heartbeats) for line in whole.splitlines())
            self._records += added
            if added:
                self._last = time.monotonic()
        return self._records

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait for `done()` or the orderly end of the engine; raises Failed at the limit, or if the engine gives up."""
        while not done() and self.check():
            if time.monotonic() > self._deadline:
                raise Failed(f"the time of the case was up before {what}")
            time.sleep(0.05)

    def settle(self, seconds: float) -> None:
        """Wait until no record has come for `seconds`."""
        self.count()
        self._last = time.monotonic()

        def quiet() -> bool:
            self.count()
            return time.monotonic() - self._last >= seconds

        self.wait(quiet, f"{seconds:g} seconds passed without a record")


def _escaped(text: str, name: bool) -> str:
    """Return `text` escaped for a .properties file."""
    found = []
    for character in text:
        if character in "\\\n\r\t\f" or (name and character in " :=#!"):
            found.append({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}.get(character, "\\" + character))
        elif " " < character <= "~" or (character == " " and found):
            found.append(character)
        elif character == " ":
            found.append("\\ ")
        else:
            units = character.encode("utf-16-be")
            found += [f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)]
    return "".join(found)
