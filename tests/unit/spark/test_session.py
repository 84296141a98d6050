"""The workers of a local session get the right addresses."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tailrace.config.jar import Jar
from tailrace.errors import PrerequisiteError
from tailrace.spark import capabilities, session
from tailrace.spark.startup import gateway


def test_workers_are_reached_over_sockets_that_nobody_else_may_open() -> None:
    settings = session._sockets()
    folder = settings.pop("spark.python.unix.domain.socket.dir")
    assert settings == {"spark.python.unix.domain.socket.enabled": "true"}
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    shutil.rmtree(folder)


def test_a_path_that_is_too_long_for_a_socket_leaves_tcp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert session._sockets() == {"spark.python.unix.domain.socket.enabled": "false"}


def test_a_directory_that_was_named_is_taken_and_kept(tmp_path: Path) -> None:
    assert session._sockets("/run/named")["spark.python.unix.domain.socket.dir"] == "/run/named"
    assert session._sockets(str(tmp_path / ("d" * 100))) == {"spark.python.unix.domain.socket.enabled": "false"}


def of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process look like one that has no JVM yet, though other tests may have started one."""
    for name in ("is_brought", "has_jvm"):
        monkeypatch.setattr(capabilities, name, lambda: False)


class Started(Exception):
    """Raised where the JVM would start."""


@pytest.mark.parametrize(("master", "is_local"), [("local[2]", True), ("spark://somewhere:7077", False)])
def test_sessions_of_clusters_keep_to_tcp(monkeypatch: pytest.MonkeyPatch, master: str, is_local: bool) -> None:
    """The directories of executors may have paths that are too long, as in YARN's containers."""
    settings: dict[str, str] = {}

    monkeypatch.setattr(session, "demand", lambda master: None)

    def start(given: dict[str, str], keep: object) -> None:
        settings.update(given)
        raise Started

    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    of_its_own(monkeypatch)
    monkeypatch.setattr(session, "Launch", start)
    with pytest.raises(Started):
        session.session({"spark.app.name": "other"}, master=master)
    assert settings["spark.app.name"] == "other"
    assert (settings.get("spark.python.unix.domain.socket.enabled") == "true") is is_local


@pytest.mark.parametrize(("master", "is_local"), [("local[2]", True), ("spark://somewhere:7077", False)])
def test_what_suits_one_host_alone_is_not_set_on_a_cluster(
    monkeypatch: pytest.MonkeyPatch, master: str, is_local: bool
) -> None:
    settings = started(monkeypatch, master, {})
    named = {*session.LOCAL_SETTINGS, "spark.driver.host", "spark.driver.bindAddress"}
    assert {name for name in named if name in settings} == (named if is_local else set())
    assert settings["spark.master"] == master


def test_settings_of_the_user_go_over_those_of_tailrace(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"spark.executor.memory": "3g", "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-Dmine=1"}
    settings = started(monkeypatch, "spark://somewhere:7077", given)
    assert settings["spark.executor.memory"] == "3g"
    assert settings["spark.driver.memory"] == "1g"
    # Options that the log needs stay.
    assert "-Duser.timezone=UTC" in settings["spark.driver.extraJavaOptions"]
    assert settings["spark.driver.extraJavaOptions"].endswith("-Dmine=1")


def test_executors_start_the_python_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    started(monkeypatch, "spark://somewhere:7077", {"spark.pyspark.python": "/opt/venv/bin/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/opt/venv/bin/python"


def started(monkeypatch: pytest.MonkeyPatch, master: str, config: dict[str, str]) -> dict[str, str]:
    """Return the settings with which the JVM is started."""
    settings: dict[str, str] = {}

    def start(given: dict[str, str], keep: object = ()) -> None:
        settings.update(given)
        raise Started

    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    of_its_own(monkeypatch)
    monkeypatch.setattr(session, "Launch", start)
    monkeypatch.setattr(session, "demand", lambda master: None)
    with pytest.raises(Started):
        session.session(config, master=master)
    return settings


def test_a_start_takes_the_class_archive_before_the_options_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.archive, "usable", lambda java, spark: Path("/kept/a.jsa"))
    settings = started(monkeypatch, "local[2]", {"spark.driver.extraJavaOptions": "-Xshare:off"})
    options = settings["spark.driver.extraJavaOptions"].split()
    assert options[0] == "-XX:SharedArchiveFile=/kept/a.jsa"
    assert options[-1] == "-Xshare:off"
    monkeypatch.setattr(session.archive, "usable", lambda java, spark: None)
    settings = started(monkeypatch, "local[2]", {})
    assert "Shared" not in settings["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("master", "given", "environment", "wanted"),
    [
        ("local[2]", "-Dmine=1", "", ["-XX:+UseParallelGC"]),
        ("local[2]", "-XX:+UseZGC", "", ["-XX:+UseZGC"]),
        ("local[2]", "", "-Xss2m -XX:+UseG1GC", []),
        ("spark://somewhere:7077", "", "", []),
    ],
)
def test_a_local_jvm_has_one_garbage_collector_and_the_user_may_name_it(
    monkeypatch: pytest.MonkeyPatch, master: str, given: str, environment: str, wanted: list[str]
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", environment)
    settings = started(monkeypatch, master, {"spark.driver.extraJavaOptions": given})
    found = settings["spark.driver.extraJavaOptions"].split()
    assert [option for option in found if option.endswith("GC")] == wanted


@pytest.mark.parametrize(("environment", "count"), [("", 1), ("-XX:+UseG1GC", 0)])
def test_the_launcher_gets_no_second_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, environment: str, count: int
) -> None:
    seen: dict[str, str] = {}

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        seen.update(env)
        raise Started

    monkeypatch.setenv("JAVA_TOOL_OPTIONS", environment)
    monkeypatch.setattr("tailrace.spark.startup.gateway.subprocess.Popen", popen)
    with pytest.raises(Started):
        gateway.Launch({}, ())
    assert seen["SPARK_LAUNCHER_OPTS"].count("GC") == count


def test_a_jvm_starts_before_pyspark_is_imported() -> None:
    """It also starts before numba is imported: these imports take as long as a large part of the JVM's start."""
    names = (
        "tailrace.command.cli, tailrace.pipeline, tailrace.spark.session, tailrace.sinks.files, tailrace.sinks.kafka"
    )
    code = f"import sys, {names}; sys.exit(bool({{'pyspark', 'numba'}} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("platform", ["spark-submit", "a running session"])
def test_what_a_platform_has_started_keeps_its_jars_and_its_java_options(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    of_its_own(monkeypatch)
    if platform == "spark-submit":
        monkeypatch.undo()
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    else:
        monkeypatch.setattr(capabilities, "is_brought", lambda: True)
    monkeypatch.setattr(session, "files_of", lambda jars: pytest.fail("jars were looked for"))
    jar = Jar("org", "part", "1", "0" * 64)
    settings = session._settings({"spark.mine": "1"}, [jar], "app", "local[2]", "2g", "off")
    assert settings["spark.mine"] == "1"
    assert [name for name in settings if re.search("jars|extraJavaOptions|memory|master|fs.file", name)] == []
    assert session.launch(jars=[jar]) is None


def test_a_client_of_spark_connect_gets_its_session_without_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    set_: dict[str, str] = {}
    builder = SimpleNamespace(getOrCreate=lambda: "connected")
    builder.config = lambda name, value: set_.update({name: value}) or builder
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere:15002")
    monkeypatch.setattr(SparkSession, "builder", builder)
    made: object = session.session({"spark.mine": "1"})
    assert (made, set_) == ("connected", {"spark.mine": "1"})
    with pytest.raises(PrerequisiteError, match=r"Spark Connect cannot give its server part-1\.jar"):
        session.session(jars=[Jar("org", "part", "1", "0" * 64)])
    monkeypatch.setattr(capabilities, "is_brought", lambda: False)
    monkeypatch.setattr(capabilities, "has_jvm", lambda: False)
    with pytest.raises(PrerequisiteError, match=r"client of Spark Connect \(SPARK_REMOTE\), and has no JVM"):
        session.launch()
