"""The Spark session of a pipeline: by default local, quiet, and set up for short batches. Driver."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.config.jar import Jar
from tailrace.errors import PrerequisiteError
from tailrace.process import temporary
from tailrace.spark import capabilities
from tailrace.spark.cluster import LOCAL, demand, is_local
from tailrace.spark.startup import archive, fork_server
from tailrace.spark.startup.gateway import Launch
from tailrace.spark.startup.jars import files_of
from tailrace.spark.startup.java import cache_directory, find_java, java_home, names_collector
from tailrace.spark.startup.python import worker_python
from tailrace.spark.startup.worker_main import LOADED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Starting a worker for each task costs more than a small batch.
    "spark.python.worker.reuse": "true",
    "spark.sql.streaming.pollingDelay": "5ms",
    # A second copy of a slow task would send its records a second time, and out of order.
    "spark.speculation": "false",
    "spark.redaction.regex": "(?i)secret|pass(word|phrase|wd)|pwd|token|(access|api|account|private|keystore)[._-]?key"
    "|jaas|credential|user[.]?info|connection[.]?string",
}
"""Settings of every session; `config` may override each of them."""

LOCAL_SETTINGS: Mapping[str, str] = {
    # A task allocates and frees some 20 MB for each chunk or segment. glibc would return them to the system at once,
    # and the next task would fault their pages in again: a sixth of a task's time. In a local session these variables
    # reach only Python processes; on a cluster they would also reach the JVM of each executor.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "spark.executorEnv.MALLOC_ARENA_MAX": "1",
    # Both save a forked process and a checksum file for each file of the checkpoint: some 250 ms a batch. On a cluster
    # the checkpoint is on a shared file system, and Spark chooses how to write it.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""Further settings of a local session; `config` may override each of them."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ENABLED, _SOCKETS = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
# Length of `/.UUID.sock`, which PySpark appends to the directory, in bytes.
_SOCKET_NAME = 43

# Arrow's buffers check the bounds of each access, a good part of the JVM's time for a row. Here pyarrow writes the
# buffers, and Spark's generated code reads only existing rows.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true"

# In a small heap, Spark's pages and Arrow's buffers are large in comparison to the regions of G1, Java's default. G1
# would mark the heap again and again. The parallel collector works only when the heap is full.
_COLLECTOR = "-XX:+UseParallelGC"

# PySpark prints this warning at the start of every process; records do not pass through pandas.
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
# tailrace itself reports or handles the errors that it raises inside Spark
# (without ^ the search would begin at each character: 20 s for the plan of a failed query)
appender.stderr.layout.pattern = \
%replace{{%d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex}}{{(?s)^.*.USER_RAISED_EXCEPTION. tailrace: .*}}{{}}
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
    """Return this process's running session, or a new one with `config` over the settings of this module.

    `jars` are the jars that the sink needs. `memory` is the heap of the JVM, which in local mode serves driver and
    tasks. `log_level` is the level of Spark's own log on stderr: off, error, warn or info. `keep` are file descriptors
    that the JVM inherits. `loaded` are the modules that its Python processes import, such as `Descriptor.forked`.
    `launched` is a JVM from `launch`, started with all of `config`. This JVM, and any JVM that runs already, keeps its
    Java, memory, log, files, jars and modules. Executors of a cluster start the Python that `spark.pyspark.python` or
    PYSPARK_PYTHON names, else the Python at the path of this process's Python.

    A JVM or a session that the platform provides also keeps its jars and Java's options. A client of Spark Connect gets
    its session with `config` alone.

    Raises PrerequisiteError without Java 17, if missing jars cannot be fetched, or if this Spark cannot run the
    sources; ConnectionFailed if a stand-alone master does not answer; JvmLost if the JVM ends at its start.
    """
    given = dict(config or {})
    capabilities.demand_sources()
    if capabilities.is_client():
        return _client(given, jars)
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
    """Start the JVM of a session without waiting for it; None if one runs already, or spark-submit has started it.

    Does not import PySpark, which takes long. `loaded` are the modules that planners and tasks of a local session need.
    The fork server imports them once; without it, the process that makes the workers does. The other parameters and the
    errors are as in `session`.
    """
    if capabilities.is_brought() or capabilities.has_jvm():
        return None
    capabilities.demand_jvm()
    given = dict(config or {})
    settings = _settings(given, jars, app_name, master, memory, log_level)
    demand(master)
    java = find_java()
    flags = archive.flags(archive.usable(java[0], capabilities.spark_home()))
    # Java uses the last of two contradicting options.
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
    """Return Spark's settings: those `given` over those of this module."""
    local = is_local(master)
    settings = {"spark.app.name": app_name, **SETTINGS}
    if capabilities.is_brought():
        return {**settings, **given}
    settings |= {"spark.driver.memory": memory, "spark.master": master}
    if local:
        settings |= LOCAL_SETTINGS
        if not capabilities.has_jvm():
            settings |= _sockets(given.get(_SOCKETS))
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if jars:
        settings["spark.jars"] = ",".join(map(str, files_of(jars)))
    settings |= given
    own = given.get(_JAVA_OPTIONS, "")
    java = f"-Duser.timezone=UTC -Dlog4j2.configurationFile={_log_settings(log_level)} {_UNCHECKED}"
    if local and not names_collector(own):
        java = f"{java} {_COLLECTOR}"
    settings[_JAVA_OPTIONS] = f"{java} {own}".rstrip()
    return settings


def _client(given: Mapping[str, str], jars: Sequence[Jar]) -> SparkSession:
    """Return the session of a client of Spark Connect. Raises PrerequisiteError if its server would need jars."""
    if jars:
        raise PrerequisiteError(
            f"A client of Spark Connect cannot give its server {', '.join(jar.file_name for jar in jars)}.",
            "Unset SPARK_REMOTE for a Spark of this process's own.",
        )
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in given.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _quieten(running: SparkSession) -> None:
    """Prevent a stack trace of PySpark's accumulator server when the JVM closes its connection, for example when it is
    killed. Waiting for the query raises that error anyway."""
    server = getattr(running.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    report = type(server).handle_error

    def reported(request: object, client: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | EOFError):
            report(server, request, client)

    server.handle_error = reported


def _name_python(local: bool, python: str | None) -> None:
    """Set PYSPARK_PYTHON to the workers' Python, for good: PySpark reads it again for every function that it ships."""
    if python and not local:
        os.environ["PYSPARK_PYTHON"] = python
    elif local or "PYSPARK_PYTHON" not in os.environ:
        # Otherwise workers start the first `python3` on the path, which may lack the packages.
        os.environ["PYSPARK_PYTHON"] = worker_python() if local else sys.executable


@contextmanager
def _environment(local: bool, home: Path, loaded: Sequence[str]) -> Iterator[None]:
    """Set the environment that the JVM inherits: Java, its workers' variables and, if local, the loopback address."""
    given = os.environ.get("PYTHONWARNINGS")
    silent = f"ignore:{_PANDAS}:FutureWarning"
    wanted = {"JAVA_HOME": str(home), "PYTHONWARNINGS": f"{given},{silent}" if given else silent}
    if local:
        wanted |= {"SPARK_LOCAL_IP": "127.0.0.1", LOADED: ",".join(loaded)}
    unwanted: tuple[str, ...] = ()
    if "PYTHONDONTWRITEBYTECODE" in os.environ:
        # Without bytecode, each planner and worker would spend a second or two on compiling. They get their own cache.
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
    """Return settings for Unix sockets between the JVM and its workers, in the directory `given` or a temporary one.

    Over TCP the small writes of both sides wait 40 ms for each other's acknowledgement, in every task. The temporary
    directory is removed when this process ends or, if it is killed, when the next one starts. Spark's default would
    leave sockets in the system's temporary directory. Workers use TCP if a socket's path would be too long. Executors
    of a cluster, whose directories are not known here, also use TCP.
    """
    folder = given
    if folder is None:
        folder = temporary.folder("tailrace-sockets-")
    if len(os.fsencode(folder)) + _SOCKET_NAME > fork_server.SOCKET_PATH:
        return {_ENABLED: "false"}
    return {_ENABLED: "true", _SOCKETS: folder}


def _log_settings(level: str) -> Path:
    """Write a log4j configuration that logs to stderr from `level` on, without Spark's greeting; return its path."""
    path = cache_directory() / f"log4j2-{level}.properties"
    content = _QUIET.format(level=level)
    if not path.exists() or path.read_text() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(content)
        fresh.replace(path)
    return path
