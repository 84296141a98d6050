INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t", "public.c"], "type": "INCREMENTAL"}');
--@ settle 2
BEGIN;
INSERT INTO t VALUES (50, 'x');
UPDATE c SET v = 'y' WHERE a = 1;
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.c"], "type": "INCREMENTAL"}');
COMMIT;
--@ settle 2
INSERT INTO fin VALUES (1);
