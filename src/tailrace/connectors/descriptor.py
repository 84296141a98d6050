"""Descriptor: everything that the rest of tailrace knows of a connector, in one place. No I/O, any process.

A connector is a package with a room of its own and one Descriptor. The parts that it names are loaded when they are
first asked for: whoever asks for one connector imports no other, and who only reads a configuration imports no driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.config.connector import Options, Traits

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.connectors.captured import Capturing
    from tailrace.connectors.findings import Finding
    from tailrace.connectors.held import Comparing, Reading
    from tailrace.connectors.present import Opening
    from tailrace.connectors.source_status import Offsets, SourceStatus
    from tailrace.events.settings import EventSettings
    from tailrace.log.planner import Planner
    from tailrace.records.layout import RecordLayout, Struct
    from tailrace.records.transform import Rewritten
    from tailrace.snapshot.signals import Signal


class Prerequisites(Protocol):
    """The part that asks a server before a run. Driver."""

    def demand(self, config: Config) -> Sequence[Finding]:
        """What was looked at; raises PrerequisiteError for what a pipeline cannot do without."""
        ...

    def check(self, config: Config) -> Sequence[Finding]:
        """The same and more, for `tailrace check`; errors are among the findings."""
        ...


class Documents(Protocol):
    """The part that makes documents of events, where a database holds documents. See `tailrace.transforms`."""

    def opened(self, record: RecordLayout, made: Callable[[Struct], Rewritten], text: str) -> Rewritten:
        """What `made` gives of each struct that the documents after changes are: the records of an event by the shapes
        of these. A field of the name `text` that is a document is indented JSON there. Worker. Raises Refused."""
        ...

    def read(self, text: str) -> Any:
        """The document that a text stands for. Worker."""
        ...

    def write(self, document: Any) -> str:
        """A document as text. Worker."""
        ...

    def state_after(self, before: Any, payload: dict[str, Any]) -> Any:
        """The document after an event, whose parsed payload is given; None where there is none. Worker."""
        ...


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One connector. Names of parts are `package.module:name`, or `package.module` for a whole module.

    `title` is the database's name in texts, `class_name` Debezium's class of the connector, and `names` are the last
    parts, in small letters, of what `connector.class` may say for it. `options` names its Options, `planner` what
    makes a Planner of a Config and EventSettings, `prerequisites` the module that is a Prerequisites, `send_signal`
    what writes a Signal where the Config says and returns the place's name, `describe` what makes a SourceStatus of
    offsets. `signal_place` says what a signal becomes there.

    `drivers` are the modules that only the connector's room imports, when it first connects, and `requirement` is what
    pip installs for them; empty where there is no driver. `loaded` are the modules that most tasks need, which a
    worker imports before it has one. `documents` names the module that is a Documents; ""
    where there is none. Connectors over change tables name in `dialect` what makes their Dialect of a Config, and in
    `form` their part of events. `captured` names a tailrace.connectors.captured.Capturing; "" where rows have no types
    but those of documents. `held` names a tailrace.connectors.held.Reading, what spark.read reads; "" where tables
    cannot be read at one position by several tasks. `compared` names a tailrace.connectors.held.Comparing, what
    `tailrace verify` reads; "" where that is not there. `present` names a tailrace.connectors.present.Opening; "" where
    a sink of tables cannot read rows again. `listed` names a module for the page of typed rows: LISTED has its types,
    each with a column of it, FORM is the connector's part of events.
    """

    traits: Traits
    title: str
    class_name: str
    names: tuple[str, ...]
    options: str
    planner: str
    prerequisites: str
    send_signal: str
    describe: str
    signal_place: str = "row of the signal table"
    drivers: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    requirement: str = ""
    documents: str = ""
    dialect: str = ""
    form: str = ""
    captured: str = ""
    held: str = ""
    compared: str = ""
    present: str = ""
    listed: str = ""

    @property
    def name(self) -> str:
        """The connector's name in tailrace, as `tailrace check` prints it."""
        return self.traits.connector

    @property
    def format(self) -> str:
        """What `spark.readStream.format` takes."""
        return f"{self.name}-cdc"

    @property
    def forked(self) -> tuple[str, ...]:
        """The modules that a fork server imports for planners and tasks."""
        return (*self.loaded, "tailrace.events.settings", self.planner.partition(":")[0], *self.drivers)

    @property
    def parts(self) -> dict[str, str]:
        """The names of all parts that the connector has, by the field that names them."""
        fields = (
            "options", "planner", "prerequisites", "send_signal", "describe", "documents", "dialect", "form",
            "captured", "held", "compared", "present", "listed",
        )  # fmt: skip
        return {field: named for field in fields if (named := getattr(self, field))}

    def load_options(self) -> Options:
        """The table of options."""
        found: Options = load(self.options)
        return found

    def load_planner(self) -> Callable[[Config, EventSettings], Planner]:
        """What makes a planner; making one does no I/O. Planner."""
        found: Callable[[Config, EventSettings], Planner] = load(self.planner)
        return found

    def load_prerequisites(self) -> Prerequisites:
        """What asks a server before a run. Driver."""
        found: Prerequisites = load(self.prerequisites)
        return found

    def load_send_signal(self) -> Callable[[Config, Signal], str]:
        """What writes a signal where `signal.data.collection` says, and returns the name of that. Driver."""
        found: Callable[[Config, Signal], str] = load(self.send_signal)
        return found

    def load_describe(self) -> Callable[[Offsets, Offsets], SourceStatus]:
        """What reads offsets, the end of a batch and the newest, for a person. Driver."""
        found: Callable[[Offsets, Offsets], SourceStatus] = load(self.describe)
        return found

    def load_captured(self) -> Capturing | None:
        """What asks for the tables that are captured; None where rows have no types of tables. Any process."""
        found: Capturing | None = load(self.captured) if self.captured else None
        return found

    def load_held(self) -> Reading | None:
        """What opens a snapshot for spark.read; None where there is none. Any process."""
        found: Reading | None = load(self.held) if self.held else None
        return found

    def load_present(self) -> Opening | None:
        """What reads rows as they are now; None where nothing does. Driver."""
        found: Opening | None = load(self.present) if self.present else None
        return found

    def load_compared(self) -> Comparing | None:
        """What opens a snapshot for `tailrace verify`; None where there is none. Driver."""
        found: Comparing | None = load(self.compared) if self.compared else None
        return found

    def load_documents(self) -> Documents | None:
        """What makes documents of events; None where events have none."""
        found: Documents | None = load(self.documents) if self.documents else None
        return found


def load(part: str) -> Any:
    """The part called `package.module:name` or `package.module`; imports the module."""
    module, _, name = part.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found
