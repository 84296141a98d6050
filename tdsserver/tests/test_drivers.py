"""Several clients read the same values from the TDS test server: python-tds, FreeTDS and Microsoft's ODBC driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tdsserver.process import TestDatabase, rows_of

Connect = Callable[[TestDatabase], Any]


def with_pytds(database: TestDatabase) -> Any:
    return database.connect()


def with_pymssql(database: TestDatabase) -> Any:
    import pymssql

    server = database.server
    return pymssql.connect(
        server=server.host,
        port=str(server.port),
        user=server.user,
        password=server.password,
        database=database.name,
        autocommit=True,
        tds_version="7.4",
    )


def with_mssql_python(database: TestDatabase) -> Any:
    import mssql_python

    server = database.server
    return mssql_python.connect(
        f"Server={server.host},{server.port};Database={database.name};UID={server.user};PWD={server.password};Encrypt=no",
        autocommit=True,
    )


DRIVERS = [with_pytds, with_pymssql, with_mssql_python]


@pytest.mark.parametrize("connect", DRIVERS)
def test_the_changes_of_a_table_are_read_alike(connect: Connect, sqlserver_database: TestDatabase) -> None:
    database = sqlserver_database
    database.execute("CREATE TABLE customers (id int NOT NULL PRIMARY KEY, name nvarchar(50), amount decimal(10, 2))")
    database.enable("customers")
    database.execute(
        "INSERT INTO customers VALUES (1, N'Ane ž日', 1.50), (2, NULL, NULL)",
        "UPDATE customers SET name = N'b' WHERE id = 1",
        "DELETE FROM customers WHERE id = 2",
    )
    newest = database.capture()
    connection = connect(database)
    try:
        found = rows_of(
            connection.cursor(),
            "SELECT [__$operation], id, name, amount FROM cdc.fn_cdc_get_all_changes_dbo_customers("
            "sys.fn_cdc_get_min_lsn('dbo_customers'), sys.fn_cdc_get_max_lsn(), N'all update old')"
            " ORDER BY [__$start_lsn], [__$seqval], [__$operation]",
        )
        lsn = rows_of(connection.cursor(), "SELECT sys.fn_cdc_get_max_lsn()")
    finally:
        connection.close()
    assert [(op, key, name, None if amount is None else f"{amount:.2f}") for op, key, name, amount in found] == [
        (2, 1, "Ane ž日", "1.50"),
        (2, 2, None, None),
        (3, 1, "Ane ž日", "1.50"),
        (4, 1, "b", "1.50"),
        (1, 2, None, None),
    ]
    assert bytes(lsn[0][0]) == newest
