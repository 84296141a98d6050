INSERT INTO _timescaledb_internal._hyper_1_1_chunk VALUES ('2026-01-01 01:00:00Z', 'office', 21);
UPDATE _timescaledb_internal._hyper_1_1_chunk SET temperature = 22 WHERE at = '2026-01-01 01:00:00Z';
DELETE FROM _timescaledb_internal._hyper_1_1_chunk WHERE at = '2026-01-01 01:00:00Z';
INSERT INTO _timescaledb_internal._hyper_2_2_chunk VALUES ('home', '2026-01-01 01:00:00Z', 19);
INSERT INTO _timescaledb_internal.stray VALUES (2);
INSERT INTO plain VALUES (2, 'b');
UPDATE plain SET id = 3 WHERE id = 2;
CREATE TABLE _timescaledb_internal._hyper_1_3_chunk (PRIMARY KEY (at, location)) INHERITS (conditions);
INSERT INTO _timescaledb_catalog.chunk (id, hypertable_id, schema_name, table_name) VALUES (3, 1, '_timescaledb_internal', '_hyper_1_3_chunk');
INSERT INTO _timescaledb_internal._hyper_1_3_chunk VALUES ('2026-02-01 01:00:00Z', 'office', 23);
TRUNCATE _timescaledb_internal._hyper_1_3_chunk;
INSERT INTO _timescaledb_internal._materialized_hypertable_2 VALUES ('root', '2026-01-01 01:00:00Z', 19);
--@ settle 3
