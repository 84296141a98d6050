"""Advice about a server and a role: warnings that do not prevent capture. Driver; only reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.config.filters import table_name
from tailrace.connectors.advice import ROLE, excessive, in_the_clear
from tailrace.connectors.findings import SHOWN, Finding
from tailrace.connectors.postgres.schema.catalog import CapturedTable
from tailrace.connectors.postgres.snapshot.session import qualified, quoted

if TYPE_CHECKING:
    import psycopg

_SESSION = """
select host(inet_client_addr()), host(inet_server_addr()), (select setting from pg_settings
  where name = 'max_slot_wal_keep_size'), current_setting('idle_replication_slot_timeout', true)
"""
# A role with bypassrls may need it: policies hide rows of captured tables from other roles.
_RIGHTS = """
select rolsuper, rolcreaterole, rolcreatedb, rolbypassrls and not exists (
  select from pg_class c where c.oid = any(%s::oid[]) and c.relrowsecurity)
from pg_roles where rolname = session_user
"""
_WORDS = ("superuser", "createrole", "createdb", "bypassrls")


def advice(
    config: Mapping[str, Any], connection: psycopg.Connection[Any], captured: Sequence[CapturedTable], streams: bool
) -> Iterator[Finding]:
    """Yield warnings that only `tailrace check` shows: none of them hinders a pipeline."""
    row = connection.execute(_SESSION).fetchone()
    assert row is not None
    client, server, kept, idle = row
    if is_open_to_others(client, server, connection.pgconn.ssl_in_use):
        yield in_the_clear(
            config["database.hostname"],
            "Set database.sslmode=verify-full and database.sslrootcert, and switch TLS on in the server.",
        )
    if streams and kept == "-1":
        yield Finding(
            "warning",
            "wal_keep",
            "max_slot_wal_keep_size is -1: a slot that nobody reads keeps the log until the server's disk is full.",
            "alter system set max_slot_wal_keep_size = '…'; select pg_reload_conf(); with what the disk can spare.",
        )
    if streams and idle not in (None, "0"):
        yield Finding(
            "warning",
            "idle_slot",
            f"idle_replication_slot_timeout is {idle}: a slot that nobody reads for so long cannot be read again.",
            "Run the pipeline more often, or set it to 0.",
        )
    rights = connection.execute(_RIGHTS, ([oid for oid, _, _ in captured],)).fetchone()
    more = [word for word, given in zip(_WORDS, rights or (), strict=True) if given] if rights else []
    if more:
        yield excessive(config["database.user"], more, least(config, captured, streams))


def is_open_to_others(client: str | None, server: str | None, encrypted: bool) -> bool:
    """Return True if a session crosses a network unencrypted; an address is None for a socket of the same machine."""
    return not encrypted and client is not None and client != server


def least(config: Mapping[str, Any], captured: Sequence[CapturedTable], streams: bool) -> list[str]:
    """Return statements that make a role with only the rights that the configuration needs, and its publication."""
    role = ROLE
    tables = [qualified(table) for _, table, _ in captured]
    listed = ", ".join(tables[:SHOWN]) + (", …" if len(tables) > SHOWN else "") if tables else "…"
    schemas = ", ".join(sorted({quoted(table.schema) for _, table, _ in captured})) or "…"
    found = [
        f"create role {role} login{' replication' if streams else ''} password '…';",
        f"grant usage on schema {schemas} to {role};",
        f"grant select on {listed} to {role};",
    ]
    signals = config["signal.data.collection"]
    if signals and streams and not config["read.only"]:
        deletes = config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
        written = ".".join(quoted(part) for part in table_name(signals))
        found.append(f"grant insert{', select, delete' if deletes else ''} on {written} to {role};")
    if streams:
        found.append(
            f"create publication {quoted(config['publication.name'])} for table {listed}; "
            "by the tables' owner, with publication.autocreate.mode=disabled."
        )
    return found
