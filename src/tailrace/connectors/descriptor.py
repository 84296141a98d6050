"""Descriptor: the parts of a connector, for the rest of tailrace. No I/O, any process.

A connector is a package with one Descriptor. The descriptor names parts by their modules, which are imported at first
use: using one connector imports no other, and reading a configuration imports no driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.config.connector import Options, Traits

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.connectors.captured_tables import Capturing
    from tailrace.connectors.consistent_read import Comparing, Reading
    from tailrace.connectors.findings import Finding
    from tailrace.connectors.removal import Removal
    from tailrace.connectors.row_lookup import Opening
    from tailrace.connectors.source_status import Offsets, SourceStatus
    from tailrace.connectors.survey import Surveying
    from tailrace.events.event_settings import EventSettings
    from tailrace.log.contracts import Planner
    from tailrace.log.retention import Retaining
    from tailrace.records.layout import RecordLayout, Struct
    from tailrace.records.transform import Rewritten
    from tailrace.snapshot.signals import Signal


class Prerequisites(Protocol):
    """The part that checks a server before a run. Driver."""

    def demand(self, config: Config) -> Sequence[Finding]:
        """Return the findings. Raises PrerequisiteError if a prerequisite of every pipeline is missing."""
        ...

    def check(self, config: Config) -> Sequence[Finding]:
        """Return the findings of `demand` and more, for `tailrace check`. Errors are among the findings."""
        ...


Listing = Callable[["Config", "Mapping[str, Any] | None"], "Sequence[tuple[str, str]]"]
"""Returns the tables named by the lists or by the commands in a checkpoint, each with words for its state.

The arguments are a configuration and the latest offset in the checkpoint, None without one.
"""


class Slots(Protocol):
    """The part that explains and drops what keeps the server's log, for `tailrace slots`. Driver."""

    def report(self, config: Config, seconds: float, *, has_checkpoint: bool) -> Sequence[Finding]:
        """Return a finding for each slot, after watching the slots for `seconds`.

        `has_checkpoint` is True if the pipeline of `config` has run. Raises ConnectionFailed.
        """
        ...

    def droppable(self, config: Config, name: str, *, has_checkpoint: bool) -> Finding:
        """Return what would be dropped. Raises PrerequisiteError for a slot that is read, or that a pipeline needs."""
        ...

    def drop(self, config: Config, name: str) -> None:
        """Drop the slot. Raises PrerequisiteError if the server refuses."""
        ...


class Documents(Protocol):
    """The part that makes documents from events, for databases of documents. See `tailrace.transforms`."""

    def opened(self, record: RecordLayout, made: Callable[[Struct], Rewritten], text: str) -> Rewritten:
        """Return the records of an event, one for each shape of its document after the change: `made` gives it. Worker.

        A document in a field named `text` becomes indented JSON. Raises RefusedRecord.
        """
        ...

    def read(self, text: str) -> Any:
        """Return the document of a text. Worker."""
        ...

    def write(self, document: Any) -> str:
        """Return a document as text. Worker."""
        ...

    def state_after(self, before: Any, payload: dict[str, Any]) -> Any:
        """Return the document after an event with the parsed `payload`; None if there is none. Worker."""
        ...


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The parts of a connector, each by its place: `package.module:name`, or `package.module` for a whole module.

    A part that the connector does not have is "".

    - `title` is the database's name in texts, `class_name` Debezium's class of the connector. `names` are the last
      parts, in lower case, of the values of `connector.class` that select it.
    - `options` names its Options. `planner` makes a Planner from a Config and EventSettings. `prerequisites` is a
      module that implements Prerequisites. `send_signal` writes a Signal to the place that the Config names, and
      returns the place's name; `signal_place` says what a signal becomes there. `describe` makes a SourceStatus from
      offsets.
    - `drivers` are the modules that only this connector imports, when it first connects; `requirement` is the pip
      requirement that installs them. `loaded` are the modules that a worker imports before its first task.
    - `documents` names a module that implements Documents. For connectors over change tables `dialect` makes their
      Dialect from a Config. `form` is the connector's part of events.
    - `captured_tables` names a tailrace.connectors.captured_tables.Capturing; "" if all rows are documents.
      `consistent_read` names a consistent_read.Reading, for spark.read; "" if several tasks cannot read tables at one
      position. `verify_source` names a tailrace.connectors.consistent_read.Comparing, for `tailrace verify`.
      `row_lookup` names a tailrace.connectors.row_lookup.Opening; "" if a sink of tables cannot read rows again.
    - `listing` names a Listing, for `tailrace tables`; "" if no table can be added while a query runs.
    - `slots` names a module that implements Slots; "" if no slot keeps the log of this database.
    - `asked` are the options that `tailrace init` asks for, each with its default or ""; () without support for `init`.
    - `removal` names a tailrace.connectors.removal.Removal, for `tailrace remove`; "" if pipelines have nothing on the
      server but a signal table. `survey` names a tailrace.connectors.survey.Surveying, for `tailrace init`; "" without
      support for `init`.
    - `documented_types` names a module for the page of typed rows: LISTED has the types, each with a column, FORM the
      connector's part of events.
    - `retention` names a tailrace.log.retention.Retaining, for metrics of the server's log.
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
    captured_tables: str = ""
    consistent_read: str = ""
    verify_source: str = ""
    row_lookup: str = ""
    slots: str = ""
    retention: str = ""
    asked: tuple[tuple[str, str], ...] = ()
    removal: str = ""
    survey: str = ""
    listing: str = ""
    documented_types: str = ""

    @property
    def name(self) -> str:
        """The connector's name in tailrace, as `tailrace check` prints it."""
        return self.traits.connector

    @property
    def format(self) -> str:
        """The format's name for `spark.readStream.format`."""
        return f"{self.name}-cdc"

    @property
    def forked(self) -> tuple[str, ...]:
        """The modules that a fork server imports for planners and tasks."""
        return (*self.loaded, "tailrace.events.event_settings", self.planner.partition(":")[0], *self.drivers)

    @property
    def parts(self) -> dict[str, str]:
        """The names of the parts that the connector has, by field."""
        fields = (
            "options", "planner", "prerequisites", "send_signal", "describe", "documents", "dialect", "form",
            "captured_tables", "consistent_read", "verify_source", "row_lookup", "retention", "slots", "listing",
            "removal", "survey", "documented_types",
        )  # fmt: skip
        return {field: named for field in fields if (named := getattr(self, field))}

    def load_options(self) -> Options:
        """Return the table of options."""
        found: Options = load(self.options)
        return found

    def load_planner(self) -> Callable[[Config, EventSettings], Planner]:
        """Return the function that makes a planner, without I/O. Planner."""
        found: Callable[[Config, EventSettings], Planner] = load(self.planner)
        return found

    def load_prerequisites(self) -> Prerequisites:
        """Return the part that checks a server before a run. Driver."""
        found: Prerequisites = load(self.prerequisites)
        return found

    def load_send_signal(self) -> Callable[[Config, Signal], str]:
        """Return the function that writes a signal to `signal.data.collection` and returns the place's name. Driver."""
        found: Callable[[Config, Signal], str] = load(self.send_signal)
        return found

    def load_describe(self) -> Callable[[Offsets, Offsets], SourceStatus]:
        """Return the function that describes two offsets, the end of a batch and the newest, for a person. Driver."""
        found: Callable[[Offsets, Offsets], SourceStatus] = load(self.describe)
        return found

    def load_captured_tables(self) -> Capturing | None:
        """Return the function that asks for the captured tables; None if rows have no types of tables. Any process."""
        found: Capturing | None = load(self.captured_tables) if self.captured_tables else None
        return found

    def load_consistent_read(self) -> Reading | None:
        """Return the function that opens a snapshot for spark.read; None if there is none. Any process."""
        found: Reading | None = load(self.consistent_read) if self.consistent_read else None
        return found

    def load_row_lookup(self) -> Opening | None:
        """Return the function that opens a session to read rows as they are now; None if there is none. Driver."""
        found: Opening | None = load(self.row_lookup) if self.row_lookup else None
        return found

    def load_listing(self) -> Listing | None:
        """Return the function that lists captured tables; None if there is none. Driver."""
        found: Listing | None = load(self.listing) if self.listing else None
        return found

    def load_slots(self) -> Slots | None:
        """Return the part that explains and drops slots; None if there are none. Driver."""
        found: Slots | None = load(self.slots) if self.slots else None
        return found

    def load_retention(self) -> Retaining | None:
        """Return the function that measures the log that the server keeps; None if there is none. Planner."""
        found: Retaining | None = load(self.retention) if self.retention else None
        return found

    def load_verify_source(self) -> Comparing | None:
        """Return the function that opens a snapshot for `tailrace verify`; None if there is none. Driver."""
        found: Comparing | None = load(self.verify_source) if self.verify_source else None
        return found

    def load_removal(self) -> Removal | None:
        """Return the functions that find and remove a pipeline's parts on the server; None if there are none.
        Driver."""
        found: Removal | None = load(self.removal) if self.removal else None
        return found

    def load_survey(self) -> Surveying | None:
        """Return the function that surveys a server for a first file; None if there is none. Driver."""
        found: Surveying | None = load(self.survey) if self.survey else None
        return found

    def load_documents(self) -> Documents | None:
        """Return the part that makes documents from events; None if there is none."""
        found: Documents | None = load(self.documents) if self.documents else None
        return found


def load(part: str) -> Any:
    """Return the part called `package.module:name` or `package.module`; imports the module."""
    module, _, name = part.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found
