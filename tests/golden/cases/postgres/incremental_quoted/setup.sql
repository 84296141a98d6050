CREATE TABLE debezium_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048) NULL);
CREATE TABLE fin (id INT PRIMARY KEY);

CREATE SCHEMA inventory;
CREATE SCHEMA "My.Schema";
CREATE TABLE inventory.orders (id INT PRIMARY KEY, v TEXT);
CREATE TABLE inventory.order_lines (id INT PRIMARY KEY, v TEXT);
CREATE TABLE inventory.customers (id INT PRIMARY KEY, v TEXT);
CREATE TABLE "My.Schema"."My.Table" ("The.Id" INT PRIMARY KEY, "Value" TEXT);
CREATE TABLE "My.Schema"."Plain" ("Id" INT PRIMARY KEY, v TEXT);
CREATE TABLE public."Capital" ("Id" INT PRIMARY KEY, v TEXT);
CREATE TABLE public."my.dotted" (id INT PRIMARY KEY, v TEXT);
INSERT INTO inventory.orders SELECT i, 'o' || i FROM generate_series(1, 5) i;
INSERT INTO inventory.order_lines SELECT i, 'l' || i FROM generate_series(1, 5) i;
INSERT INTO inventory.customers SELECT i, 'c' || i FROM generate_series(1, 5) i;
INSERT INTO "My.Schema"."My.Table" SELECT i, 'm' || i FROM generate_series(1, 5) i;
INSERT INTO "My.Schema"."Plain" SELECT i, 'p' || i FROM generate_series(1, 5) i;
INSERT INTO public."Capital" SELECT i, 'C' || i FROM generate_series(1, 5) i;
INSERT INTO public."my.dotted" SELECT i, 'd' || i FROM generate_series(1, 5) i;
