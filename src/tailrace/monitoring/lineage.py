"""Lineage: the events of a pipeline's run for OpenLineage, which its client library sends. Driver.

The job and its inputs are named as Debezium names them. A thread of its own sends the events, so that neither a slow
nor a missing receiver holds the pipeline up.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config
from tailrace.config.columns import without_salt
from tailrace.connectors.registry import find
from tailrace.errors import ConfigError, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.events.names import own_topic
from tailrace.monitoring.observation import Observation
from tailrace.process.installation import pip_install
from tailrace.records.transform import routed

if TYPE_CHECKING:
    from openlineage.client.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

PREFIX = "openlineage.integration."
PRODUCER = "urn:tailrace"

BEGIN_SECONDS = 1.0
"""Seconds between two looks at a run that has not begun."""

LOOK_SECONDS = 60.0
"""Seconds between two looks at the schemas of the captured tables."""

FLUSH_SECONDS = 10.0
"""The longest time in which the last event is sent."""

Written = Callable[[str, TableId], "tuple[str, str, str] | None"]
"""Returns namespace, name and type of the dataset that gets the records of a topic and table, None if it has no name:
`tailrace.sinks.base.Sink.dataset`."""

_log = logging.getLogger("tailrace")


class Lineage:
    """The lineage of one run: a thread sends START, RUNNING whenever the datasets have changed, and the last event.

    `written` names the datasets of the sink. `client` is a client of OpenLineage; None stands for the client that the
    configuration describes. The constructor raises ConfigError if it describes none.
    """

    def __init__(
        self, config: Config, observation: Observation, written: Written, client: OpenLineageClient | None = None
    ) -> None:
        self._client = client or _client(config)
        self._config, self._observation, self._written = config, observation, written
        self._settings = EventSettings.from_options(config)
        self._run = str(uuid.uuid4())
        self._sent: tuple[Any, Any] | None = None
        self._is_down = False
        self._last: tuple[TailraceError | None] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="tailrace-lineage", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self, error: TailraceError | None) -> None:
        """Let the thread send COMPLETE, or FAIL with the error, and wait for its end, at most FLUSH_SECONDS."""
        self._last = (error,)
        self._closed.set()
        self._thread.join(FLUSH_SECONDS)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        self._emit("START")
        while not self._closed.wait(BEGIN_SECONDS):
            if self._observation.phase == "running":
                self._look()
                self._closed.wait(LOOK_SECONDS)
        assert self._last is not None
        error = self._last[0]
        if error is None and self._sent is None:
            # a short run has ended before it was looked at
            self._look()
        self._emit("COMPLETE" if error is None else "FAIL", error=error)
        with suppress(Exception):
            self._client.close(FLUSH_SECONDS)

    def _look(self) -> None:
        """Send RUNNING with the datasets, unless they are unchanged since the last RUNNING."""
        try:
            tables = list(self._tables())
        except Exception as error:
            # the pipeline itself reports what is wrong with the database
            _log.debug("lineage knows no tables (%s)", type(error).__name__)
            return
        inputs = [self._input(schema) for schema in tables]
        outputs = list(self._outputs(tables))
        if (inputs, outputs) != self._sent and self._emit("RUNNING", inputs, outputs):
            self._sent = inputs, outputs

    def _emit(
        self,
        state: str,
        inputs: Sequence[InputDataset] = (),
        outputs: Sequence[OutputDataset] = (),
        error: TailraceError | None = None,
    ) -> bool:
        """Send an event; return False if that failed. The first failure in a row is logged as a warning."""
        try:
            self._client.emit(self._event(state, inputs, outputs, error))
        except Exception as failure:
            if not self._is_down:
                _log.warning(
                    "An event of OpenLineage could not be sent (%s). The pipeline goes on without it; see the "
                    "transport in %sconfig.file.path.", type(failure).__name__, PREFIX,
                )  # fmt: skip
            self._is_down = True
            return False
        self._is_down = False
        return True

    # --- events --------------------------------------------------------------------------------------------------

    def _event(
        self,
        state: str,
        inputs: Sequence[InputDataset],
        outputs: Sequence[OutputDataset],
        error: TailraceError | None,
    ) -> RunEvent:
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

        config = self._config
        return RunEvent(
            eventTime=datetime.now(UTC).isoformat(),
            eventType=RunState[state],
            run=Run(self._run, self._run_facets(error)),
            job=Job(config[f"{PREFIX}job.namespace"] or config.logical_name, f"{config.logical_name}.0",
                    self._job_facets()),
            inputs=list(inputs),
            outputs=list(outputs),
            producer=PRODUCER,
        )  # fmt: skip

    def _run_facets(self, error: TailraceError | None) -> dict[str, Any]:
        from openlineage.client.facet_v2 import RunFacet, error_message_run, processing_engine_run

        facets: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=version("tailrace"), name="tailrace", openlineageAdapterVersion=version("openlineage-python")
            ),
            "debezium_config": RunFacet().with_additional_properties(configs=self._given()),
        }
        if error is not None:
            trace = "".join(traceback.format_tb(error.__traceback__)) or None
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(str(error), "PYTHON", trace)
        return facets

    def _given(self) -> list[str]:
        """Return the given options as `name=value`, without secrets."""
        config = self._config
        return [
            f"{without_salt(name)}={'***' if name in config.hidden else text}"
            for name, text in sorted(config.given.items())
        ]

    def _job_facets(self) -> dict[str, Any]:
        from openlineage.client.facet_v2 import documentation_job, job_type_job, ownership_job, tags_job

        config = self._config
        facets: dict[str, Any] = {"jobType": job_type_job.JobTypeJobFacet("STREAMING", "DEBEZIUM", "TASK")}
        if text := config[f"{PREFIX}job.description"]:
            facets["documentation"] = documentation_job.DocumentationJobFacet(text)
        if owners := _pairs(config[f"{PREFIX}job.owners"]):
            found = [ownership_job.Owner(name, kind) for name, kind in owners]
            facets["ownership"] = ownership_job.OwnershipJobFacet(found)
        if tags := _pairs(config[f"{PREFIX}job.tags"]):
            facets["tags"] = tags_job.TagsJobFacet(
                [tags_job.TagsJobFacetFields(key, value, "CONFIG") for key, value in tags]
            )
        return facets

    # --- datasets ------------------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[TableSchema]:
        """Yield the captured tables, without columns if the database has no schemas. Asks the server."""
        capturing = find(self._config.connector).load_captured_tables()
        if capturing is not None:
            yield from sorted(capturing(self._config, self._settings).tables, key=lambda schema: schema.id)
            return
        for name in sorted(table["table"] for table in self._observation.state()["tables"]):
            database, dot, collection = name.partition(".")
            if dot:
                yield TableSchema(TableId("", database, collection), (), ())

    def _input(self, schema: TableSchema) -> InputDataset:
        from openlineage.client.event_v2 import InputDataset

        table = schema.id
        database = table.database if self._config.traits.has_schemas else ""
        parts = filter(None, (database, table.schema, table.table))
        return InputDataset(self._namespace, ".".join(parts), facets=_facets(schema, "TABLE"))

    @property
    def _namespace(self) -> str:
        """The database's address as OpenLineage names it."""
        config = self._config
        if config.traits.address:
            # its hosts alone: neither login nor options
            scheme, _, rest = config[config.traits.address].partition("://")
            return f"{scheme}://{rest.partition('?')[0].partition('/')[0].rpartition('@')[2]}"
        return f"{config.connector}://{config['database.hostname']}:{config['database.port']}"

    def _outputs(self, tables: Sequence[TableSchema]) -> Iterator[OutputDataset]:
        """Yield the datasets that the sink writes; a topic that several tables share comes once, without columns."""
        from openlineage.client.event_v2 import OutputDataset

        brokers = self._config[f"{PREFIX}dataset.kafka.bootstrap.servers"]
        found: dict[tuple[str, str, str], list[TableSchema]] = {}
        for schema in tables:
            for topic in routed(own_topic(self._settings, schema.id), schema.id, self._settings.transforms):
                dataset = self._written(topic, schema.id)
                if dataset is not None:
                    found.setdefault(dataset, []).append(schema)
        for (namespace, name, kind), schemas in found.items():
            is_topic = namespace.startswith("kafka://")
            given = f"kafka://{brokers.split(',')[0].strip()}" if brokers and is_topic else namespace
            # the fields of an event are not the table's columns
            bare = is_topic or len(schemas) > 1
            yield OutputDataset(given, name, facets=_facets(_bare(schemas[0]) if bare else schemas[0], kind))


def _bare(schema: TableSchema) -> TableSchema:
    return TableSchema(schema.id, (), ())


def _facets(schema: TableSchema, kind: str) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_type_dataset, schema_dataset

    facets: dict[str, Any] = {"datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(kind)}
    if schema.columns:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(
            [
                schema_dataset.SchemaDatasetFacetFields(column.name, column.type_name, column.comment, fields=None)
                for column in schema.columns
            ]
        )
    return facets


def _pairs(entries: Sequence[str]) -> list[tuple[str, str]]:
    """Return entries of the form `name=value` as pairs."""
    split = (entry.partition("=") for entry in entries)
    return [(name.strip(), value.strip()) for name, _, value in split]


def _client(config: Config) -> OpenLineageClient:
    """Return the client that the configuration describes. Raises ConfigError."""
    option = f"{PREFIX}config.file.path"
    try:
        import yaml
        from openlineage.client.client import OpenLineageClient
        from openlineage.client.transport.console import ConsoleTransport
        from openlineage.client.transport.noop import NoopTransport
    except ImportError:
        raise ConfigError(
            f"{PREFIX}enabled is true, and the client of OpenLineage is not installed.",
            pip_install("tailrace[openlineage]"),
        ) from None
    given: Any = {}
    if path := config[option]:
        try:
            given = yaml.safe_load(Path(path).read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"{option}: {path} cannot be read: {error.strerror}.", "Correct the path.") from None
        except (yaml.YAMLError, UnicodeError):
            given = None
        if not isinstance(given, dict):
            raise ConfigError(f"{option}: {path} is no YAML file of OpenLineage's client.", "Correct the file.")
    try:
        client = OpenLineageClient(config=given)
        has_transport = bool((client.config.transport or {}).get("type")) or "OPENLINEAGE_URL" in os.environ
    except Exception as error:
        # its text may quote the file, and so show a secret
        raise ConfigError(
            f"OpenLineage's client does not take its configuration ({type(error).__name__}).",
            f"Correct the transport in {option}, or the environment variables OPENLINEAGE_*.",
        ) from None
    if not has_transport and not isinstance(client.transport, NoopTransport):
        raise ConfigError(
            f"{PREFIX}enabled is true, and no transport of OpenLineage is named.",
            f"Name a file with one in {option}, or set OPENLINEAGE_URL.",
        )
    if isinstance(client.transport, ConsoleTransport):
        # this transport logs the events at the level INFO, which is not shown by default
        printer = logging.getLogger(ConsoleTransport.__module__)
        printer.setLevel(logging.INFO)
        if not printer.handlers:
            printer.addHandler(logging.StreamHandler())
    return client
