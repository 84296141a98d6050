SELECT pg_logical_emit_message(true, 'abc', 'one');
SELECT pg_logical_emit_message(false, 'b', '\x00ff'::bytea);
SELECT pg_logical_emit_message(true, 'c', 'no');
INSERT INTO t VALUES (1);
