INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.nopk"], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
