BEGIN;
INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t", "public.c"], "type": "incremental"}');
INSERT INTO debezium_signal VALUES ('signal-2', 'stop-snapshot', '{"data-collections": ["public.c"], "type": "incremental"}');
COMMIT;
--@ settle 3
BEGIN;
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.c", "public.t"], "type": "incremental"}');
INSERT INTO debezium_signal VALUES ('signal-4', 'stop-snapshot', '{"data-collections": ["public\\.t.*"]}');
COMMIT;
--@ settle 3
INSERT INTO debezium_signal VALUES ('signal-5', 'stop-snapshot', '{"type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-6', 'execute-snapshot', '{"data-collections": ["public.c"], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
