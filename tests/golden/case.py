"""Golden cases: folders with a set-up, a configuration, a workload and Debezium's output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.golden import script
from tests.golden.properties import parse
from tests.golden.record import Record, recorded

KNOBS = frozenset({"offsets", "idle", "format", "timezone", "nostream", "record", "fields", "exit"})
"""Knobs of a case. offsets: the recording has offsets beside it (for information). idle: seconds without a record that
end the case. format: the value format, `connect` if the configuration names the converters. timezone: the recorder's
time zone. nostream: the case ends with the snapshot. record: records show their partition and their timestamp. fields:
the fields with LSNs and transactions. exit: the recorded connector ended with an error."""
FORMATS = frozenset({"cloudevents", "connect"})
"""The values of the knob format."""
MONGO_KNOBS = frozenset({"offsets", "idle", "format", "exit", "proxy"})
"""Knobs of MongoDB's cases. exit: the recorded connector ended with an error. proxy: it came through a proxy that shows
a fed oplog."""

_VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
_VERSION = re.compile(r'"(?:iodebezium)?version":"(\d+\.\d+\.\d+\.\w+)"')


@dataclass(frozen=True, slots=True)
class Case:
    """A case. `name` is folder/case, as in `postgres/tutorial`; `database` is the kind of database."""

    name: str
    path: Path
    database: str
    properties: Mapping[str, str]
    knobs: Mapping[str, str]

    def read(self, name: str) -> str:
        """Return the text of one file of the case; "" if there is none."""
        path = self.path / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def unknown_knobs(self) -> list[str]:
        """Return the knobs that the runner does not support, so that a comparison would be meaningless."""
        allowed = {"postgresql": KNOBS, "mongodb": MONGO_KNOBS}.get(self.database, frozenset(self.knobs))
        found = sorted(set(self.knobs) - allowed)
        value = self.knobs.get("format", "cloudevents")
        return found if value in FORMATS else [*found, f"format={value}"]

    @property
    def shapes(self) -> dict[str, str] | None:
        """The kinds of fields with LSNs and transactions, by name, if records may have any shape.

        None if all records are change events and related records.
        """
        if not {"record", "fields"} & set(self.knobs) and self.knobs.get("format") != "connect":
            return None
        pairs = (pair.rpartition(":") for pair in self.knobs.get("fields", "").split(",") if pair)
        return {name: kind for name, _, kind in pairs}

    @property
    def cuts(self) -> bool:
        """True if a transform cuts records to a size, which includes the digits of their positions."""
        return any(text.endswith(".EnforceRecordSize") for text in self.properties.values())

    def workload(self) -> list[script.Statement | script.Directive]:
        """Return the statements and directives of run.sql."""
        return script.split(self.read("run.sql"))

    def expected(self) -> list[Record]:
        """Return the recorded records in order; freshly parsed, because the comparison changes them."""
        return recorded(self.path / "expected.jsonl.gz")

    def options(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the configuration with its `${NAME}` resolved. Raises KeyError for an unknown variable."""
        return {
            name: _VARIABLE.sub(lambda match: variables[match[1]], value) for name, value in self.properties.items()
        }

    def extensions(self) -> set[str]:
        """Return the extensions that the set-up creates."""
        found = re.findall(r"\bcreate\s+extension\s+(?:if\s+not\s+exists\s+)?\"?([\w-]+)", self.read("setup.sql"), re.I)
        return {str(name).lower() for name in found}


def load(path: Path) -> Case:
    """Return the case in the folder `path`."""
    path = path.resolve()
    text = (path / "config.properties").read_text(encoding="utf-8")
    properties = parse(text)
    knobs = {name: value.strip() for name, value in re.findall(r"^[ \t]*#@[ \t]*(\w+)[ \t]*=(.*)$", text, re.M)}
    database = properties.get("connector.class", "").removeprefix("io.debezium.connector.").partition(".")[0]
    return Case(f"{path.parent.name}/{path.name}", path, database, properties, knobs)


def find(root: Path) -> list[Case]:
    """Return the cases at, in or one folder below `root`, by name."""
    folders = [root, *root.glob("*"), *root.glob("*/*")]
    return sorted(
        (load(folder) for folder in folders if (folder / "config.properties").is_file()), key=lambda case: case.name
    )


def version(records_text: str) -> str | None:
    """Return the version that a recording names in its source blocks; None if it names none."""
    match = _VERSION.search(records_text)
    return match[1] if match else None
