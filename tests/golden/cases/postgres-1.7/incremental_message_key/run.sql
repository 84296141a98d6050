INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "INCREMENTAL"}');
--@ settle 2
INSERT INTO fin VALUES (1);
