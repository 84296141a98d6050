"""A client that inserts one row at a time, at a steady rate, and prints when each commit had returned.

`python -m bench.writer DSN FIRST ROWS RATE`: a process of its own, so that the driver's Python cannot delay its
clock. Prints `id ns` lines, ns of the Unix epoch, when all rows are in.
"""

from __future__ import annotations

import sys
import time

import psycopg

from bench.tables import plain


def main(dsn: str, first: int, rows: int, rate: float) -> None:
    """Insert the rows `first` to `first + rows - 1`, `rate` of them each second; late ones follow at once."""
    table = plain("bench")
    row = table.select.replace("%", "%%")
    statement = f"insert into {table.name} {row} from (values (%s::bigint)) as one(i)".encode()
    committed = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        started = time.monotonic()
        for count in range(rows):
            time.sleep(max(0.0, started + count / rate - time.monotonic()))
            connection.execute(statement, [first + count])
            committed.append((first + count, time.time_ns()))
    print("\n".join(f"{number} {moment}" for number, moment in committed))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
