"""The Python that runs planners and workers of a local session. Driver."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import sys
from pathlib import Path

from tailrace.spark.startup.fork_server import SERVER
from tailrace.spark.startup.java import cache_directory

_SCRIPT = """\
#!/bin/sh
# Spark puts its zipped copy of PySpark first on the path, and Python compiles that anew in every process: 0.4 s of
# each planner's start. The installed package is the same and keeps its bytecode.
path=
IFS=:
for entry in $PYTHONPATH; do
  case "$entry" in */pyspark/python/lib/*.zip) ;; *) path="${path:+$path:}$entry" ;; esac
done
unset IFS
if [ -n "$path" ]; then PYTHONPATH="$path"; export PYTHONPATH; else unset PYTHONPATH; fi
if [ "$1" = -m ]; then
  if [ -n "$%(server)s" ]; then exec %(python)s -I -S %(forked)s "$%(server)s" %(quiet)s "$@"; fi
  exec %(python)s %(quiet)s "$@"
fi
exec %(python)s "$@"
"""
_QUIET, _FORKED = (Path(__file__).with_name(name).resolve() for name in ("worker_main.py", "fork_client.py"))


def worker_python() -> str:
    """Return the path of a script that runs this process's Python for Spark.

    The script removes PySpark's zipped copy from PYTHONPATH, gets processes from the session's fork server, and runs
    modules by `worker_main.py`. Returns this Python's path if PySpark is no installed package, or if there is no shell.
    """
    package = importlib.util.find_spec("pyspark")
    installed = package is not None and package.origin is not None and "site-packages" in Path(package.origin).parts
    if not installed or os.name != "posix":
        return sys.executable
    files = {"quiet": shlex.quote(str(_QUIET)), "forked": shlex.quote(str(_FORKED))}
    script = _SCRIPT % {"python": shlex.quote(sys.executable), "server": SERVER, **files}
    target = cache_directory() / f"python-{hashlib.sha256(script.encode()).hexdigest()[:12]}" / "python"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another process may be starting it.
        fresh = target.with_name(f"python.{os.getpid()}")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.replace(target)
    return str(target)
