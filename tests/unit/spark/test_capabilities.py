"""The Spark at hand is judged by its files, and what it lacks is refused by name."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from zipimport import zipimporter

import pytest

import tailrace.spark
from tailrace.command.cli import main
from tailrace.connectors import registry
from tailrace.errors import PrerequisiteError
from tailrace.pipeline import Pipeline
from tailrace.spark import capabilities
from tailrace.spark.source import ChangeDataSource, data_source

OWN = Path(importlib.util.find_spec("pyspark").origin).parent  # type: ignore[union-attr, arg-type]
FILES = (
    *("__init__.py", "version.py", "find_spark_home.py", "core/context.py", "sql/datasource.py"),
    *("sql/datasource_internal.py", "sql/streaming/datasource.py"),
    "sql/streaming/python_streaming_source_runner.py",
)


def given(folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    """Let `pyspark` be a copy of this environment's in `folder`, with other texts of `files`; no file for ""."""
    home = folder / "pyspark"
    for name in FILES:
        text = files.get(name, (OWN / name).read_text("utf-8"))
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        if text:
            (home / name).write_text(text, "utf-8")
    found = importlib.util.spec_from_file_location("pyspark", home / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_this_pyspark_has_all_that_is_needed() -> None:
    capabilities.demand_sources()


@pytest.mark.parametrize(
    ("name", "before", "words"),
    [
        ("sql/datasource.py", "", r"has no sources in Python: it has no sql/datasource\.py"),
        ("sql/streaming/datasource.py", "", "no read limits: it has no sql/streaming/datasource"),
        ("sql/datasource_internal.py", "class ReadLimitRegistry", "has no `class ReadLimitRegistry`"),
        (
            "sql/streaming/python_streaming_source_runner.py",
            "def latest_offset_admission_control_func",
            "does not tell a source in Python where a batch begins",
        ),
        (
            "sql/streaming/python_streaming_source_runner.py",
            "def prepare_for_trigger_available_now_func",
            "cannot end a source in Python with what is there",
        ),
    ],
)
def test_a_spark_without_a_part_is_refused_with_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: str, words: str
) -> None:
    text = (OWN / name).read_text("utf-8").replace(before, "pass #") if before else ""
    given(tmp_path, monkeypatch, {name: text, "version.py": '__version__: str = "4.1.4"\n'})
    with pytest.raises(PrerequisiteError, match=words) as refused:
        capabilities.demand_sources()
    assert "PySpark 4.1.4 in " in refused.value.message
    # plain PySpark: a session finds the format, and the format is refused when it is loaded
    with pytest.raises(PrerequisiteError, match=words):
        data_source(registry.find("postgres"))({})
    with pytest.raises(PrerequisiteError, match=words):
        tailrace.spark.register  # noqa: B018
    with pytest.raises(PrerequisiteError, match=words):
        capabilities.demand_jvm()


def test_without_pyspark_the_extra_that_brings_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing(monkeypatch)
    with pytest.raises(PrerequisiteError, match=r"PySpark is not installed.*\[spark\]"):
        capabilities.demand_sources()
    assert main(["version"]) == 0
    assert "no PySpark" in capsys.readouterr().out


def test_a_pyspark_in_an_archive_is_judged_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark puts a zipped copy of PySpark first on the path of its workers."""
    with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as archive:
        for name in FILES:
            archive.write(OWN / name, f"pyspark/{name}")
    loader = zipimporter(str(tmp_path / "pyspark.zip"))
    found = ModuleSpec("pyspark", loader, origin=str(tmp_path / "pyspark.zip" / "pyspark" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    capabilities.demand_sources()
    assert capabilities.version() == __import__("pyspark").__version__


def test_a_client_alone_cannot_start_a_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(tmp_path, monkeypatch, {"core/context.py": ""})
    assert capabilities.is_client()
    with pytest.raises(PrerequisiteError, match="client of Spark Connect"):
        capabilities.demand_jvm()
    given(tmp_path / "whole", monkeypatch, {})
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(PrerequisiteError, match=r"no bin/spark-submit or no jars"):
        capabilities.demand_jvm()


def test_a_pipeline_refuses_a_session_of_spark_connect() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    pipeline = object.__new__(Pipeline)
    pipeline._spark, pipeline._is_begun, pipeline._lock = session, False, None
    with pytest.raises(PrerequisiteError, match="A pipeline needs a session with its JVM in this process"):
        pipeline.begin()
    assert not capabilities.is_connect(SimpleNamespace())


def test_the_module_of_a_format_can_be_imported_without_the_stream_reader() -> None:
    """Spark imports each of them to find any format: an error there would end the search."""
    script = """
import sys
sys.modules["pyspark.sql.streaming.datasource"] = None
sys.modules["tailrace.spark.stream_reader"] = None
import pyspark_postgres_cdc, pyspark_mongodb_cdc, pyspark_sqlserver_cdc, pyspark_db2_cdc
print(pyspark_postgres_cdc.DefaultSource.name())
"""
    # PySpark 4.2 itself needs the module: it is imported before it is taken away
    script = script.replace("import sys\n", "import sys, pyspark.sql.datasource\n", 1)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "postgres-cdc\n", done.stderr
    assert issubclass(ChangeDataSource, object)


def test_the_directory_of_spark_is_that_of_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.find_spark_home import _find_spark_home

    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert str(capabilities.spark_home()) == _find_spark_home()
