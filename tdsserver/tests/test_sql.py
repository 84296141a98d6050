"""The test server is strict where SQL Server is: its errors by number, its rules of names, types and transactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytds
import pytest

from tdsserver.process import TestDatabase, TestServer, certificate
from tdsserver.tests.test_capture import error


@pytest.mark.parametrize(
    ("number", "statement"),
    [
        (102, "SELECT 1 +"),
        (102, "SELECT 1 FROM WHERE"),
        (105, "SELECT 'open"),
        (137, "SELECT @unknown"),
        (195, "SELECT unknown_function(1)"),
        (207, "SELECT unknown FROM t"),
        (208, "SELECT * FROM unknown"),
        (208, "SELECT * FROM unknown.dbo.t"),
        (209, "SELECT id FROM t AS a CROSS JOIN t AS b"),
        (4104, "SELECT x.id FROM t"),
        (4145, "SELECT id FROM t WHERE 1"),
        (1033, "SELECT * FROM (SELECT id FROM t ORDER BY id) AS q"),
        (205, "SELECT 1 UNION SELECT 1, 2"),
        (245, "SELECT id FROM t WHERE id = 'x'"),
        (257, "SELECT id FROM t WHERE v = N'x'"),
        (257, "INSERT INTO t (id, v) VALUES (9, 'x')"),
        (206, "SELECT CAST(CAST('2020-01-01' AS date) AS time)"),
        (241, "SELECT CAST('x' AS datetime)"),
        (242, "SELECT CAST('1600-01-01' AS datetime)"),
        (8115, "SELECT CAST(300 AS tinyint)"),
        (8134, "SELECT 1 / 0"),
        (515, "INSERT INTO t (id, a) VALUES (NULL, 1)"),
        (544, "INSERT INTO i (n, v) VALUES (1, 1)"),
        (2627, "INSERT INTO t (id) VALUES (1)"),
        (2628, "INSERT INTO t (id, s) VALUES (9, 'too long')"),
        (2714, "CREATE TABLE t (id int)"),
        (2812, "EXEC unknown_procedure"),
        (3701, "DROP TABLE unknown"),
        (3902, "COMMIT"),
        (3903, "ROLLBACK"),
        (109, "INSERT INTO t (id, a) VALUES (1)"),
        (911, "USE unknown"),
        (243, "SELECT CAST(1 AS unknown)"),
    ],
)
def test_errors_have_their_numbers(number: int, statement: str, sqlserver_database: TestDatabase) -> None:
    # "Database engine events and errors".
    sqlserver_database.execute(
        "CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int, v varbinary(10), s varchar(3))",
        "CREATE TABLE i (n int IDENTITY, v int)",
        "INSERT INTO t (id) VALUES (1)",
    )
    assert error(lambda: sqlserver_database.query(statement)) == number


def refusal(server: TestServer, database: str, user: str, password: str) -> str:
    """Return the error of a login by Microsoft's driver: python-tds would try again until its time is up."""
    import mssql_python

    with pytest.raises(mssql_python.Error) as caught:
        mssql_python.connect(
            f"Server={server.host},{server.port};Database={database};UID={user};PWD={password};Encrypt=no;"
            # a database that cannot be opened may be about to come up: the driver would look again after 10 s
            "ConnectRetryCount=0"
        )
    return str(caught.value)


def test_a_login_is_checked(sqlserver: TestServer) -> None:
    # 18456 login failed; 4060 cannot open the database.
    assert "Login failed for user 'sa'" in refusal(sqlserver, "master", "sa", "wrong")
    assert "Login failed for user 'nobody'" in refusal(sqlserver, "master", "nobody", "x")
    assert 'Cannot open database "unknown"' in refusal(sqlserver, "unknown", sqlserver.user, sqlserver.password)


def test_a_stranger_may_not_read(sqlserver: TestServer, sqlserver_database: TestDatabase) -> None:
    login = f"stranger_{sqlserver_database.name}"
    sqlserver_database.execute("CREATE TABLE t (id int)", f"CREATE LOGIN {login} WITH PASSWORD = 'x'")
    assert "Cannot open database" in refusal(sqlserver, sqlserver_database.name, login, "x")
    sqlserver_database.execute(f"CREATE USER {login} FOR LOGIN {login}")

    def read() -> None:
        with sqlserver.connect(sqlserver_database.name, user=login, password="x") as connection:
            connection.cursor().execute("SELECT * FROM t")

    assert error(read) == 229
    sqlserver_database.execute(f"ALTER ROLE db_datareader ADD MEMBER {login}")
    read()


def test_snapshot_isolation_has_to_be_allowed(sqlserver_database: TestDatabase) -> None:
    # "SET TRANSACTION ISOLATION LEVEL", SNAPSHOT: error 3952 unless ALLOW_SNAPSHOT_ISOLATION is ON.
    sqlserver_database.execute("CREATE TABLE t (id int)")
    read = "SET TRANSACTION ISOLATION LEVEL SNAPSHOT; SELECT * FROM t"
    assert error(lambda: sqlserver_database.query(read)) == 3952
    sqlserver_database.execute("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
    assert sqlserver_database.query(read) == []


def test_a_snapshot_stays_as_it_was(sqlserver_database: TestDatabase) -> None:
    database = sqlserver_database
    database.execute("CREATE TABLE t (id int)", "ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(0,)]
        database.execute("INSERT INTO t VALUES (1)")
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(0,)]
        connection.rollback()
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(1,)]


def test_text_is_compared_by_its_collation(make_sqlserver_database: Callable[..., TestDatabase]) -> None:
    # "Collation and Unicode support": CI and CS; trailing spaces do not count.
    query = "SELECT count(*) FROM t WHERE v = 'ABC '"
    for collation, wanted in ((None, 2), ("Latin1_General_CS_AS", 1)):
        database = make_sqlserver_database(collation)
        database.execute("CREATE TABLE t (v varchar(10))", "INSERT INTO t VALUES ('abc'), ('ABC')")
        assert database.query(query) == [(wanted,)]


QUERIES: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("SELECT TOP (2) id FROM t ORDER BY id DESC", [(3,), (2,)]),
    ("SELECT id FROM t ORDER BY id OFFSET 1 ROWS FETCH NEXT 1 ROWS ONLY", [(2,)]),
    ("SELECT a, count(*) FROM t GROUP BY a HAVING count(*) > 1", [(10, 2)]),
    ("SELECT t.id, u.n FROM t LEFT JOIN u ON u.id = t.id ORDER BY t.id", [(1, "one"), (2, None), (3, None)]),
    (
        "WITH q AS (SELECT id, ROW_NUMBER() OVER (PARTITION BY a ORDER BY id DESC) AS n FROM t)"
        " SELECT id FROM q WHERE n = 1"
        " ORDER BY id",
        [(2,), (3,)],
    ),
    ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)", [(1,)]),
    ("SELECT id FROM t WHERE id NOT IN (SELECT id FROM u) ORDER BY 1", [(2,), (3,)]),
    (
        "SELECT t.id, q.m FROM t CROSS APPLY (SELECT max(n) AS m FROM u WHERE u.id = t.id) AS q WHERE q.m > ''",
        [(1, "one")],
    ),
    ("SELECT CASE a WHEN 10 THEN 'ten' ELSE 'other' END FROM t WHERE id = 3", [("other",)]),
    ("SELECT 7 / 2, 7 % 4, -7 / 2, 1 + 2 * 3, 6 & 3, 6 | 1", [(3, 3, -3, 7, 2, 7)]),
    ("SELECT 'a' + N'b', 'a' + NULL, CONCAT('a', NULL, 1), LEN('ab '), DATALENGTH(N'ab')", [("ab", None, "a1", 2, 4)]),
    ("SELECT id FROM t WHERE a IS NULL OR a > 10", [(3,)]),
    ("DECLARE @n int = 2; SELECT @n = max(id) FROM t; SELECT @n", [(3,)]),
    ("IF EXISTS (SELECT 1 FROM t) SELECT 'yes' ELSE SELECT 'no'", [("yes",)]),
    ("SELECT value FROM GENERATE_SERIES(1, 3)", [(1,), (2,), (3,)]),
    ("SELECT DATEDIFF(day, '2020-01-01', '2020-03-01'), DATEPART(dayofyear, CAST('2020-03-01' AS date))", [(60, 61)]),
    ("SELECT n FROM u WHERE n LIKE 'O[m-o]_'", [("one",)]),
]


@pytest.mark.parametrize(("query", "wanted"), QUERIES, ids=[query for query, _ in QUERIES])
def test_queries_mean_what_they_mean_there(
    query: str, wanted: list[tuple[Any, ...]], sqlserver_database: TestDatabase
) -> None:
    sqlserver_database.execute(
        "CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int)",
        "CREATE TABLE u (id int, n varchar(10))",
        "INSERT INTO t VALUES (1, 10), (2, 10), (3, 20)",
        "INSERT INTO u VALUES (1, 'one'), (7, 'seven')",
    )
    assert sqlserver_database.query(query) == wanted


def test_the_catalog_describes_a_table(sqlserver_database: TestDatabase) -> None:
    # "sys.columns", "sys.types", "sys.default_constraints", "sys.indexes".
    sqlserver_database.execute(
        "CREATE TABLE t (id int IDENTITY NOT NULL CONSTRAINT k PRIMARY KEY, d decimal(10, 2) DEFAULT 1.5,"
        " n nvarchar(20) NOT NULL DEFAULT N'x', m varchar(max), c AS (id + 1))"
    )
    rows = sqlserver_database.query(
        "SELECT c.name, y.name, c.max_length, c.precision, c.scale, c.is_nullable, c.is_identity, c.is_computed,"
        " d.definition FROM sys.columns AS c JOIN sys.types AS y ON y.user_type_id = c.user_type_id"
        " LEFT JOIN sys.default_constraints AS d ON d.object_id = c.default_object_id"
        " WHERE c.object_id = OBJECT_ID('dbo.t') ORDER BY c.column_id"
    )
    assert rows == [
        ("id", "int", 4, 10, 0, False, True, False, None),
        ("d", "decimal", 9, 10, 2, True, False, False, "((1.5))"),
        ("n", "nvarchar", 40, 0, 0, False, False, False, "(N'x')"),
        ("m", "varchar", -1, 0, 0, True, False, False, None),
        ("c", "int", 4, 10, 0, True, False, True, None),
    ]
    key = "SELECT name, is_unique, is_primary_key, type_desc FROM sys.indexes WHERE object_id = OBJECT_ID('t')"
    assert sqlserver_database.query(key) == [("k", True, True, "CLUSTERED")]


def test_a_restart_ends_connections_and_keeps_data(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("CREATE TABLE t (id int)", "INSERT INTO t VALUES (1)")
    with sqlserver_database.connect() as connection, connection.cursor() as cursor:
        sqlserver_database.server.restart(0.1)
        with pytest.raises((pytds.Error, OSError)):
            cursor.execute("SELECT * FROM t")
    assert sqlserver_database.query("SELECT * FROM t") == [(1,)]


@pytest.mark.parametrize("encryption", ["optional", "required"])
def test_clients_are_served_under_tls(encryption: str, tmp_path: Path) -> None:
    import mssql_python

    with TestServer(encryption, certificate(tmp_path)) as server:
        login = f"Server={server.host},{server.port};UID={server.user};PWD={server.password}"
        connection = mssql_python.connect(f"{login};Encrypt=yes;TrustServerCertificate=yes")
        try:
            cursor = connection.cursor()
            assert cursor.execute("SELECT 1").fetchall()[0][0] == 1
        finally:
            connection.close()
        with pytest.raises(mssql_python.Error):
            mssql_python.connect(f"{login};Encrypt=yes;TrustServerCertificate=no")
        # Encrypt=no means the login alone is encrypted, where the server can.
        connection = mssql_python.connect(f"{login};Encrypt=no;TrustServerCertificate=yes")
        connection.close()


def test_a_server_without_tls_refuses_who_insists() -> None:
    import mssql_python

    with TestServer() as server:
        login = f"Server={server.host},{server.port};UID={server.user};PWD={server.password}"
        with pytest.raises(mssql_python.Error):
            mssql_python.connect(f"{login};Encrypt=yes;TrustServerCertificate=yes")
