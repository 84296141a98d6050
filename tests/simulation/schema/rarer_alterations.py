"""Rarer alterations of tables: further types, labels of enums, indexes as identities, partitions of other forms, and
publications with other settings."""

from __future__ import annotations

from tests.simulation.schema.author import ALTERATIONS, Alterations, Author, Column

TYPES = (
    "uuid", "bytea", "integer[]", "text[]", "double precision", "character(5)", "character varying(10)", "smallint",
    "numeric", "numeric(20,0)", "boolean", "bigint", "date", "timestamp with time zone", "mood", "even", "integer",
    "text",
)  # fmt: skip


def add(author: Author) -> list[str]:
    """Add a column of any type, whose default may be dropped at once."""
    table, name, kind = author.target(), author.fresh("w"), author.dice.choice(TYPES)
    column = Column(name, kind, "d" if kind == "even" else "b", False, False, True, False)
    default = author.dice.choice(("", "", " default {}", " not null default {}")).format(author.value(column))
    later = author.dice.choice(([], [], [f"alter table {table} alter {name} drop default"]))
    return [f"alter table {table} add column {name} {kind}{default}", *later]


def retype(author: Author) -> list[str]:
    """Give a column any type, by its text, by a cast or without its values."""
    table, kind = author.target(), author.dice.choice(TYPES)
    name = author.column(table).name
    using = author.dice.choice((f' using "{name}"::text::{kind}', "", " using null"))
    return [
        f'alter table {table} alter "{name}" drop default',
        f'alter table {table} alter "{name}" type {kind}{using}',
    ]


def replace(author: Author) -> list[str]:
    """Drop a column and add another one under its name, in one statement."""
    table = author.target()
    name = author.column(table).name
    return [f'alter table {table} drop column "{name}", add column "{name}" {author.dice.choice(TYPES)}']


def add_two(author: Author) -> list[str]:
    """Add columns in one statement that also drops a default."""
    table, name = author.target(), author.fresh("y")
    parts = author.dice.choice(
        (
            f"add column {name} int default 5, alter {name} drop default",
            f"add column {name} int not null default 5, add column {name}x text default 'q'",
        )
    )
    return [f"alter table {table} {parts}"]


def label(author: Author) -> list[str]:
    """Add or rename a label of the enum."""
    name = author.fresh("l")
    what = (
        f"add value '{name}'",
        f"add value '{name}' before 'fine'",
        f"rename value 'sad' to '{name}'",
        "rename value 'glad' to 'sad'",
    )
    return [f"alter type mood {author.dice.choice(what)}"]


def index(author: Author) -> list[str]:
    """Make a unique index, perhaps as the replica identity, or let a key column be null."""
    table = author.table(lambda one: one.kind == "r")
    column = author.column(table, lambda one: one.type == "integer").name
    name = author.fresh("i")
    made = f'create unique index {name} on {table} ("{column}")'
    required = f'alter table {table} alter "{column}" set not null'
    return author.dice.choice(
        (
            [made + author.dice.choice(("", " nulls not distinct", ' where "id" > 3'))],
            [required, made, f"alter table {table} replica identity using index {name}"],
            [f'alter table {table} alter "{column}" drop not null'],
        )
    )


def drop_index(author: Author) -> list[str]:
    """Drop a unique index that belongs to no constraint."""
    found = author.rows(
        "select indexrelid::regclass::text from pg_index i join pg_class c on c.oid = indrelid join pg_namespace n "
        "on n.oid = c.relnamespace where nspname in ('public', 'other') and indisunique and not indisprimary order by 1"
    )
    return [f"drop index {author.dice.choice(found)[0]}"] if found else add(author)


def generate(author: Author) -> list[str]:
    """Add a virtual column, which servers before PostgreSQL 18 refuse."""
    table = author.target()
    column = author.column(table, lambda one: one.type == "integer").name
    return [f'alter table {table} add column {author.fresh("g")} int generated always as ("{column}" + 2) virtual']


def require(author: Author) -> list[str]:
    """Demand values of later rows alone, which servers before PostgreSQL 18 refuse."""
    table = author.target()
    name = author.column(table).name
    return [f'alter table {table} add constraint {author.fresh("n")} not null "{name}" not valid']


def attach_shuffled(author: Author) -> list[str]:
    """Attach a partition whose columns have another order and other numbers than the root's."""
    root, name = author.table(lambda one: one.kind == "p"), author.fresh("odd")
    low = author.dice.choice((7000, 8000, 9000))
    columns = ", ".join(f'"{one.name}" {one.type}' for one in reversed(author.columns(root)))
    return [
        f"create table {name} (junk int, {columns}, primary key (id, d))",
        f"alter table {name} drop column junk",
        f"insert into {name} (id, d) values (5, {low + 1})",
        f"alter table {root} attach partition {name} for values from ({low}) to ({low + 1000})",
    ]


def divide(author: Author) -> list[str]:
    """Add a partition that is partitioned itself, or one for all other rows."""
    root, name = author.table(lambda one: one.kind == "p"), author.fresh("sub")
    low = author.dice.choice((20_000, 30_000))
    return author.dice.choice(
        (
            [
                f"create table {name} partition of {root} for values from ({low}) to ({low + 1000}) "
                "partition by range (id)",
                f"create table {name}_a partition of {name} for values from (0) to (100)",
                f"create table {name}_b partition of {name} default",
                f"insert into {root} (id, d) values (7, {low + 5}), (700, {low + 6})",
            ],
            [f"create table {name} partition of {root} default"],
        )
    )


def truncate(author: Author) -> list[str]:
    """Truncate several tables, or one without its children."""
    one, other = author.table(), author.table()
    what = (f"only {one}", f"{one}, {other} cascade", f"{one} restart identity cascade")
    return [f"truncate {author.dice.choice(what)}"]


def take_name(author: Author) -> list[str]:
    """Move a table to another schema, and make another one under its name."""
    table = author.table(lambda one: one.schema == "public" and not one.is_leaf)
    return [
        f"alter table {table} set schema other",
        f'create table public."{table.name}" (id int primary key, a int, z text)',
    ]


def rename_schema(author: Author) -> list[str]:
    """Rename a schema, and back."""
    return ["alter schema other rename to elsewhere", "alter schema elsewhere rename to other"]


def publish(author: Author) -> list[str]:
    """Alter the publication's schemas, settings or name."""
    settings = ("publish_via_partition_root = true", "publish_via_partition_root = false")
    what = (
        "add tables in schema other",
        "set tables in schema public, other",
        *(f"set ({one})" for one in (*settings, "publish_generated_columns = stored")),
    )
    renamed = ["alter publication dbz_publication rename to p", "alter publication p rename to dbz_publication"]
    return author.dice.choice(([f"alter publication dbz_publication {author.dice.choice(what)}"], renamed))


RARER: Alterations = (
    *ALTERATIONS, (add, 14), (retype, 8), (replace, 4), (add_two, 3), (label, 3), (index, 5), (drop_index, 3),
    (generate, 2), (require, 2), (attach_shuffled, 3), (divide, 4), (truncate, 2), (take_name, 2), (rename_schema, 1),
    (publish, 2),
)  # fmt: skip
"""All kinds of alterations with their weights."""
