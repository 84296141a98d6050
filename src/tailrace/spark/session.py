"""The Spark session that pipelines run in: local, quiet, with the settings that keep a small batch short. Driver."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace import temporary
from tailrace.jar import Jar
from tailrace.spark import archive, fork_server
from tailrace.spark.cluster import LOCAL, demand, is_local
from tailrace.spark.gateway import Launch, spark_home
from tailrace.spark.jars import files_of
from tailrace.spark.java import cache_directory, find_java, java_home, names_collector
from tailrace.spark.python import worker_python
from tailrace.spark.quiet import LOADED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # A worker that starts anew for each task costs more than a small batch does.
    "spark.python.worker.reuse": "true",
    "spark.sql.streaming.pollingDelay": "5ms",
    # A second copy of a slow task would send its records a second time, and out of order.
    "spark.speculation": "false",
    "spark.redaction.regex": "(?i)secret|pass(word|phrase|wd)|pwd|token|(access|api|account|private|keystore)[._-]?key"
    "|jaas|credential|user[.]?info|connection[.]?string",
}
"""What every session gets; `config` may override each of them."""

LOCAL_SETTINGS: Mapping[str, str] = {
    # A task takes and gives back some 20 MB for each chunk or segment. glibc would return them to the system at once,
    # and the next task would wait for their pages again: a sixth of a task's time. In a local session this reaches
    # Python's processes only; on a cluster it would reach the JVM of each executor too.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "spark.executorEnv.MALLOC_ARENA_MAX": "1",
    # Both spare a forked process and a checksum file for each file of the checkpoint: some 250 ms a batch. The
    # checkpoint of a cluster is where all hosts reach it: Spark chooses how that is written.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""What a session gets besides whose tasks run in this process's JVM; `config` may override each of them."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ENABLED, _SOCKETS = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
# What PySpark adds to the directory, `/.UUID.sock`, in bytes.
_SOCKET_NAME = 43

# Arrow's buffers check the bounds of each access, a good part of the JVM's time for a row. What they hold here is
# written by pyarrow and read by Spark's generated code, which keeps to the rows that there are.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true"

# Spark's pages and Arrow's buffers are large beside the regions of a small heap's G1, Java's default: it marks the heap
# again and again. This one does so when the heap is full.
_COLLECTOR = "-XX:+UseParallelGC"

# A warning of PySpark at the start of every process; records do not pass through pandas.
_PANDAS = "PySpark does not yet fully support pandas"

_QUIET = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
# what tailrace has Spark raise is told by tailrace itself, or mended by it
appender.stderr.layout.pattern = \
%replace{{%d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex}}{{(?s).*.USER_RAISED_EXCEPTION. tailrace: .*}}{{}}
appender.stderr.layout.alwaysWriteExceptions = false
"""


def session(
    config: Mapping[str, str] | None = None,
    *,
    jars: Sequence[Jar] = (),
    app_name: str = "tailrace",
    master: str = LOCAL,
    memory: str = "2g",
    log_level: str = "error",
    keep: Sequence[int] = (),
    loaded: Sequence[str] = (),
    launched: Launch | None = None,
) -> SparkSession:
    """The running session of this process, or a new one with `config` over the settings of this module.

    `jars` are those that the sink needs. `memory` is the heap of the JVM, which in local mode serves driver
    and tasks. `log_level` is that of Spark's own log on stderr: off, error, warn, info. `keep` are open files that
    the JVM inherits, `loaded` the modules that its Python processes need, as those of `Descriptor.forked`. A JVM that
    runs already keeps its Java, memory, log, files, jars and modules; so does one that is `launched`, which has all of
    `config`. On a cluster, `master` names it, and executors start the Python that
    `spark.pyspark.python` or PYSPARK_PYTHON names, else the path of this one.
    Raises PrerequisiteError without Java 17, or when the jars are missing and cannot be fetched; ConnectionFailed where
    a stand-alone master does not answer; JvmLost where the JVM ends at its start.
    """
    given = dict(config or {})
    if launched is None:
        launched = launch(
            given,
            jars=jars,
            app_name=app_name,
            master=master,
            memory=memory,
            log_level=log_level,
            keep=keep,
            loaded=loaded,
        )
    if launched is None:
        settings = _settings(given, jars, app_name, master, memory, log_level)
        _name_python(is_local(master), given.get("spark.pyspark.python"))
    else:
        settings = launched.settings
        launched.connect()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    warnings.filterwarnings("ignore", _PANDAS, FutureWarning)
    running = builder.getOrCreate()
    _quieten(running)
    return running


def launch(
    config: Mapping[str, str] | None = None,
    *,
    jars: Sequence[Jar] = (),
    app_name: str = "tailrace",
    master: str = LOCAL,
    memory: str = "2g",
    log_level: str = "error",
    keep: Sequence[int] = (),
    loaded: Sequence[str] = (),
) -> Launch | None:
    """Start the JVM of a session without waiting for it; None where one runs already, or spark-submit has started it.

    PySpark is not imported, which takes long. `loaded` are the modules that planners and tasks of a local session need:
    its fork server imports them once, or, where there is none, the process that makes the workers. The other
    parameters and the errors are those of `session`.
    """
    if _SUBMITTED in os.environ or _is_running():
        return None
    given = dict(config or {})
    settings = _settings(given, jars, app_name, master, memory, log_level)
    demand(master)
    java = find_java()
    flags = archive.flags(archive.usable(java[0], spark_home()))
    # Java takes the last of two that say different things.
    settings[_JAVA_OPTIONS] = f"{flags} {settings[_JAVA_OPTIONS]}".lstrip()
    _name_python(is_local(master), given.get("spark.pyspark.python"))
    with _environment(is_local(master), java_home(java), loaded):
        folder = temporary.folder("tailrace-forks-") if is_local(master) else ""
        if not (folder and fork_server.is_possible(folder)):
            return Launch(settings, keep)
        with fork_server.serving(folder, settings, loaded) as held:
            return Launch(settings, [*keep, held])


def _settings(
    given: Mapping[str, str], jars: Sequence[Jar], app_name: str, master: str, memory: str, log_level: str
) -> dict[str, str]:
    """Spark's settings: what is `given` over those of this module."""
    local = is_local(master)
    submitted = _SUBMITTED in os.environ
    settings = {"spark.app.name": app_name, **SETTINGS, "spark.driver.memory": memory}
    if local and not submitted:
        settings |= LOCAL_SETTINGS
    if not submitted:
        settings["spark.master"] = master
    if local and not submitted and not _is_running():
        settings |= _sockets(given.get(_SOCKETS))
    if local and not submitted:
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if jars:
        settings["spark.jars"] = ",".join(map(str, files_of(jars)))
    settings |= given
    if not submitted:
        own = given.get(_JAVA_OPTIONS, "")
        java = f"-Duser.timezone=UTC -Dlog4j2.configurationFile={_log_settings(log_level)} {_UNCHECKED}"
        if local and not names_collector(own):
            java = f"{java} {_COLLECTOR}"
        settings[_JAVA_OPTIONS] = f"{java} {own}".rstrip()
    return settings


def _quieten(running: SparkSession) -> None:
    """Keep PySpark's server for accumulators from logging at length that the JVM has closed its connection, as it does
    when it is killed: whoever waits for the query learns of it."""
    server = getattr(running.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    report = type(server).handle_error

    def reported(request: object, client: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | EOFError):
            report(server, request, client)

    server.handle_error = reported


def _name_python(local: bool, python: str | None) -> None:
    """Say which Python the workers run with. It stays so, since PySpark reads it again for every function it ships."""
    if python and not local:
        os.environ["PYSPARK_PYTHON"] = python
    elif local or "PYSPARK_PYTHON" not in os.environ:
        # Without it workers start whatever `python3` is on the path, which has none of the packages.
        os.environ["PYSPARK_PYTHON"] = worker_python() if local else sys.executable


@contextmanager
def _environment(local: bool, home: Path, loaded: Sequence[str]) -> Iterator[None]:
    """What the JVM inherits: Java, what its workers need, and the loopback address."""
    given = os.environ.get("PYTHONWARNINGS")
    silent = f"ignore:{_PANDAS}:FutureWarning"
    wanted = {"JAVA_HOME": str(home), "PYTHONWARNINGS": f"{given},{silent}" if given else silent}
    if local:
        wanted |= {"SPARK_LOCAL_IP": "127.0.0.1", LOADED: ",".join(loaded)}
    unwanted: tuple[str, ...] = ()
    if "PYTHONDONTWRITEBYTECODE" in os.environ:
        # Each planner and worker would compile every module anew, a second or two each: they get a cache of their own.
        wanted["PYTHONPYCACHEPREFIX"] = str(cache_directory() / "pycache")
        unwanted = ("PYTHONDONTWRITEBYTECODE",)
    before = {name: os.environ.get(name) for name in (*wanted, *unwanted)}
    os.environ.update(wanted)
    for name in unwanted:
        del os.environ[name]
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _sockets(given: str | None = None) -> dict[str, str]:
    """A local session reaches its workers over Unix sockets: over TCP the small writes of both sides wait 40 ms for
    each other's acknowledgement, in every task.

    They are in the directory `given`, or in one of this process's own, which its end removes, or, where it is
    killed, the next one's start: Spark would put them into
    the system's directory for temporary files, and leave some there. Where the path of a socket would be too long for
    the system, workers are reached over TCP; executors of a cluster are, since their directories are not known here.
    """
    folder = given
    if folder is None:
        folder = temporary.folder("tailrace-sockets-")
    if len(os.fsencode(folder)) + _SOCKET_NAME > fork_server.SOCKET_PATH:
        return {_ENABLED: "false"}
    return {_ENABLED: "true", _SOCKETS: folder}


def _is_running() -> bool:
    """Whether this process has a JVM; one that has not imported PySpark has none."""
    context = sys.modules.get("pyspark.core.context")
    return context is not None and context.SparkContext._gateway is not None


def _log_settings(level: str) -> Path:
    """A file that makes Spark's logger write to stderr from `level` on, without its greeting."""
    path = cache_directory() / f"log4j2-{level}.properties"
    content = _QUIET.format(level=level)
    if not path.exists() or path.read_text() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(content)
        fresh.replace(path)
    return path
