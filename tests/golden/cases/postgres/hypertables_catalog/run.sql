INSERT INTO _timescaledb_internal.dangling VALUES (1, 'a');
INSERT INTO _timescaledb_internal.flagged VALUES (1, 'a');
INSERT INTO _timescaledb_internal.compressed VALUES (1, 'a');
INSERT INTO _timescaledb_internal.twice VALUES (1, 'a');
INSERT INTO _timescaledb_internal.of_two VALUES (1, 'a');
INSERT INTO _timescaledb_internal.upper VALUES (1, 'a');
--@ settle 2
