"""Record golden cases with a real Debezium: `python tools/record/record.py CASE_DIR … [--version 3.6.1]`.

README.md beside this file says what it needs. Ends with 1 if a case could not be recorded.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Record the cases that the command line names; return the exit code."""
    # Python puts the script's own directory there; the repository's packages must be found, too.
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    import psycopg
    import pymysql
    import pytds

    from tailrace.demo.embedded import Server
    from tests.fix_postgres import describe, system_binaries
    from tests.golden import mysql_runner, tds_runner
    from tests.golden.case import load
    from tests.golden.runner import SERVER
    from tests.servers.mysql import MySqlServer
    from tools.record.engine import Failed, full
    from tools.record.recording import explain, record
    from tools.record.recording_mysql import record as record_mysql
    from tools.record.recording_sqlserver import record as record_sqlserver

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", type=Path, metavar="CASE_DIR")
    parser.add_argument("--version", default="3.6.1", help="Debezium's version (default: 3.6.1)")
    parser.add_argument("--limit", type=float, default=180, help="seconds that one case may take (default: 180)")
    parser.add_argument("--binaries", type=Path, help="PostgreSQL's bin directory (default: the system's newest)")
    parser.add_argument("--keep", type=Path, help="a directory that keeps Debezium's log and offsets, by case")
    parser.add_argument("--counters", action="store_true", help="record only what Debezium's beans count (PostgreSQL)")
    given = parser.parse_args()
    failures = 0
    with ExitStack() as stack:
        postgres = sqlserver = None
        mysql: dict[str, MySqlServer] = {}
        for path in given.cases:
            started = time.monotonic()
            case = load(path)
            with tempfile.TemporaryDirectory(prefix="tailrace-record-") as folder:
                try:
                    if case.database == "sqlserver":
                        sqlserver = sqlserver or stack.enter_context(tds_runner.server())
                        count = record_sqlserver(case, sqlserver, full(given.version), given.limit, Path(folder))
                    elif case.database in mysql_runner.VERSIONS:
                        if case.database not in mysql:
                            mysql[case.database] = stack.enter_context(mysql_runner.server(case.database))
                        count = record_mysql(case, mysql[case.database], full(given.version), given.limit, Path(folder))
                    else:
                        if postgres is None:
                            running = stack.enter_context(Server(given.binaries or system_binaries(), SERVER))
                            postgres = describe(running.dsn())
                        count = record(
                            case, postgres, full(given.version), given.limit, Path(folder), only_counters=given.counters
                        )
                    print(f"{case.name}: {count} records ({time.monotonic() - started:.1f} s)", flush=True)
                except (Failed, psycopg.Error, pymysql.Error, pytds.Error) as error:
                    failures += 1
                    print(f"{case.name}: not recorded: {explain(error)}", flush=True)
                if given.keep:
                    shutil.copytree(folder, given.keep / case.name, dirs_exist_ok=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
