INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.none"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.hidden", "public.t"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.nopk", "public.c"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-4', 'execute-snapshot', '{"data-collections": ["public.e"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-5', 'execute-snapshot', '{"data-collections": ["public.none", "public.t", "public.nopk", "public.e"], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
