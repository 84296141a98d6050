"""The `tailrace` command: run, check, migrate, signal, verify, warm, rebuild, maintain, demo, version.

Exit codes are those of `tailrace.errors`, 0 and 130.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tailrace import __version__
from tailrace.command import maintain
from tailrace.command.stop_request import INTERRUPTED, StopRequest
from tailrace.connectors import signalling
from tailrace.errors import ConfigError, PrerequisiteError, TailraceError
from tailrace.observe.failures import cause
from tailrace.verify import arguments as verifying

if TYPE_CHECKING:
    from tailrace.config.files import RunConfig
    from tailrace.pipeline import Pipeline

_FILES = "application.properties, connector .properties or connector JSON"
_REFERENCE = re.compile(r"\$\{[^{}]+\}")

_EXIT_CODES = """\
exit codes:
    0  done, or stopped by Ctrl-C or SIGTERM
    1  another failure; verify: tables differ
    2  the configuration is wrong
    3  no connection to the database or broker, or the login is refused
    4  the server lacks a setting, a right, the slot or the publication
    5  the position in the log is lost
    6  the log cannot be decoded
    7  a value cannot be converted
    8  the sink is wrong or refuses records
    9  Spark's JVM has ended
   10  the planner or a worker has ended
   11  the spool cannot be written or read
   12  the schema registry does not answer, or refuses
   13  verify: another failure
  130  a second Ctrl-C
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code. Prints deliberate errors as one message with the remedy to stderr."""
    arguments = _parser().parse_args(argv)
    _log_to_stderr(arguments.debug)
    try:
        return int(arguments.command(arguments) or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if arguments.debug:
            raise
        code = _report(error)
        return int(arguments.failed) if code == TailraceError.exit_code else code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailrace",
        description="Change data capture that delivers Debezium change events through Apache Spark.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show stack traces and the whole log")
    parser.set_defaults(debug=False, failed=TailraceError.exit_code)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run", parents=[shared], help="run the pipeline that a file describes",
        description="Run the pipeline of FILE until it is stopped. The next run goes on from the checkpoint.",
    )  # fmt: skip
    _add_file(run)
    run.add_argument("--once", action="store_true", help="deliver the changes up to now, then stop")
    run.add_argument("--checkpoint", metavar="DIR", help="directory or URL of Spark's checkpoint")
    _add_spark(run)
    run.set_defaults(command=_run)

    check = commands.add_parser(
        "check", parents=[shared], help="check a file and the server that it names",
        description="Check FILE and the server that it names. An error gives the exit code 2, 3 or 4.",
    )  # fmt: skip
    _add_file(check)
    check.add_argument("--offline", action="store_true", help="check the file without the server; exit code 0 or 2")
    check.set_defaults(command=_check)

    migrate = commands.add_parser(
        "migrate", parents=[shared], help="show what becomes of each entry of a Debezium file",
        description="Show what becomes of each entry of FILE, a file for Debezium. No server is asked.",
    )  # fmt: skip
    migrate.add_argument("file", metavar="FILE", help=_FILES)
    migrate.add_argument("--write", action="store_true", help="write a cleaned copy: NAME.tailrace.SUFFIX")
    migrate.set_defaults(command=_migrate)

    signals = commands.add_parser(
        "signal", parents=[shared], help="send a signal to the pipeline of a file",
        description="Send a signal to the pipeline of FILE, such as execute-snapshot.",
    )  # fmt: skip
    signalling.add_arguments(signals)
    _add_file(signals)
    signals.set_defaults(command=_signal)

    compared = commands.add_parser(
        "verify", parents=[shared], help="compare the tables of the sink tables with the source",
        description="Compare the tables that FILE writes with the source, row by row. Exit code 1: they differ.",
    )  # fmt: skip
    _add_file(compared)
    verifying.add_arguments(compared)
    _add_spark(compared)
    compared.set_defaults(command=_verify, failed=verifying.FAILED)

    warm = commands.add_parser(
        "warm", parents=[shared], help="shorten later starts of Spark with a class archive",
        description="Write an archive of the classes of Spark's JVM, which later starts load.",
    )  # fmt: skip
    warm.set_defaults(command=_warm)

    maintain.add_commands(commands, shared)

    demo = commands.add_parser(
        "demo", parents=[shared], help="show a pipeline at work on a private server",
        description="Start a private server, change rows and show their events. Nothing is left behind.",
    )  # fmt: skip
    demo.add_argument("--keep", metavar="DIR", help="write events, checkpoint and settings to this directory")
    demo.add_argument("--fast", action="store_true", help="run without pauses between the steps")
    demo.set_defaults(command=_demo)

    version = commands.add_parser("version", parents=[shared], help="print the version")
    version.set_defaults(command=_version)
    return parser


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILES)
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="override an entry of the file; repeatable"
    )
    parser.add_argument(
        "--set-file", metavar="NAME=PATH", action="append", default=[],
        help="read the value of an entry from a file, such as a password; repeatable",
    )  # fmt: skip


def _add_spark(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--master", metavar="URL", help="Spark master, such as spark://HOST:7077; default: local[*]")
    add("--conf", metavar="NAME=VALUE", action="append", default=[], help="setting of Spark; repeatable")


def _read(arguments: argparse.Namespace) -> RunConfig:
    from tailrace import sinks
    from tailrace.connectors import registry

    given = getattr(arguments, "checkpoint", None)
    return registry.read(arguments.file, _overrides(arguments), checkpoint=given, sinks=sinks.names())


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the entries of --set and --set-file, which override those of the file."""
    from tailrace.config.option import holds_secret

    overrides: dict[str, str] = {}
    for entry in arguments.set:
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            # The argument is not shown: the name may be missing, and the rest a password.
            raise ConfigError("An argument of --set has no NAME=VALUE.", "Write --set debezium.sink.type=console.")
        if holds_secret(name) and value and not _REFERENCE.fullmatch(value.strip()):
            logging.getLogger("tailrace").warning(
                "--set %s=… shows its value to everyone who may list this host's processes: use --set-file %s=PATH, or "
                "--set '%s=${env:NAME}'.",
                *[name.strip()] * 3,
            )
        overrides[name.strip()] = value
    for entry in arguments.set_file:
        name, equals, path = entry.partition("=")
        if not equals or not name.strip() or not path.strip():
            raise ConfigError("An argument of --set-file has no NAME=PATH.", "Write --set-file NAME=PATH.")
        overrides[name.strip()] = _content(name.strip(), path.strip())
    return overrides


def _content(name: str, path: str) -> str:
    """Return a file's text as the value of an entry, with references escaped and without the last line end."""
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigError(
            f"The file of --set-file {name} cannot be read: {error.strerror}.", "Check its name and its rights."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"The file of --set-file {name} is not text in UTF-8.", "Check its name.") from None
    return text.removesuffix("\n").removesuffix("\r").replace("${", "$${")


def _run(arguments: argparse.Namespace) -> int:
    run = _read(arguments)
    from tailrace.connectors.registry import find

    master, conf = _spark(arguments)
    with StopRequest() as stop:
        from tailrace.pipeline import Pipeline

        # The query's error is reported here, so Spark's log would only repeat it.
        pipeline = Pipeline(run, log_level="warn" if arguments.debug else "off", master=master, conf=conf)
        try:
            # Spark's JVM starts while the server is checked. Most checks fail within a second, and end the JVM.
            pipeline.begin()
            for finding in find(run.source.connector).load_prerequisites().demand(pipeline.source):
                # The source warns about tables itself, at each start.
                if finding.level == "warning" and finding.subject in ("slot", "senders"):
                    logging.getLogger("tailrace").warning("%s %s", finding.text, finding.remedy)
            _deliver(pipeline, arguments.once, stop)
        finally:
            pipeline.stop()
    return 0


def _spark(arguments: argparse.Namespace) -> tuple[str | None, dict[str, str]]:
    """Return the master, None if not given, and Spark's settings. Raises ConfigError."""
    from tailrace.spark import cluster

    master = None if arguments.master is None else cluster.checked_master(arguments.master)
    if master is not None and "PYSPARK_GATEWAY_PORT" in os.environ:
        raise ConfigError("--master is given, but spark-submit has already named a master.", "Leave --master out.")
    return master, dict(cluster.settings(arguments.conf))


def _deliver(pipeline: Pipeline, once: bool, stop: StopRequest) -> None:
    """Run the pipeline to its end. Re-raises its failure, as a TailraceError if the cause is known."""
    try:
        try:
            _follow(pipeline, once, stop)
        finally:
            pipeline.stop()
    except Exception as error:
        from tailrace.spark.processes import jvm_lost

        # A supervisor signals every process of a service: failures after that come from the ends of the others.
        if not stop.asked:
            known = jvm_lost(error) or pipeline.cause(error)
            if known is None or known is error:
                raise
            raise known from error


def _follow(pipeline: Pipeline, once: bool, stop: StopRequest) -> None:
    """Start the pipeline and show its status until it ends or is interrupted. Re-raises its failure."""
    from tailrace.connectors.registry import find
    from tailrace.observe.listener import observed
    from tailrace.observe.status import StatusLine
    from tailrace.spark.processes import process_lost

    stop.postpone()
    # On the main thread Spark's session would handle Ctrl-C itself, and end in the middle of its start.
    with ThreadPoolExecutor(1, "tailrace-start") as starter:
        query = starter.submit(pipeline.start, available_now=once).result()
    line = StatusLine(find(pipeline.run.source.connector).load_describe())
    # No status line on a terminal to which the sink prints records: the line rewrites itself.
    shown = not (pipeline.sink.prints and sys.stdout.isatty() and sys.stderr.isatty())
    with observed(pipeline.spark, line, stop.wake) as ended:
        while query.isActive and not stop.wait(0.5):
            if shown:
                line.update(None)
        if not stop.asked:
            # Spark reports the last batch on another thread, after the query has ended.
            ended.wait(2)
    line.close()
    failure = query.exception()
    if failure is not None and not stop.asked:
        raise process_lost(query) or failure


def _check(arguments: argparse.Namespace) -> int:
    from tailrace import sinks
    from tailrace.command import migrate as migration
    from tailrace.config.files import read_entries
    from tailrace.connectors import advice
    from tailrace.connectors.registry import find, parse

    if arguments.offline:
        return migration.check(read_entries(arguments.file) | _overrides(arguments))
    run = _read(arguments)
    sink = sinks.open(run.sink.name, run.sink.options, run.source)
    migration.show([migration.summary(run, sink)])
    source = parse(run.source.connector, run.source.texts | sink.source_options())
    found = find(source.connector).load_prerequisites().check(source)
    counted, failed = migration.show([*found, *advice.channels(run.source), *sink.advice(), *sink.asked()])
    print(counted)
    return PrerequisiteError.exit_code if failed else 0


def _migrate(arguments: argparse.Namespace) -> int:
    from tailrace.command import migrate as migration

    return migration.migrate(arguments.file, write=arguments.write)


def _signal(arguments: argparse.Namespace) -> int:
    signalled = signalling.from_arguments(arguments)
    print(signalling.send(_read(arguments).source, signalled, arguments.channel))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from tailrace.verify import command

    return command.run(_read(arguments), arguments, *_spark(arguments))


def _warm(arguments: argparse.Namespace) -> int:
    from tailrace.spark.startup import archive

    print(archive.make())
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    return int(importlib.import_module("tailrace.demo").main(keep=arguments.keep, fast=arguments.fast))


def _version(arguments: argparse.Namespace) -> int:
    from importlib.metadata import version

    python = ".".join(map(str, sys.version_info[:3]))
    print(f"tailrace {__version__} (PySpark {version('pyspark')}, Python {python})")
    return 0


def _report(error: Exception) -> int:
    """Print one message for `error` to stderr; return its exit code."""
    from tailrace.connectors.registry import lacking_driver

    deliberate = cause(error) or lacking_driver(error)
    if deliberate is not None:
        print(f"tailrace: {deliberate.message.strip()}", file=sys.stderr)
        if deliberate.remedy:
            print(f"  {deliberate.remedy}", file=sys.stderr)
        return deliberate.exit_code
    first = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
    print(f"tailrace: {type(error).__name__}: {first}", file=sys.stderr)
    print("  This error was not expected; --debug shows the traceback.", file=sys.stderr)
    return TailraceError.exit_code


def _log_to_stderr(debug: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("tailrace: %(levelname)s: %(message)s"))
    logger = logging.getLogger("tailrace")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    if not debug:
        # Py4J logs a stack trace for each call to a JVM that has ended, and raises too. Some traces go to the root
        # logger. So the root logger gets a handler like Python's default one that leaves them out.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        root = logging.getLogger()
        root.handlers = [*(one for one in root.handlers if not isinstance(one, _Libraries)), _Libraries()]


class _Libraries(logging.StreamHandler[TextIO]):
    """Shows warnings of libraries on stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] != "tailrace" and f"{os.sep}py4j{os.sep}" not in record.pathname


if __name__ == "__main__":
    sys.exit(main())
