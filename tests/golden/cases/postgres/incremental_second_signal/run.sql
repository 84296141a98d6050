BEGIN;
INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental"}');
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.c"], "type": "incremental"}');
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental"}');
COMMIT;
--@ settle 3
BEGIN;
INSERT INTO debezium_signal VALUES ('signal-4', 'execute-snapshot', '{"data-collections": ["public.t", "public.c"], "type": "incremental"}');
INSERT INTO debezium_signal VALUES ('signal-5', 'execute-snapshot', '{"data-collections": ["public.fin", "public.c"], "type": "incremental"}');
COMMIT;
--@ settle 2
INSERT INTO fin VALUES (1);
