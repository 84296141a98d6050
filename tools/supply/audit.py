"""The audit of the pinned parts against known vulnerabilities: `python -m tools.supply.audit [--data PATH] [--strict]`.

With `--data`, or TAILRACE_ADVISORIES in the environment, it reads records in OSV's format from a directory or a zip of
JSON files, and uses no network. Jars are audited in this way only. Else it asks the package index of pip, whose JSON
lists the vulnerabilities of each release; an index without pages of releases lists those of the newest release. Parts
without an answer are printed as not audited. The exit code is 1 for a vulnerability that accepted.toml does not name
and, with `--strict`, for a part that is not audited; else 0.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from packaging.version import InvalidVersion, Version

from tools.supply.parts import Part, jars, packages

ACCEPTED = Path(__file__).with_name("accepted.toml")
_SECONDS = 10
_ECOSYSTEMS = {"PyPI": "pypi", "Maven": "maven"}

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Advisory:
    """A known vulnerability of a part: its identifiers, and the versions without it."""

    part: Part
    ids: tuple[str, ...]
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        mended = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no version without it is known"
        return f"{self.part.name} {self.part.version}: {', '.join(self.ids)}; {mended}"


class NotAudited(Exception):
    """There is no answer for a part, or for any part; the text says why."""


Ask = Callable[[Part], list[Advisory]]
"""Known vulnerabilities of a part; raises NotAudited."""


# --- the package index


def index() -> str:
    """Return the address of the JSON of pip's package index; raises NotAudited if pip names no index."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--help"], capture_output=True, text=True, check=False
    )
    found = re.search(r"--index-url\b.*?\(default (\S+?)\)", " ".join(done.stdout.split()))
    if found is None:
        raise NotAudited("pip does not tell its package index")
    return f"{found.group(1).rstrip('/').removesuffix('/simple')}/pypi"


def of_index(address: str, seconds: float) -> Ask:
    """Return a function that asks the index at `address`, for `seconds` from now on."""
    ends = time.monotonic() + seconds
    knows_releases, lacks_releases = threading.Event(), threading.Event()

    def ask(part: Part) -> list[Advisory]:
        if part.kind != "pypi":
            raise NotAudited("the package index knows no jars; --data reads advisories")
        page = None if lacks_releases.is_set() else _page(f"{address}/{part.name}/{part.version}/json", ends)
        if page is not None:
            knows_releases.set()
        else:
            # Some indexes serve no page of a release: none is asked for again.
            if not knows_releases.is_set():
                lacks_releases.set()
            page = _page(f"{address}/{part.name}/json", ends)
            if page is None:
                raise NotAudited("the package index does not know it")
            if page["info"]["version"] != part.version:
                raise NotAudited("the package index tells of the newest release alone")
        told = page.get("vulnerabilities")
        if told is None:
            raise NotAudited("the package index tells of no vulnerabilities")
        return [
            Advisory(part, (one["id"], *one.get("aliases", ())), tuple(one.get("fixed_in") or ()))
            for one in told
            if not one.get("withdrawn")
        ]

    return ask


def _page(address: str, ends: float) -> Record | None:
    """Return a page of JSON; None if there is none. Raises NotAudited if the index does not answer until `ends`."""
    late = NotAudited("the package index takes too long; --seconds gives it more")
    if time.monotonic() > ends:
        raise late
    try:
        with urlopen(Request(address, headers={"Accept-Encoding": "gzip"}), timeout=_SECONDS) as answer:
            content = b""
            while piece := answer.read1(1 << 16):
                content += piece
                if time.monotonic() > ends:
                    raise late
            if answer.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
        found: Record = json.loads(content)
        return found
    except HTTPError as error:
        if error.code == 404:
            return None
        raise NotAudited(f"the package index answers with {error.code}") from None
    except (URLError, OSError, ValueError) as error:
        raise NotAudited(f"the package index does not answer ({type(error).__name__})") from None


# --- records on disk


def of_records(records: Iterable[Record]) -> Ask:
    """Return a function that looks parts up in OSV's records, which are read once."""
    by_name: dict[tuple[str, str], list[tuple[Record, Record]]] = {}
    kinds = set()
    for record in records:
        for affected in record.get("affected", ()):
            package = affected.get("package", {})
            kind = _ECOSYSTEMS.get(package.get("ecosystem", ""), "")
            kinds.add(kind)
            if not record.get("withdrawn"):
                by_name.setdefault((kind, _folded(package.get("name", ""))), []).append((record, affected))

    def ask(part: Part) -> list[Advisory]:
        if part.kind not in kinds:
            raise NotAudited("the records tell of no such parts")
        name = f"{part.group}:{part.name}" if part.kind == "maven" else part.name
        found = []
        for record, affected in by_name.get((part.kind, _folded(name)), ()):
            if _is_affected(part.version, affected):
                ids = (record["id"], *record.get("aliases", ()))
                found.append(Advisory(part, ids, tuple(_events(affected, "fixed"))))
        return found

    return ask


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a directory or a zip; raises NotAudited if there are none."""
    count = 0
    if path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    count += 1
                    yield json.loads(archive.read(name))
    else:
        for file in path.rglob("*.json"):
            count += 1
            yield json.loads(file.read_text("utf-8"))
    if not count:
        raise NotAudited(f"{path} holds no records")


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _events(affected: Record, kind: str) -> Iterator[str]:
    for span in affected.get("ranges", ()):
        for event in span.get("events", ()):
            if kind in event:
                yield event[kind]


def _is_affected(version: str, affected: Record) -> bool:
    """Return True if a version is listed or in a range. A version that cannot be compared counts as affected."""
    if version in affected.get("versions", ()):
        return True
    for span in affected.get("ranges", ()):
        if span.get("type") not in ("ECOSYSTEM", "SEMVER"):
            continue
        inside = False
        try:
            at = Version(version)
            for event in span.get("events", ()):
                if "introduced" in event:
                    inside = inside or event["introduced"] == "0" or at >= Version(event["introduced"])
                elif ("fixed" in event and at >= Version(event["fixed"])) or (
                    "last_affected" in event and at > Version(event["last_affected"])
                ):
                    inside = False
        except InvalidVersion:
            # if all versions are listed, this version would be among them
            inside = not affected.get("versions")
        if inside:
            return True
    return False


# --- the report


def audit(parts: list[Part], ask: Ask, accepted: dict[str, str]) -> tuple[list[str], list[str], list[str]]:
    """Return the lines of vulnerable parts, of accepted vulnerabilities, and of parts that are not audited."""
    vulnerable: list[str] = []
    passed: list[str] = []
    unknown: dict[str, list[str]] = {}

    def one(part: Part) -> list[Advisory] | str:
        try:
            return ask(part)
        except NotAudited as reason:
            return str(reason)

    with ThreadPoolExecutor(12) as threads:
        for part, found in zip(parts, threads.map(one, parts), strict=True):
            if isinstance(found, str):
                unknown.setdefault(found, []).append(f"{part.name} {part.version}")
                continue
            for advisory in found:
                reason = next((accepted[name] for name in advisory.ids if name in accepted), None)
                (vulnerable if reason is None else passed).append(f"{advisory}" + (f"; {reason}" if reason else ""))
    return vulnerable, passed, [f"{reason}: {', '.join(names)}" for reason, names in unknown.items()]


def main(arguments: list[str]) -> int:
    """Audit all parts and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("TAILRACE_ADVISORIES") or None)
    parser.add_argument("--seconds", type=float, default=120, help="how long the package index is asked")
    parser.add_argument("--strict", action="store_true", help="what is not audited is a failure, too")
    given = parser.parse_args(arguments)
    accepted = {one["id"]: one["reason"] for one in tomllib.loads(ACCEPTED.read_text("utf-8")).get("advisory", ())}
    parts = [*packages(), *jars()]
    try:
        ask = of_index(index(), given.seconds) if given.data is None else of_records(read_records(Path(given.data)))
        if given.data is None:
            # An index that does not answer is asked once.
            ask(parts[0])
    except NotAudited as reason:
        print(f"audit: NOT AUDITED, none of {len(parts)} parts: {reason}")
        return int(given.strict)
    vulnerable, passed, unknown = audit(parts, ask, accepted)
    for line in vulnerable:
        print(f"audit: vulnerable: {line}")
    for line in passed:
        print(f"audit: accepted: {line}")
    for line in unknown:
        print(f"audit: NOT AUDITED, {line}")
    print(f"audit: {len(vulnerable)} known vulnerabilities in what was audited of {len(parts)} parts")
    return int(bool(vulnerable) or (given.strict and bool(unknown)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
