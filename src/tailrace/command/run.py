"""The command `tailrace run`: starts a pipeline, and logs its progress until it ends. Driver, main thread."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.command import reachable_parts, room
from tailrace.command.background_archive import Warming
from tailrace.command.phases import Phases
from tailrace.command.stop_request import StopRequest
from tailrace.config.files import RunConfig
from tailrace.connectors.checkpoint import stored_offset
from tailrace.connectors.registry import find
from tailrace.metrics import reports
from tailrace.process import temporary
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    from tailrace.monitoring.monitor import Monitor
    from tailrace.pipeline import Pipeline
    from tailrace.sinks.base import Sink

log = logging.getLogger("tailrace")


def run(
    configured: RunConfig, *, once: bool, debug: bool, master: str | None, conf: Mapping[str, str], is_last: bool
) -> int:
    """Run a pipeline until it ends or is asked to stop; return the exit code 0. Raises its failure.

    With `is_last` this process ends next, so it does not wait for the end of its JVM.
    """
    with StopRequest() as stop:
        from tailrace.monitoring.monitor import Monitor
        from tailrace.pipeline import Pipeline
        from tailrace.spark.cluster import is_local
        from tailrace.spark.startup.compiling import MARK

        # The query's error is reported here, so Spark's log would only repeat it.
        pipeline = Pipeline(configured, log_level="warn" if debug else "off", master=master, conf=conf)
        for line in opening(configured, pipeline.sink):
            log.info("%s", line)
        local = master is None or is_local(master)
        for finding in room.findings(configured, conf, local=local):
            log.log(
                logging.WARNING if finding.remedy else logging.INFO, "%s", f"{finding.text} {finding.remedy}".strip()
            )
        # the planner's files are there too, since it cannot remove them if the JVM is killed
        folder = temporary.folder("tailrace-run-")
        os.environ |= {MARK: os.path.join(folder, "compiling"), reports.PARENT: folder}
        phases = Phases(find(configured.source.connector).load_describe())
        try:
            phases.watch()
            began = time.monotonic()
            # Spark's JVM starts while the server is checked. Most checks fail within a second, and end the JVM.
            phases.begin("starting Spark")
            pipeline.begin()
            # from here on the checkpoint is this run's, and with it the status in it
            with Monitor(configured, pipeline.sink.dataset, pipeline.sink.counts) as monitor:
                monitor.observation.look_in(Path(folder))
                _check(pipeline, phases, conf, local=local)
                _deliver(pipeline, once, stop, (phases, monitor), began, is_last=is_last)
        except SystemExit:
            # Ctrl-C while the server is checked; the end of the JVM may take seconds
            log.info("Stopping: nothing was started yet. A second Ctrl-C ends the run at once.")
            raise
        finally:
            phases.close()
            pipeline.stop(is_last=is_last)
    return 0


def opening(configured: RunConfig, sink: Sink) -> list[str]:
    """Return the sentences that a run logs first: source, sink, checkpoint, delivery, and its first step."""
    source = configured.source
    found = find(source.connector)
    place = source.get("database.hostname") or ""
    named = f" at {place}:{source['database.port']}" if place else ""
    stored = stored_offset(configured.checkpoint)
    where = configured.checkpoint_location
    lines = [
        f"Pipeline {configured.name}: from {found.title}{named} to {configured.sink.name}, events of format "
        f"{source.event_format}, {sink.delivery}."
    ]
    if stored is not None:
        status = found.load_describe()(stored, {})
        if status.snapshot is not None:
            at = f"{status.snapshot.done} of {status.snapshot.of} {status.snapshot.unit} of its snapshot"
        else:
            at = status.position
        lines.append(f"The checkpoint {where} exists: the run goes on from {at or 'there'}.")
    elif configured.checkpoint is None:
        lines.append(f"The checkpoint is {where}.")
    else:
        lines.append(f"The checkpoint {where} is new: {_first(source)}.")
    return lines


def _first(source: Mapping[str, Any]) -> str:
    mode = snapshot_mode(source)
    if mode.reads == "never":
        return "the run reads the log from its present end, and no existing rows"
    if not mode.streams:
        return "the run reads the existing rows, and then ends"
    return "the run reads the existing rows first, and then the log"


def _check(pipeline: Pipeline, phases: Phases, conf: Mapping[str, str], *, local: bool) -> None:
    """Check the server and the sink; log warnings. Raises TailraceError for a need that is not met."""
    asking = phases.phase("waiting for the database and the sink", "The server is checked")
    with asking, ThreadPoolExecutor(1, "tailrace-parts") as other:
        parts = other.submit(reachable_parts.demand, pipeline.run, pipeline.sink, conf, local=local)
        findings = [*find(pipeline.run.source.connector).load_prerequisites().demand(pipeline.source)]
        findings += parts.result()
    for finding in findings:
        # The source warns about tables itself, at each start.
        if finding.level == "warning" and finding.subject in ("slot", "senders", "signals", "collections"):
            log.warning("%s %s", finding.text, finding.remedy)
        elif finding.level == "error":
            log.warning("%s The executors may reach it. %s", finding.text, finding.remedy)
        elif finding.level == "ok" and finding.subject == "tables":
            log.info("%s", finding.text)


def _deliver(
    pipeline: Pipeline, once: bool, stop: StopRequest, shown: tuple[Phases, Monitor], began: float, *, is_last: bool
) -> None:
    """Run the pipeline to its end. Re-raises its failure, as a TailraceError if the cause is known."""
    try:
        try:
            _follow(pipeline, once, stop, shown, began)
        finally:
            pipeline.stop(is_last=is_last)
    except Exception as error:
        from tailrace.monitoring.processes import jvm_lost

        # A supervisor signals every process of a service: after a stop, the end of another process causes failures.
        if not stop.asked:
            known = jvm_lost(error) or pipeline.cause(error)
            if known is None or known is error:
                raise
            raise known from error


def _follow(pipeline: Pipeline, once: bool, stop: StopRequest, shown: tuple[Phases, Monitor], began: float) -> None:
    """Start the pipeline and show its status until it ends or is interrupted. Re-raises its failure."""
    from tailrace.monitoring.listener import observed
    from tailrace.monitoring.processes import process_lost
    from tailrace.monitoring.status import StatusLine
    from tailrace.sinks.interruption import is_writing

    phases, monitor = shown
    stop.postpone()
    # On the main thread Spark's session would handle Ctrl-C itself, and end in the middle of its start.
    with ThreadPoolExecutor(1, "tailrace-start") as starter:
        phases.begin("starting Spark", began)
        _await(starter.submit(pipeline.connect), stop, "Spark, which is starting, is ended", pipeline.abandon)
        if stop.asked:
            return
        phases.end("Spark is ready")
        phases.begin("starting the query")
        started = starter.submit(pipeline.start, available_now=once)
        query = _await(started, stop, "waits until the query has started, and ends it")
    if stop.asked:
        return
    phases.end("The query is started")
    phases.begin("waiting for the first batch")
    line = StatusLine(find(pipeline.run.source.connector).load_describe())
    # No status line on a terminal to which the sink prints records: the line rewrites itself.
    has_line = not (pipeline.sink.prints and sys.stdout.isatty() and sys.stderr.isatty())
    tracker = pipeline.spark.sparkContext.statusTracker()
    # a writer in this process may wait for its destination while Spark has no job
    monitor.follow(lambda: is_writing() or bool(tracker.getActiveJobsIds()))
    observation = monitor.observation

    given = pipeline.spark.sparkContext.getConf().get("spark.driver.extraJavaOptions", "")
    warming = Warming(given or "")

    def idle() -> None:
        phases.idle()
        observation.tick()
        warming.start()

    updates = (phases.progress, line.update, observation.update)
    with observed(pipeline.spark, *updates, idle=idle, wake=stop.wake) as ended:
        while query.isActive and not stop.wait(0.5):
            if has_line:
                line.update(None)
        if not stop.asked:
            # Spark reports the last batch on another thread, after the query has ended.
            ended.wait(2)
            with suppress(Exception):
                # the report may be late, or the JVM gone
                observation.catch_up(json.loads(record.json) for record in query.recentProgress)
    line.close()
    if stop.asked:
        phases.close()
        log.info("Stopping: waits for the batch that is being written. A second Ctrl-C ends the run at once.")
    failure = query.exception()
    if failure is not None and not stop.asked:
        raise process_lost(query) or failure
    if not stop.asked:
        warming.start()


def _await(started: Future[Any], stop: StopRequest, doing: str, end: Callable[[], None] | None = None) -> Any:
    """Wait for a step of the start; return its result. If a stop is asked for meanwhile, log it and call `end`."""
    started.add_done_callback(lambda _: stop.wake())
    while not started.done():
        if stop.wait(5):
            log.info("Stopping: %s. A second Ctrl-C ends the run at once.", doing)
            if end is not None:
                end()
            break
    return started.result()
