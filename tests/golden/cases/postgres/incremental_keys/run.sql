INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.k_numeric", "public.k_text_uuid"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.k_enum"], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.k_varchar"], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
