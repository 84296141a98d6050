"""The bill of materials names everything that is pinned, and the audit reports what it could not examine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tools.supply import audit as auditing
from tools.supply.audit import Advisory, NotAudited, audit, of_index, of_records, read_records
from tools.supply.bill import bill, main
from tools.supply.parts import LOCK, Part, jars, packages, sink_jars


def part(name: str = "brittle", version: str = "1.2", kind: str = "pypi", group: str = "") -> Part:
    return Part(kind, name, version, ("0" * 64,), "MIT", "required", group)


# --- the bill


def test_the_bill_names_every_package_and_jar_with_its_hashes_and_licence() -> None:
    made = bill([*packages(), *jars()])
    components = {(one["name"], one["version"]): one for one in made["components"]}
    lock = LOCK.read_text("utf-8")
    pinned = re.findall(r"^([a-z0-9.\-]+)==([^\s;\\]+)", lock, re.MULTILINE)
    assert set(components) == set(pinned) | {(jar.module, jar.revision) for jar in sink_jars()}
    assert len(made["components"]) == len(pinned) + len(sink_jars())
    hashes = [
        found["content"]
        for one in components.values()
        for place in (one, *one.get("externalReferences", ()))
        for found in place.get("hashes", ())
    ]
    assert sorted(hashes) == sorted([*re.findall(r"sha256:(\w+)", lock), *(jar.sha256 for jar in sink_jars())])
    assert [name for name, one in components.items() if not one.get("licenses")] == []
    assert len({one["bom-ref"] for one in made["components"]}) == len(made["components"])


def test_the_bill_tells_what_needs_what_and_what_for() -> None:
    made = bill([*packages(), *jars()])
    scopes = {one["name"]: one["scope"] for one in made["components"]}
    assert (scopes["pyspark"], scopes["py4j"]) == ("optional", "optional")
    assert scopes["pyarrow"] == "required"
    assert (scopes["psycopg"], scopes["kafka-clients"]) == ("optional", "optional")
    assert (scopes["pytest"], scopes["pluggy"]) == ("excluded", "excluded")
    on = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    product = made["metadata"]["component"]["bom-ref"]
    assert any(reference.startswith("pkg:pypi/pyspark@") for reference in on[product])
    (spark,) = (reference for reference in on if reference.startswith("pkg:pypi/pyspark@"))
    assert [re.sub("@.*", "", reference) for reference in on[spark]] == ["pkg:pypi/py4j"]
    assert set(on) == {product, *(one["bom-ref"] for one in made["components"])}


def test_the_bill_is_the_same_bytes_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        assert main([str(tmp_path / name)]) == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert "without a licence" not in capsys.readouterr().out


def test_licences_are_those_that_the_installed_packages_declare() -> None:
    declared = {
        re.sub(r"[-_.]+", "-", one.name).lower(): (one.version, one.metadata.get("License-Expression"))
        for one in distributions()
    }
    wrong = {
        one.name: (declared[one.name][1], one.licence)
        for one in packages()
        if declared.get(one.name, ("", None))[0] == one.version and declared[one.name][1] not in (None, one.licence)
    }
    assert wrong == {}


# --- the audit


class Index(BaseHTTPRequestHandler):
    """A package index that serves `pages`."""

    pages: dict[str, Any] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        content = self.pages.get(self.path)
        self.send_response(404 if content is None else 200)
        self.end_headers()
        if content is not None:
            self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def address() -> Iterator[str]:
    """Return the address of a package index with one vulnerable package, and a package whose newest
    release it knows."""
    told = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["1.3"], "withdrawn": None}
    gone = {"id": "PYSEC-2", "aliases": [], "fixed_in": [], "withdrawn": "2020-01-01"}
    Index.pages = {
        "/pypi/brittle/1.2/json": {"info": {"version": "1.2"}, "vulnerabilities": [told, gone]},
        "/pypi/newest/json": {"info": {"version": "9"}, "vulnerabilities": [told]},
        "/pypi/silent/json": {"info": {"version": "1"}},
    }
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/pypi"
        server.shutdown()
        thread.join()


def test_the_index_tells_of_a_release(address: str) -> None:
    ask = of_index(address, 60)
    assert ask(part()) == [Advisory(part(), ("PYSEC-1", "CVE-1"), ("1.3",))]
    assert "brittle 1.2: PYSEC-1, CVE-1; fixed in 1.3" in str(ask(part())[0])
    # If a project has only one page, it is that of its newest release.
    assert len(ask(part("newest", "9"))) == 1
    for unknown, reason in (
        (part("newest", "8"), "newest release alone"),
        (part("silent", "1"), "no vulnerabilities"),
        (part("absent"), "does not know it"),
        (part("jar", kind="maven"), "knows no jars"),
    ):
        with pytest.raises(NotAudited, match=reason):
            ask(unknown)
    with pytest.raises(NotAudited, match="too long"):
        of_index(address, -1)(part())


def test_what_is_not_audited_is_named_and_what_is_accepted_is_told(address: str) -> None:
    ask = of_index(address, 60)
    vulnerable, passed, unknown = audit([part(), part("newest", "8"), part("absent")], ask, {})
    assert vulnerable == ["brittle 1.2: PYSEC-1, CVE-1; fixed in 1.3"]
    assert passed == []
    assert sorted(line.rpartition(": ")[2] for line in unknown) == ["absent 1.2", "newest 8"]
    vulnerable, passed, _ = audit([part()], of_index(address, 60), {"CVE-1": "it is not called"})
    assert vulnerable == []
    assert passed[0].endswith("; it is not called")


def test_records_on_disk_tell_of_packages_and_jars(tmp_path: Path) -> None:
    span = {"type": "ECOSYSTEM", "events": [{"introduced": "1.0"}, {"fixed": "1.3"}]}
    records = [
        {"id": "A", "aliases": ["CVE-1"],
         "affected": [{"package": {"ecosystem": "PyPI", "name": "Brittle"}, "ranges": [span]}]},
        {"id": "B", "affected": [{"package": {"ecosystem": "Maven", "name": "g:jar"}, "versions": ["1.2"]}]},
        {"id": "C", "withdrawn": "x", "affected": [{"package": {"ecosystem": "PyPI", "name": "sound"},
         "versions": ["1.2"]}]},
    ]  # fmt: skip
    packed = tmp_path / "all.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for record in records:
            (tmp_path / f"{record['id']}.json").write_text(json.dumps(record))
            archive.writestr(f"{record['id']}.json", json.dumps(record))
    for path in (packed, tmp_path):
        ask = of_records(read_records(path))
        assert [one.ids for one in ask(part())] == [("A", "CVE-1")]
        assert ask(part()) == [Advisory(part(), ("A", "CVE-1"), ("1.3",))]
        assert [ask(part(version=version)) for version in ("0.9", "1.3")] == [[], []]
        assert [one.ids for one in ask(part("jar", kind="maven", group="g"))] == [("B",)]
        assert ask(part("sound")) == []
    with pytest.raises(NotAudited, match="no such parts"):
        of_records(records[:1])(part("jar", kind="maven", group="g"))


def test_without_an_index_nothing_is_said_to_be_sound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auditing, "index", lambda: "http://127.0.0.1:1/pypi")
    monkeypatch.delenv("TAILRACE_ADVISORIES", raising=False)
    assert auditing.main([]) == 0
    said = capsys.readouterr().out
    assert "NOT AUDITED, none of" in said
    assert "0 known" not in said
    assert auditing.main(["--strict"]) == 1


def test_a_known_vulnerability_fails_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_ADVISORIES", raising=False)
    record = {"id": "A", "affected": [{"package": {"ecosystem": "PyPI", "name": "pyspark"},
              "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}]}  # fmt: skip
    (tmp_path / "A.json").write_text(json.dumps(record))
    done = subprocess.run(
        [sys.executable, "-m", "tools.supply.audit", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "audit: vulnerable: pyspark" in done.stdout
    assert "NOT AUDITED" in done.stdout
