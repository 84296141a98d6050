"""The `tailrace` command: its arguments, and the commands that take only a few lines.

Exit codes are those of `tailrace.errors`, 0 and 130.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tailrace import __version__
from tailrace.command import jars, maintain, slots, tables
from tailrace.command.stop_request import INTERRUPTED
from tailrace.connectors import signalling
from tailrace.errors import (
    ConfigError,
    ConversionError,
    DecodeError,
    PositionLost,
    PrerequisiteError,
    SinkError,
    TailraceError,
)
from tailrace.monitoring.failures import cause
from tailrace.process import log_lines
from tailrace.verify import arguments as verifying

if TYPE_CHECKING:
    from tailrace.config.files import RunConfig

_FILES = "application.properties, connector .properties or connector JSON"
_FORM = re.compile(r"(?:debezium\.source\.)?log\.format", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^{}]+\}")

_WRONG = re.compile(r"unrecognized arguments: (--[\w-]+)|.*: invalid choice: '([^']*)'")
"""Matches argparse's sentences about a word that it does not know."""

_log = logging.getLogger("tailrace")

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
   11  a disk is full, or cannot be written or read
   12  the schema registry does not answer, or refuses
   13  verify: another failure
   14  another run holds the checkpoint
  130  a second Ctrl-C
"""


LASTING = frozenset(
    kind.exit_code for kind in (ConfigError, PrerequisiteError, PositionLost, DecodeError, ConversionError, SinkError)
)
"""Exit codes of failures that a restart repeats: somebody has to act first."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code. Prints deliberate errors as one message with the remedy to stderr."""
    try:
        arguments = _parser().parse_args(argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    arguments.is_process = argv is None
    level = logging.DEBUG if arguments.debug else arguments.level
    log_lines.show(level=level)
    try:
        jars.apply(arguments)
        return int(arguments.command(arguments) or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if arguments.debug:
            raise
        code = _report(error, as_line=arguments.level == logging.INFO)
        return int(arguments.failed) if code == TailraceError.exit_code else code


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest known word, and the option --help."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments of one command; for unknown arguments exit with an error that names them."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        wrong = _WRONG.match(message)
        nearest: list[str] = []
        if wrong:
            actions = list(_actions(self))
            if wrong[1]:
                words = [word for action in actions for word in action.option_strings if word.startswith("--")]
            else:
                words = [str(word) for action in actions for word in action.choices or ()]
            nearest = difflib.get_close_matches(wrong[1] or wrong[2], words, 1)
        near = f" The nearest is {nearest[0]}." if nearest else ""
        super().error(f"{message}.{near} {self.prog} --help shows what there is.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tailrace",
        description="Change data capture that delivers Debezium change events through Apache Spark.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = _Parser(add_help=False)
    shared.add_argument("--debug", action="store_true", help="show stack traces and the whole log")
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version")
    parser.set_defaults(debug=False, failed=TailraceError.exit_code, level=logging.WARNING)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run", parents=[shared], help="run the pipeline that a file describes",
        description="Run the pipeline of FILE until it is stopped. The next run goes on from the checkpoint.",
    )  # fmt: skip
    _add_file(run)
    run.add_argument("--once", action="store_true", help="deliver the changes up to now, then stop")
    _add_checkpoint(run)
    _add_spark(run)
    run.set_defaults(command=_run, level=logging.INFO)

    check = commands.add_parser(
        "check", parents=[shared], help="check a file and the server that it names",
        description="Check FILE and the server that it names. An error gives the exit code 2, 3 or 4.",
    )  # fmt: skip
    _add_file(check)
    _add_checkpoint(check)
    jars.add_option(check)
    check.add_argument("--offline", action="store_true", help="check the file without the server; exit code 0 or 2")
    check.set_defaults(command=_check)

    status = commands.add_parser(
        "status", parents=[shared], help="show what the pipeline of a file does, or why it ended",
        description="Show what the pipeline of FILE does, or why it ended. No server is asked.",
    )  # fmt: skip
    _add_file(status)
    _add_checkpoint(status)
    status.add_argument("--json", action="store_true", help="print the whole status as JSON")
    status.add_argument("--watch", action="store_true", help="show it again every two seconds, until Ctrl-C")
    status.set_defaults(command=_status)

    first = commands.add_parser(
        "init", parents=[shared], help="write a first file for a server",
        description="Look at a server, write a first FILE for it, and check it. Asks for what --set does not give.",
    )  # fmt: skip
    first.add_argument("file", metavar="FILE", nargs="?", default="application.properties", help="the file to write")
    first.add_argument("--connector", metavar="NAME", default="", help="name of the database's connector")
    first.add_argument("--sink", metavar="NAME", default="", help="file, kafka or tables")
    first.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="an option; repeatable")
    first.add_argument(
        "--password-env", metavar="NAME", default="", help="environment variable with the password: TAILRACE_PASSWORD"
    )
    first.set_defaults(command=_init, set_file=[], offline=False)

    remove = commands.add_parser(
        "remove", parents=[shared], help="take a pipeline away: slot, publication, signal table, checkpoint",
        description="Remove what the pipeline of FILE has on its server, and its checkpoint. Asks before each part.",
    )  # fmt: skip
    _add_file(remove)
    _add_checkpoint(remove)
    remove.add_argument("--yes", action="store_true", help="remove all that is the pipeline's own without asking")
    remove.set_defaults(command=_remove)

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

    live = commands.add_parser(
        "tables", parents=[shared], help="list, add, remove and read again the tables of a pipeline that runs",
        description="List the tables of FILE's pipeline, or let it add, remove or read some while it runs.",
    )  # fmt: skip
    tables.add_arguments(live)
    _add_file(live)
    _add_checkpoint(live)
    tables.add_names(live)
    live.set_defaults(command=_tables)

    kept = commands.add_parser(
        "slots", parents=[shared], help="show what keeps the database's log, or drop a slot",
        description="Show what each replication slot of FILE's server keeps, and why. --drop drops one.",
    )  # fmt: skip
    _add_file(kept)
    _add_checkpoint(kept)
    slots.add_arguments(kept)
    kept.set_defaults(command=_slots)

    compared = commands.add_parser(
        "verify", parents=[shared], help="compare the tables of the sink tables with the source",
        description="Compare the tables that FILE writes with the source, row by row. Exit code 1: they differ.",
    )  # fmt: skip
    _add_file(compared)
    _add_checkpoint(compared)
    verifying.add_arguments(compared)
    _add_spark(compared)
    compared.set_defaults(command=_verify, failed=verifying.FAILED)

    warm = commands.add_parser(
        "warm", parents=[shared], help="shorten later starts of Spark with a class archive",
        description="Write an archive of the classes of Spark's JVM, which later starts load.",
    )  # fmt: skip
    warm.set_defaults(command=_warm)

    jars.add_command(commands, shared)
    maintain.add_commands(commands, shared)

    demo = commands.add_parser(
        "demo", parents=[shared], help="show a pipeline at work on a private server",
        description="Start a private server, change rows and show their events. Nothing is left behind.",
    )  # fmt: skip
    demo.add_argument("--keep", metavar="DIR", help="write events, checkpoint and settings to this directory")
    demo.add_argument("--fast", action="store_true", help="run without pauses between the steps")
    demo.set_defaults(command=_demo)

    completion = commands.add_parser("completion", parents=[shared], help="print the completion script for a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="the shell")
    completion.set_defaults(command=_completion)

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


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", metavar="DIR", help="directory or URL of Spark's checkpoint")


def _add_spark(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--master", metavar="URL", help="Spark master, such as spark://HOST:7077; default: local[*]")
    add("--conf", metavar="NAME=VALUE", action="append", default=[], help="setting of Spark; repeatable")
    jars.add_option(parser)


def _read(arguments: argparse.Namespace, opening: str = "") -> RunConfig:
    """Return the pipeline that the file describes; log `opening` first. Raises ConfigError."""
    overrides = _overrides(arguments)
    _show_log(arguments, overrides)
    if opening:
        _log.info("%s", opening)
    from tailrace import sinks
    from tailrace.connectors import registry

    given = getattr(arguments, "checkpoint", None)
    return registry.read(arguments.file, overrides, checkpoint=given, sinks=sinks.names())


def _show_log(arguments: argparse.Namespace, overrides: Mapping[str, str]) -> None:
    """Write the log in the form that log.format names. The file's own faults are written in that form already."""
    from tailrace.config.files import read_entries

    try:
        entries = {**read_entries(arguments.file), **overrides}
    except ConfigError:
        # reading the file again raises it
        return
    form = next((text.strip().lower() for name, text in entries.items() if _FORM.fullmatch(name.strip())), "")
    if form in log_lines.FORMS:
        log_lines.show(form, logging.DEBUG if arguments.debug else arguments.level)


def _overrides(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the entries of --set and --set-file, which override the file's entries. Raises ConfigError."""
    from tailrace.config.option import holds_secret

    overrides: dict[str, str] = {}
    for entry in arguments.set:
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            # The argument is not shown: the name may be missing, and the rest a password.
            raise ConfigError("An argument of --set has no NAME=VALUE.", "Write --set debezium.sink.type=console.")
        if holds_secret(name) and value and not _REFERENCE.fullmatch(value.strip()):
            _log.warning(
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
    """Return a file's text as the value of an entry, with `${` escaped and without the last line end."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"The file of --set-file {name} cannot be read: {error.strerror}.", "Check its name and its rights."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"The file of --set-file {name} is not text in UTF-8.", "Save it in UTF-8.") from None
    return text.removesuffix("\n").removesuffix("\r").replace("${", "$${")


def _run(arguments: argparse.Namespace) -> int:
    run = _read(arguments, f"tailrace {__version__} starts what {arguments.file} describes.")
    master, conf = _spark(arguments)
    from tailrace.command import run as running

    given = {"once": arguments.once, "debug": arguments.debug, "is_last": arguments.is_process}
    return running.run(run, master=master, conf=conf, **given)


def _spark(arguments: argparse.Namespace) -> tuple[str | None, dict[str, str]]:
    """Return the master, None if not given, and Spark's settings. Raises ConfigError."""
    from tailrace.spark import cluster

    master = None if arguments.master is None else cluster.checked_master(arguments.master)
    if master is not None and "PYSPARK_GATEWAY_PORT" in os.environ:
        raise ConfigError("--master is given, but spark-submit has already named a master.", "Leave --master out.")
    return master, dict(cluster.settings(arguments.conf))


def _status(arguments: argparse.Namespace) -> int:
    from tailrace.command import status

    return status.show(_read(arguments), is_json=arguments.json, is_watched=arguments.watch)


def _check(arguments: argparse.Namespace) -> int:
    from tailrace import sinks
    from tailrace.command import migrate as migration
    from tailrace.command import reachable_parts
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
    counted, failed = migration.show(
        [
            *(*found, *advice.channels(run.source), *sink.advice()),
            *(*reachable_parts.findings(run, sink, {}), *jars.check(sink.jars)),
        ]
    )
    print(counted)
    return PrerequisiteError.exit_code if failed else 0


def _init(arguments: argparse.Namespace) -> int:
    from tailrace.command import init

    given = {name.removeprefix("debezium.source."): text for name, text in _overrides(arguments).items()}
    init.write(Path(arguments.file), given, arguments.connector, arguments.sink, arguments.password_env)
    arguments.set = []
    return _check(arguments)


def _remove(arguments: argparse.Namespace) -> int:
    from tailrace.command import remove

    return remove.run(_read(arguments), yes=arguments.yes)


def _migrate(arguments: argparse.Namespace) -> int:
    from tailrace.command import migrate as migration

    return migration.migrate(arguments.file, write=arguments.write)


def _signal(arguments: argparse.Namespace) -> int:
    signalled = signalling.from_arguments(arguments)
    print(signalling.send(_read(arguments).source, signalled, arguments.channel))
    return 0


def _tables(arguments: argparse.Namespace) -> int:
    return tables.run(_read(arguments), arguments)


def _slots(arguments: argparse.Namespace) -> int:
    return slots.run(_read(arguments), arguments)


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
    from tailrace.spark.capabilities import version

    python = ".".join(map(str, sys.version_info[:3]))
    print(f"tailrace {__version__} ({f'PySpark {version()}' if version() else 'no PySpark'}, Python {python})")
    return 0


class _PrintVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        parser.exit(_version(namespace))


def _completion(arguments: argparse.Namespace) -> int:
    import shtab

    parser = _parser()
    for action in _actions(parser):
        if action.dest in ("file", "place"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _report(error: Exception, *, as_line: bool) -> int:
    """Write one message for `error` to stderr, with `as_line` as a line of the log; return its exit code."""
    from tailrace.connectors.registry import lacking_driver

    deliberate = cause(error) or lacking_driver(error)
    if deliberate is not None:
        message, remedy, code = deliberate.message.strip(), deliberate.remedy, deliberate.exit_code
    else:
        first = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
        message, code = f"{type(error).__name__}: {first}", TailraceError.exit_code
        remedy = "This error was not expected; --debug shows the traceback."
    if as_line:
        _log.error("%s", message, extra={"remedy": remedy, "exit_code": code})
    else:
        print(f"tailrace: {message}", *([f"  {remedy}"] if remedy else []), sep="\n", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
