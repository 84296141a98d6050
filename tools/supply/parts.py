"""The parts that are pinned: the packages of requirements.lock and the jars of the sinks, with their licences."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tailrace import sinks
from tailrace.config.jar import Jar
from tailrace.sinks.tables.formats.detection import FORMATS

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
LICENCES = Path(__file__).with_name("licences.toml")

_DEVELOPMENT = {"dev", "docs"}
_ENTRY = re.compile(r"\n(?=[a-z0-9])")
_HEAD = re.compile(r"(?P<name>[a-z0-9.\-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\\n]+?))?\s*\\?\n")
_VIA = re.compile(r"^    #(?: via|  ) ([a-z0-9.\-]+)(?:\[[^\]]*\])?(?: \(pyproject\.toml\))?$", re.MULTILINE)
PRODUCT = "tailrace"


@dataclass(frozen=True, slots=True)
class Part:
    """A package or jar. `hashes` are SHA-256 of its files, sorted; `wanted_by` the packages that need it, the product
    among them.

    `scope` is CycloneDX's: required, optional for packages of extras, excluded for packages of development.
    """

    kind: str
    name: str
    version: str
    hashes: tuple[str, ...]
    licence: str | None
    scope: str
    group: str = ""
    marker: str = ""
    wanted_by: frozenset[str] = field(default_factory=frozenset)

    @property
    def purl(self) -> str:
        """The part's package URL."""
        if self.kind == "maven":
            return f"pkg:maven/{self.group}/{self.name}@{self.version}?type=jar"
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(lock: Path = LOCK, project: Path = PROJECT, licences: Path = LICENCES) -> list[Part]:
    """Return the packages of the lock, in its order; raises ValueError for an entry that is not understood."""
    known = tomllib.loads(licences.read_text("utf-8"))["packages"]
    found = []
    for entry in _ENTRY.split(lock.read_text("utf-8").rstrip() + "\n"):
        head = _HEAD.match(entry)
        hashes = tuple(sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)))
        if head is None or not hashes:
            raise ValueError(f"an entry of {lock.name} is not understood: {entry.splitlines()[0]}")
        wanted = frozenset(_VIA.findall(entry))
        found.append((head["name"], head["version"], (head["marker"] or "").strip(), hashes, wanted))
    scopes = _scopes(project, {name: wanted for name, _, _, _, wanted in found})
    return [
        Part("pypi", name, version, hashes, known.get(name), scopes[name], marker=marker, wanted_by=wanted)
        for name, version, marker, hashes, wanted in found
    ]


def jars(licences: Path = LICENCES) -> list[Part]:
    """Return the jars of our own sinks."""
    known = tomllib.loads(licences.read_text("utf-8"))["jars"]
    return [
        Part(
            "maven",
            jar.module,
            jar.revision,
            (jar.sha256,),
            known.get(jar.module),
            "optional",
            group=jar.organisation,
            wanted_by=frozenset((PRODUCT,)),
        )
        for jar in sink_jars()
    ]


def sink_jars() -> list[Jar]:
    """Return the jars that our own sinks need, each once."""
    known = [sinks.KNOWN.load(name) for name in sinks.KNOWN.places]
    jars = [jar for user in (*known, *FORMATS.values()) for jar in user.jars]
    return list(dict.fromkeys([*jars, *(jar for sink in known for jar in sink.further_jars)]))


def _scopes(project: Path, wanted_by: dict[str, frozenset[str]]) -> dict[str, str]:
    """Return the scope of each package: its own, or the strongest scope among the packages that need it."""
    read = tomllib.loads(project.read_text("utf-8"))["project"]
    groups = {"required": read["dependencies"], "optional": [], "excluded": []}
    for extra, requirements in read["optional-dependencies"].items():
        groups["excluded" if extra in _DEVELOPMENT else "optional"] += requirements
    needs: dict[str, set[str]] = {name: set() for name in wanted_by}
    for name, parents in wanted_by.items():
        for parent in parents - {PRODUCT}:
            needs[parent].add(name)
    scopes: dict[str, str] = {}
    for scope in ("required", "optional", "excluded"):
        waiting = [re.split(r"[\[<>=~!; ]", text)[0].lower().replace("_", "-") for text in groups[scope]]
        while waiting:
            name = waiting.pop()
            if name in needs and name not in scopes:
                scopes[name] = scope
                waiting += needs[name]
    return {name: scopes.get(name, "excluded") for name in wanted_by}
