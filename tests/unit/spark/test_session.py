"""Where the workers of a local session are reached."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

from tailrace.spark import session


def test_workers_are_reached_over_sockets_that_nobody_else_may_open() -> None:
    settings = session._sockets()
    folder = settings.pop("spark.python.unix.domain.socket.dir")
    assert settings == {"spark.python.unix.domain.socket.enabled": "true"}
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    Path(folder).rmdir()


def test_a_path_that_is_too_long_for_a_socket_leaves_tcp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert session._sockets() == {"spark.python.unix.domain.socket.enabled": "false"}


def test_a_directory_that_was_named_is_taken_and_kept(tmp_path: Path) -> None:
    assert session._sockets("/run/named")["spark.python.unix.domain.socket.dir"] == "/run/named"
    assert session._sockets(str(tmp_path / ("d" * 100))) == {"spark.python.unix.domain.socket.enabled": "false"}


class Started(Exception):
    """The JVM would start now."""


@pytest.mark.parametrize(("master", "is_local"), [("local[2]", True), ("spark://somewhere:7077", False)])
def test_sessions_of_clusters_keep_to_tcp(monkeypatch: pytest.MonkeyPatch, master: str, is_local: bool) -> None:
    """The directories of executors may have paths that are too long, as YARN's containers do."""
    settings: dict[str, str] = {}

    def start(given: dict[str, str]) -> None:
        settings.update(given)
        raise Started

    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setattr(session, "_is_running", lambda: False)
    monkeypatch.setattr(session, "_start_java", start)
    with pytest.raises(Started):
        session.session({"spark.app.name": "other"}, master=master)
    assert settings["spark.app.name"] == "other"
    assert (settings.get("spark.python.unix.domain.socket.enabled") == "true") is is_local
