"""The demo's database: a small shop with the tables of Debezium's tutorial, and its workload. Data only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

DATABASE = "shop"

TABLES = """
create schema inventory;
set search_path = inventory;
create table products (
  id serial primary key, name varchar(255) not null, description varchar(512), weight float
);
create table products_on_hand (
  product_id integer primary key references products (id), quantity integer not null
);
create table customers (
  id serial primary key, first_name varchar(255) not null, last_name varchar(255) not null,
  email varchar(255) not null unique
);
create table orders (
  id serial primary key, order_date date not null, purchaser integer not null references customers (id),
  quantity integer not null, product_id integer not null references products (id)
);
alter sequence products_id_seq restart with 101;
alter sequence customers_id_seq restart with 1001;
alter sequence orders_id_seq restart with 10001;
insert into products (name, description, weight) values
  ('kick scooter', 'folds to the size of a bag', 4.2), ('bike pump', null, 0.6),
  ('rope, 20 m', 'hemp, three strands', 2.75), ('lantern', 'burns paraffin', 1.1),
  ('whetstone', null, 0.9);
insert into products_on_hand values (101, 3), (102, 12), (103, 40), (104, 7), (105, 25);
insert into customers (first_name, last_name, email) values
  ('Ida', 'Lind', 'ida@lind.example'), ('Omar', 'Haddad', 'omar@haddad.example'),
  ('Greta', 'Vogel', 'greta@vogel.example'), ('Tom', 'Ashby', 'tom@ashby.example');
insert into orders (order_date, purchaser, quantity, product_id) values
  ('2026-01-14', 1001, 1, 102), ('2026-01-15', 1002, 2, 104), ('2026-01-15', 1003, 1, 101);
alter table customers replica identity full;
alter table orders replica identity full;
"""
"""Customers and orders log whole old rows, so their updates have `before`; the other tables log only old keys."""

ROWS = 17
"""Rows before the pipeline starts, and so the number of `r` events of the snapshot."""


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A step of the workload: SQL that runs as one transaction, and its records.

    `records` are the records' operations, in order: c, u, d, t, and 0 for a tombstone. `end` ends the transaction.
    """

    title: str
    sql: tuple[str, ...]
    records: str
    end: str = "commit"

    @property
    def shown(self) -> tuple[str, ...]:
        """The statements to print: a single one that commits needs no `begin`."""
        return self.sql if len(self.sql) == 1 and self.end == "commit" else ("begin", *self.sql, self.end)


STEPS = (
    DemoStep(
        "A customer registers",
        ("insert into inventory.customers values (default, 'Mina', 'Sato', 'mina@sato.example')",),
        "c",
    ),
    DemoStep(
        "She corrects her address",
        ("update inventory.customers set email = 'mina.sato@post.example' where id = 1005",),
        "u",
    ),
    DemoStep(
        "She orders two ropes: one transaction, three tables",
        (
            "insert into inventory.orders values (default, '2026-01-16', 1005, 2, 103)",
            "update inventory.products_on_hand set quantity = quantity - 2 where product_id = 103",
            "update inventory.products set description = 'hemp, three strands; nearly sold out' where id = 103",
        ),
        "cuu",
    ),
    DemoStep(
        "The order grows",
        ("update inventory.orders set quantity = 5, order_date = '2026-01-17' where id = 10004",),
        "u",
    ),
    DemoStep(
        "Three products arrive by one statement",
        (
            "insert into inventory.products (name, weight) values "
            "('tarpaulin', 3.3), ('tent pegs', 0.45), ('camp stove', 1.8)",
        ),
        "ccc",
    ),
    DemoStep(
        "A transaction is rolled back: nothing may arrive",
        ("delete from inventory.orders",),
        "",
        end="rollback",
    ),
    DemoStep(
        "A customer gets another number: the key changes",
        ("update inventory.customers set id = 2004 where id = 1004",),
        "d0c",
    ),
    DemoStep("An order is cancelled", ("delete from inventory.orders where id = 10002",), "d0"),
    DemoStep("Its customer leaves", ("delete from inventory.customers where id = 1002",), "d0"),
    DemoStep("Stock-taking begins: the table is emptied", ("truncate inventory.products_on_hand",), "t"),
    DemoStep(
        "The first shelf is counted",
        ("insert into inventory.products_on_hand values (101, 2), (102, 11)",),
        "cc",
    ),
)


def expected() -> Counter[str]:
    """Return the number of records of the whole demo by operation, `0` for tombstones."""
    counted = Counter(r=ROWS)
    for step in STEPS:
        counted.update(step.records)
    return counted
