SELECT pg_logical_emit_message(true, 'app', 'one');
INSERT INTO t VALUES (2, 'x');
INSERT INTO s2.t VALUES (2, 'x');
UPDATE t SET id = 7 WHERE id = 2; DELETE FROM t;
