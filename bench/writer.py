"""A client that inserts rows at a steady rate, and prints the time at which each commit returned.

`python -m bench.writer DSN FIRST ROWS RATE TOGETHER`, TOGETHER rows in each transaction: a process of its own, so that
the driver's Python cannot delay its clock. Prints `id ns` lines, ns of the Unix epoch, when all rows are in.
"""

from __future__ import annotations

import sys
import time

import psycopg

from bench.tables import plain


def main(dsn: str, first: int, rows: int, rate: float, together: int) -> None:
    """Insert `rows` rows from number `first` on, `rate` a second, `together` in a transaction; late ones at once."""
    table = plain("bench")
    row = table.select.replace("%", "%%")
    statement = f"insert into {table.name} {row} from generate_series(%s::bigint, %s::bigint) as i".encode()
    committed = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        started = time.monotonic()
        for count in range(0, rows, together):
            time.sleep(max(0.0, started + count / rate - time.monotonic()))
            written = range(first + count, first + min(count + together, rows))
            connection.execute(statement, [written[0], written[-1]])
            now = time.time_ns()
            committed += [(number, now) for number in written]
    print("\n".join(f"{number} {moment}" for number, moment in committed))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
