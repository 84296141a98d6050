INSERT INTO _timescaledb_internal.chunk VALUES (2, 'b');
DELETE FROM _timescaledb_internal.chunk WHERE id = 2;
INSERT INTO _timescaledb_internal.agg_chunk VALUES (2, 'b');
DELETE FROM _timescaledb_internal.agg_chunk WHERE id = 2;
INSERT INTO plain VALUES (2, 'b');
DELETE FROM plain WHERE id = 2;
--@ settle 2
