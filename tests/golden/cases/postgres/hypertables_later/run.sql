INSERT INTO _timescaledb_internal.early VALUES (1, 'not in the catalog');
--@ settle 2
INSERT INTO _timescaledb_catalog.chunk (id, hypertable_id, schema_name, table_name) VALUES (2, 1, '_timescaledb_internal', 'early');
INSERT INTO _timescaledb_internal.early VALUES (2, 'in the catalog');
--@ settle 2
INSERT INTO _timescaledb_internal.known VALUES (2, 'b');
--@ settle 2
UPDATE _timescaledb_catalog.hypertable SET table_name = 'renamed';
INSERT INTO _timescaledb_internal.known VALUES (3, 'renamed');
--@ settle 2
BEGIN;
CREATE TABLE _timescaledb_internal.third (PRIMARY KEY (id)) INHERITS (conditions);
INSERT INTO _timescaledb_catalog.chunk (id, hypertable_id, schema_name, table_name) VALUES (3, 1, '_timescaledb_internal', 'third');
INSERT INTO _timescaledb_internal.third VALUES (1, 'a');
COMMIT;
--@ settle 2
INSERT INTO _timescaledb_internal.known VALUES (4, 'after a reload');
INSERT INTO _timescaledb_internal.early VALUES (4, 'after a reload');
--@ settle 2
DELETE FROM _timescaledb_catalog.chunk WHERE id = 1;
INSERT INTO _timescaledb_internal.known VALUES (5, 'not there any more');
--@ settle 2
INSERT INTO _timescaledb_catalog.chunk (id, hypertable_id, schema_name, table_name) VALUES (1, 1, '_timescaledb_internal', 'known');
--@ stop
INSERT INTO _timescaledb_internal.known VALUES (6, 'while away');
--@ start
INSERT INTO _timescaledb_internal.known VALUES (7, 'after the start');
INSERT INTO _timescaledb_internal.third VALUES (7, 'after the start');
--@ settle 2
