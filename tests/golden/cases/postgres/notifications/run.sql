INSERT INTO t VALUES (1000, 'streamed before');
--@ settle 1
INSERT INTO debezium_signal VALUES ('ad-hoc-1', 'execute-snapshot', '{"data-collections": ["public.t", "public.c", "public.empty", "public.nopk", "public.none"], "type": "incremental"}');
--@ settle 3
INSERT INTO debezium_signal VALUES ('ad-hoc-2', 'execute-snapshot', '{"data-collections": ["public.c", "public.t"]}');
--@ settle 3
INSERT INTO debezium_signal VALUES ('pause-1', 'pause-snapshot', NULL);
--@ settle 1
INSERT INTO debezium_signal VALUES ('stop-1', 'stop-snapshot', '{"type": "incremental"}');
--@ settle 2
INSERT INTO t VALUES (1002, 'the end');
