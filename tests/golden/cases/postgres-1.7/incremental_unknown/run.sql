INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t", "public.nopk"], "type": "INCREMENTAL"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.e"], "type": "INCREMENTAL"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.c"], "type": "INCREMENTAL"}');
--@ settle 2
INSERT INTO fin VALUES (1);
