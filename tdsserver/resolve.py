"""Names in queries: tables, views, functions and session values, as one session sees them."""

from __future__ import annotations

from collections.abc import Callable

from tdsserver import values
from tdsserver.binder import Binder, rows_as_source
from tdsserver.bound import Bound, constant, convert, implicit
from tdsserver.errors import SqlError, unknown_object, unsupported
from tdsserver.log import NOTHING, CaptureInstance
from tdsserver.model import Database, Table
from tdsserver.parser import Parser
from tdsserver.scope import Resolved, Scope
from tdsserver.session import Session
from tdsserver.sqltype import (
    BIGINT,
    DATETIME,
    DATETIME2,
    DATETIMEOFFSET,
    INT,
    LSN,
    SERVER_COLLATION,
    SYSNAME,
    SqlType,
    nvarchar,
    varbinary,
)
from tdsserver.syntax import Expr
from tdsserver.views import CDC_JOBS, CDC_VIEWS, VIEWS

ALL_CHANGES = "fn_cdc_get_all_changes_"
NET_CHANGES = "fn_cdc_get_net_changes_"
VERSION = "15.0.4430.1"
BANNER = (
    f"Microsoft SQL Server 2019 (RTM-CU32) - {VERSION} (X64) \n\tTest server of this repository: not SQL Server"
    "\n\tDeveloper Edition (64-bit)"
)


class Resolver:
    """The catalog as a binder sees it, in the session's present database."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @property
    def collation(self) -> str:
        """The collation of the session's database."""
        return self.session.database.collation

    def same(self, left: str, right: str) -> bool:
        """Return True if two identifiers are equal."""
        return self.session.database.same(left, right)

    def database(self, name: tuple[str, ...]) -> Database:
        """Return the database of a name of three parts or fewer; raises SqlError 208."""
        if len(name) < 3 or not name[-3]:
            return self.session.database
        found = self.session.instance.database(name[-3])
        if found is None or not self.session.may_use(found):
            raise unknown_object(".".join(name))
        return found

    def find(self, name: tuple[str, ...]) -> tuple[Database, Table]:
        """Return a table by name; raises SqlError 208."""
        if len(name) > 3:
            raise SqlError(7202, f"Could not find server '{name[0]}' in sys.servers.", 11, 2)
        if name[-1].startswith("#"):
            table = self.session.temporary.get(name[-1].casefold())
            if table is None:
                raise unknown_object(name[-1])
            return table
        database = self.database(name)
        schema = name[-2] if len(name) > 1 and name[-2] else "dbo"
        found = database.find(schema, name[-1])
        if found is None:
            raise unknown_object(".".join(name))
        return database, found

    def table(self, name: tuple[str, ...]) -> Resolved:
        """Return a table or view as a source; raises SqlError 208, 229 or 1087."""
        if name[0].startswith("@"):
            variable = self.session.table_variables.get(name[0])
            if variable is None:
                raise SqlError(1087, f'Must declare the table variable "{name[0]}".', 15, 2)
            return rows_as_source([(c.name, c.type) for c in variable.columns], variable.rows)
        view = self._view(name)
        if view is not None:
            return view
        database, table = self.find(name)
        self.session.demand("SELECT", database, table.schema, table.name)
        fields = [(c.name, collated(c.type, database), c.storage) for c in table.columns]
        key = table.clustered
        clustered = [(table.by_id(c).storage, descending) for c, descending in key.columns] if key else []
        return Resolved(f"{database.storage}.{table.storage}", fields, clustered)

    def _view(self, name: tuple[str, ...]) -> Resolved | None:
        schema = name[-2].casefold() if len(name) > 1 else ""
        last = name[-1].casefold()
        if schema not in ("sys", "information_schema", "cdc") and not (schema in ("dbo", "") and last == "cdc_jobs"):
            return None
        database = self.database(name)
        if last == "cdc_jobs":
            if database.name != "msdb":
                return None
            view = CDC_JOBS
        elif schema == "cdc":
            if database.log.cdc is None or last not in CDC_VIEWS:
                return None
            self.session.demand("SELECT", database, "cdc", last)
            view = CDC_VIEWS[last]
        else:
            found = VIEWS.get((schema, last))
            if found is None:
                raise unknown_object(".".join(name))
            view = found
        with self.session.instance.lock:
            rows = list(view.rows(self.session.instance, database))
        columns = [(column, collated(kind, database)) for column, kind in view.columns]
        return rows_as_source(columns, rows)

    # Functions that return tables.

    def function(self, name: tuple[str, ...], args: list[Bound]) -> Resolved:
        """Return a function as a source; raises SqlError 208, 229, 313."""
        last = name[-1]
        if last.casefold() == "generate_series" and len(name) == 1:
            start, stop, *rest = (convert(arg, BIGINT) for arg in args)
            step = rest[0] if rest else "1"
            kind = args[0].kind
            sql = f"(SELECT CAST(x AS {kind.storage}) AS value FROM generate_series({start}, {stop}, {step}) AS g(x))"
            return Resolved(sql, [("value", kind, "value")])
        if last.casefold() == "string_split" and len(name) == 1:
            sql = f"(SELECT unnest(string_split({args[0].sql}, {args[1].sql})) AS value)"
            return Resolved(sql, [("value", nvarchar(), "value")])
        database = self.database(name)
        instance = self._changes_of(database, name, ALL_CHANGES)
        if instance is not None:
            return self._all_changes(database, instance, name, args)
        if self._changes_of(database, name, NET_CHANGES) is not None:
            raise unsupported("fn_cdc_get_net_changes")
        raise unknown_object(".".join(name))

    def _changes_of(self, database: Database, name: tuple[str, ...], prefix: str) -> CaptureInstance | None:
        cdc = database.log.cdc
        if cdc is None or len(name) < 2 or not database.same(name[-2], "cdc"):
            return None
        for one in cdc.instances:
            if database.same(prefix + one.name, name[-1]) and (prefix == ALL_CHANGES or one.net_changes):
                return one
        return None

    def _all_changes(
        self, database: Database, instance: CaptureInstance, name: tuple[str, ...], args: list[Bound]
    ) -> Resolved:
        refused = SqlError(
            313,
            f"An insufficient number of arguments were supplied for the procedure or function cdc.{ALL_CHANGES} ... .",
            16,
            3,
        )
        if not self.session.reads_changes(database, instance):
            raise SqlError(
                229,
                f"The SELECT permission was denied on the object '{ALL_CHANGES}{instance.name}', database"
                f" '{database.name}', schema 'cdc'.",
                14,
                5,
            )
        if len(args) < 3:
            raise SqlError(
                313,
                f"An insufficient number of arguments were supplied for the procedure or function"
                f" {'.'.join(name[-2:])}.",
                16,
                3,
            )
        if len(args) > 3:
            raise SqlError(
                8144, f"Procedure or function {'.'.join(name[-2:])} has too many arguments specified.", 16, 3
            )
        low, high = (self.session.evaluate(implicit(arg, LSN)) for arg in args[:2])
        option = self.session.evaluate(implicit(args[2], nvarchar(30)))
        oldest, newest = instance.start_lsn, self.session.instance_max_lsn(database)
        # "If the values … are not within the range for the capture instance, error 208 or 313 is returned."
        if not isinstance(low, bytes) or not isinstance(high, bytes) or newest is None:
            raise refused
        if not oldest <= low <= high <= newest or str(option).rstrip().casefold() not in ("all", "all update old"):
            raise refused
        table = database.tables[instance.table_id]
        wanted = [c for c in table.columns if c.name not in ("__$end_lsn", "__$command_id")]
        operations = "1, 2, 4" if str(option).rstrip().casefold() == "all" else "1, 2, 3, 4"
        by_name = {c.name: c.storage for c in table.columns[:5]} | {"command": table.columns[-1].storage}
        start, sequence, operation = (by_name[f"__${n}"] for n in ("start_lsn", "seqval", "operation"))
        cells = ", ".join(c.storage for c in wanted)
        sql = (
            f"(SELECT {cells} FROM {database.storage}.{table.storage} WHERE {start} BETWEEN"
            f" {values.literal_as(low, LSN)}"
            f" AND {values.literal_as(high, LSN)} AND {operation} IN ({operations})"
            f" ORDER BY {start}, {by_name['command']}, {sequence}, {operation})"
        )
        return Resolved(sql, [(c.name, collated(c.type, database), c.storage) for c in wanted])

    # Scalar functions.

    def variable(self, name: str) -> Bound:
        """Return the value of @x or @@X; raises SqlError 137."""
        session = self.session
        if name.startswith("@@"):
            found: dict[str, Callable[[], Bound]] = {
                "@@version": lambda: constant(BANNER, nvarchar()),
                "@@trancount": lambda: constant(session.depth, INT),
                "@@spid": lambda: constant(session.spid, SqlType("smallint")),
                "@@servername": lambda: constant(session.instance.name, nvarchar(128)),
                "@@servicename": lambda: constant("MSSQLSERVER", nvarchar(128)),
                "@@rowcount": lambda: constant(session.row_count, INT),
                "@@error": lambda: constant(session.last_error, INT),
                "@@identity": lambda: constant(session.identity, SqlType("numeric", precision=38)),
                "@@lock_timeout": lambda: constant(session.lock_timeout, INT),
                "@@language": lambda: constant("us_english", nvarchar(128)),
                "@@datefirst": lambda: constant(7, SqlType("tinyint")),
                "@@textsize": lambda: constant(2147483647, INT),
                "@@options": lambda: constant(5496, INT),
                "@@max_precision": lambda: constant(38, SqlType("tinyint")),
                "@@microsoftversion": lambda: constant(0x0F00114E, INT),
                "@@dbts": lambda: constant(session.database.row_version.to_bytes(8, "big"), varbinary(8)),
            }
            if name in found:
                return found[name]()
        elif name in session.variables:
            kind, value = session.variables[name]
            return constant(value, kind)
        raise SqlError(137, f'Must declare the scalar variable "{name}".', 15, 2)

    def scalar(self, name: tuple[str, ...], args: list[Bound]) -> Bound:
        """Return the value of a function; raises SqlError 195 (built in) or 4121 (of a schema)."""
        last = name[-1].casefold()
        if len(name) > 1 and name[-2].casefold() == "sys" and last in _CDC:
            database = self.database(name)
            return _CDC[last](self, database, args)
        if len(name) == 1 and last in _SESSION:
            return _SESSION[last](self, args)
        if len(name) == 1:
            raise SqlError(195, f"'{name[-1]}' is not a recognized built-in function name.", 15, 10)
        raise SqlError(
            4121,
            f'Cannot find either column "{name[0]}" or the user-defined function or aggregate'
            f' "{".".join(name)}", or the'
            " name is ambiguous.",
        )

    def text(self, bound: Bound) -> str | None:
        """Return the text of an argument, a constant or computed now."""
        value = bound.constant if bound.is_constant else self.session.evaluate(implicit(bound, nvarchar()))
        return None if value is None else str(value)


def binder_of(session: Session) -> Binder:
    """Return a binder for one statement in the session's present database."""
    return Binder(Resolver(session))


def evaluated(session: Session, node: Expr) -> tuple[SqlType, object]:
    """Return the type of an expression and its present value."""
    bound = binder_of(session).scalar(node, Scope())
    return bound.kind, bound.constant if bound.is_constant else session.evaluate(bound.sql)


def collated(kind: SqlType, database: Database) -> SqlType:
    """Return the type, with the database's collation if it has none of its own."""
    if kind.is_text and kind.collation is None:
        return SqlType(kind.name, kind.length, collation=database.collation)
    return kind


def parts_of(text: str) -> tuple[str, ...]:
    """Return the parts of a name in a text, such as OBJECT_ID's argument."""
    return Parser(text).name()


# Change data capture's functions.


def _max_lsn(resolver: Resolver, database: Database, args: list[Bound]) -> Bound:
    return constant(resolver.session.instance_max_lsn(database), LSN)


def _min_lsn(resolver: Resolver, database: Database, args: list[Bound]) -> Bound:
    wanted = resolver.text(args[0])
    cdc = database.log.cdc
    for one in cdc.instances if cdc else ():
        if wanted is not None and database.same(one.name, wanted) and resolver.session.reads_changes(database, one):
            return constant(one.start_lsn, LSN)
    return constant(NOTHING, LSN)


def _stepped(step: int) -> Callable[[Resolver, Database, list[Bound]], Bound]:
    def found(resolver: Resolver, database: Database, args: list[Bound]) -> Bound:
        return Bound(f"tds_lsn({implicit(args[0], LSN)}, {step})", LSN)

    return found


def _mapping(database: Database) -> Table:
    cdc = database.log.cdc
    if cdc is None:
        raise unknown_object("cdc.lsn_time_mapping")
    return database.tables[cdc.mapping_id]


def _lsn_to_time(resolver: Resolver, database: Database, args: list[Bound]) -> Bound:
    table = _mapping(database)
    start, _, end = (column.storage for column in table.columns[:3])
    source = f"{database.storage}.{table.storage}"
    return Bound(f"(SELECT min(m.{end}) FROM {source} AS m WHERE m.{start} = {implicit(args[0], LSN)})", DATETIME)


def _time_to_lsn(resolver: Resolver, database: Database, args: list[Bound]) -> Bound:
    table = _mapping(database)
    start, _, end = (column.storage for column in table.columns[:3])
    choices = {
        "largest less than": ("max", "<"),
        "largest less than or equal": ("max", "<="),
        "smallest greater than": ("min", ">"),
        "smallest greater than or equal": ("min", ">="),
    }
    wanted = str(resolver.text(args[0])).strip().casefold()
    if wanted not in choices:
        return constant(None, LSN)
    pick, operator = choices[wanted]
    moment = implicit(args[1], DATETIME)
    source = f"{database.storage}.{table.storage}"
    return Bound(f"(SELECT {pick}(m.{start}) FROM {source} AS m WHERE m.{end} {operator} {moment})", LSN)


def _column_ordinal(resolver: Resolver, database: Database, args: list[Bound]) -> Bound:
    instance, column = resolver.text(args[0]), resolver.text(args[1])
    cdc = database.log.cdc
    for one in cdc.instances if cdc else ():
        if instance is not None and database.same(one.name, instance):
            for captured in one.columns:
                if column is not None and database.same(captured.name, column):
                    return constant(captured.ordinal, INT)
    return constant(None, INT)


def _is_bit_set(resolver: Resolver, database: Database, args: list[Bound]) -> Bound:
    position, mask = convert(args[0], INT), args[1].sql
    bit = f"(('0x' || hex({mask}))::HUGEINT >> ({position} - 1)) & 1"
    return Bound(f"CAST({bit} AS UTINYINT)", SqlType("bit"))


_CDC: dict[str, Callable[[Resolver, Database, list[Bound]], Bound]] = {
    "fn_cdc_get_max_lsn": _max_lsn,
    "fn_cdc_get_min_lsn": _min_lsn,
    "fn_cdc_increment_lsn": _stepped(1),
    "fn_cdc_decrement_lsn": _stepped(-1),
    "fn_cdc_map_lsn_to_time": _lsn_to_time,
    "fn_cdc_map_time_to_lsn": _time_to_lsn,
    "fn_cdc_get_column_ordinal": _column_ordinal,
    "fn_cdc_is_bit_set": _is_bit_set,
}


# The session's and the catalog's functions.


def _now(kind: SqlType, utc: bool = False) -> Callable[[Resolver, list[Bound]], Bound]:
    def found(resolver: Resolver, args: list[Bound]) -> Bound:
        instance = resolver.session.instance
        local = instance.now()
        minutes = instance.zone_minutes
        if kind.name == "datetimeoffset":
            return constant(values.offset_units(local - minutes * 600_000_000, minutes), kind)
        moment = local - minutes * 600_000_000 if utc else local
        return constant(values.convert_temporal(moment, DATETIME2, kind), kind)

    return found


def _object_id(resolver: Resolver, args: list[Bound]) -> Bound:
    text = resolver.text(args[0])
    if text is None:
        return constant(None, INT)
    name = parts_of(text)
    if len(name) > 1 and name[-2].casefold() == "cdc" and name[-1].casefold() in CDC_VIEWS:
        return constant(-1 - sorted(CDC_VIEWS).index(name[-1].casefold()), INT)
    try:
        _, table = resolver.find(name)
    except SqlError:
        return constant(None, INT)
    return constant(table.object_id, INT)


def _named_object(what: str) -> Callable[[Resolver, list[Bound]], Bound]:
    def found(resolver: Resolver, args: list[Bound]) -> Bound:
        database = resolver.session.database
        if len(args) > 1:
            number = resolver.session.evaluate(convert(args[1], INT))
            chosen = [d for d in resolver.session.instance.databases.values() if d.id == number]
            if not chosen:
                return constant(None, SYSNAME)
            database = chosen[0]
        names = {table.object_id: getattr(table, what) for table in database.tables.values()}
        if not names:
            return constant(None, SYSNAME)
        cases = " ".join(f"WHEN {number} THEN {values.literal(name)}" for number, name in names.items())
        return Bound(f"(CASE {args[0].sql} {cases} ELSE NULL END)", collated(SYSNAME, database))

    return found


def _from_map(
    entries: Callable[[Resolver], dict[int, str]], none: Callable[[Resolver], str]
) -> Callable[[Resolver, list[Bound]], Bound]:
    def found(resolver: Resolver, args: list[Bound]) -> Bound:
        if not args:
            return constant(none(resolver), nvarchar(128))
        cases = " ".join(f"WHEN {n} THEN {values.literal(name)}" for n, name in entries(resolver).items())
        return Bound(f"(CASE {convert(args[0], INT)} {cases} ELSE NULL END)", nvarchar(128))

    return found


def _schema_id(resolver: Resolver, args: list[Bound]) -> Bound:
    database = resolver.session.database
    name = database.schema(resolver.text(args[0]) or "") if args else "dbo"
    return constant(database.schemas[name] if name else None, INT)


def _db_id(resolver: Resolver, args: list[Bound]) -> Bound:
    if not args:
        return constant(resolver.session.database.id, SqlType("smallint"))
    found = resolver.session.instance.database(resolver.text(args[0]) or "")
    return constant(found.id if found else None, SqlType("smallint"))


def _server_property(resolver: Resolver, args: list[Bound]) -> Bound:
    found: dict[str, object] = {
        "productversion": VERSION,
        "productlevel": "RTM",
        "productmajorversion": VERSION.split(".", maxsplit=1)[0],
        "edition": "Developer Edition (64-bit)",
        "engineedition": 3,
        "servername": resolver.session.instance.name,
        "machinename": resolver.session.instance.name,
        "instancename": None,
        "collation": SERVER_COLLATION,
        "ishadrenabled": 0,
        "isclustered": 0,
    }
    value = found.get(str(resolver.text(args[0])).casefold())
    return constant(value, INT if isinstance(value, int) else nvarchar(128))


def _database_property(resolver: Resolver, args: list[Bound]) -> Bound:
    database = resolver.session.instance.database(resolver.text(args[0]) or "")
    if database is None:
        return constant(None, nvarchar(128))
    found: dict[str, object] = {
        "collation": database.collation,
        "status": "ONLINE",
        "updateability": "READ_WRITE",
        "recovery": "FULL",
        "edition": "",
    }
    return constant(found.get(str(resolver.text(args[1])).casefold()), nvarchar(128))


def _column_property(resolver: Resolver, args: list[Bound]) -> Bound:
    number = resolver.session.evaluate(convert(args[0], INT))
    wanted, prop = resolver.text(args[1]), str(resolver.text(args[2])).casefold()
    for table in resolver.session.database.tables.values():
        for column in table.columns if table.object_id == number else ():
            if wanted is not None and resolver.same(column.name, wanted):
                found = {
                    "columnid": column.id,
                    "allowsnull": int(column.nullable),
                    "iscomputed": int(column.computed is not None),
                    "isidentity": int(column.identity is not None),
                }
                return constant(found.get(prop), INT)
    return constant(None, INT)


def _col_name(resolver: Resolver, args: list[Bound]) -> Bound:
    number, column = (resolver.session.evaluate(convert(arg, INT)) for arg in args)
    for table in resolver.session.database.tables.values():
        for one in table.columns if table.object_id == number else ():
            if one.id == column:
                return constant(one.name, SYSNAME)
    return constant(None, SYSNAME)


def _member(resolver: Resolver, args: list[Bound]) -> Bound:
    session = resolver.session
    if args[0].is_constant or args[0].type is None:
        return constant(session.is_member(session.database, str(args[0].constant)), INT)
    known = {role: session.is_member(session.database, role) for role in session.database.roles}
    cases = " ".join(f"WHEN {values.literal(role)} THEN {answer}" for role, answer in known.items())
    return Bound(f"(CASE {args[0].sql} {cases} ELSE NULL END)", INT)


def _server_role(resolver: Resolver, args: list[Bound]) -> Bound:
    role = str(resolver.text(args[0])).casefold()
    return constant(int(role == "public" or resolver.session.is_admin), INT)


def _permitted(resolver: Resolver, args: list[Bound]) -> Bound:
    session = resolver.session
    text, permission = resolver.text(args[0]), str(resolver.text(args[2])).upper()
    if text is None:
        return constant(int(session.is_admin or permission in ("CONNECT SQL", "VIEW ANY DATABASE")), INT)
    if str(resolver.text(args[1])).upper() == "DATABASE":
        # only the rights of owners: no client asks for CONNECT and the like
        found = session.instance.database(text)
        return constant(None if found is None else int(session.is_owner(found)), INT)
    name = parts_of(text)
    schema = name[-2] if len(name) > 1 else "dbo"
    try:
        session.demand(permission, resolver.database(name), schema, name[-1])
    except SqlError:
        return constant(0, INT)
    return constant(1, INT)


def _has_access(resolver: Resolver, args: list[Bound]) -> Bound:
    found = resolver.session.instance.database(resolver.text(args[0]) or "")
    return constant(None if found is None else int(resolver.session.may_use(found)), INT)


def _said(get: Callable[[Session], object], kind: SqlType | None = None) -> Callable[[Resolver, list[Bound]], Bound]:
    return lambda resolver, args: constant(get(resolver.session), kind or nvarchar(128))


_SESSION: dict[str, Callable[[Resolver, list[Bound]], Bound]] = {
    "getdate": _now(DATETIME),
    "current_timestamp": _now(DATETIME),
    "getutcdate": _now(DATETIME, True),
    "sysdatetime": _now(DATETIME2),
    "sysutcdatetime": _now(DATETIME2, True),
    "sysdatetimeoffset": _now(DATETIMEOFFSET),
    "object_id": _object_id,
    "object_name": _named_object("name"),
    "object_schema_name": _named_object("schema"),
    "schema_name": _from_map(lambda r: {n: s for s, n in r.session.database.schemas.items()}, lambda r: "dbo"),
    "db_name": _from_map(
        lambda r: {d.id: d.name for d in r.session.instance.databases.values()}, lambda r: r.session.database.name
    ),
    "schema_id": _schema_id,
    "db_id": _db_id,
    "serverproperty": _server_property,
    "databasepropertyex": _database_property,
    "columnproperty": _column_property,
    "col_name": _col_name,
    "is_rolemember": _member,
    "is_member": _member,
    "is_srvrolemember": _server_role,
    "has_perms_by_name": _permitted,
    "has_dbaccess": _has_access,
    "suser_sname": _said(lambda s: s.login),
    "suser_name": _said(lambda s: s.login),
    "system_user": _said(lambda s: s.login),
    "original_login": _said(lambda s: s.login),
    "user_name": _said(lambda s: s.user),
    "current_user": _said(lambda s: s.user),
    "session_user": _said(lambda s: s.user),
    "user": _said(lambda s: s.user),
    "host_name": _said(lambda s: s.host),
    "app_name": _said(lambda s: s.application),
    "scope_identity": _said(lambda s: s.identity, SqlType("numeric", precision=38)),
    "xact_state": _said(lambda s: int(s.depth > 0), SqlType("smallint")),
}
