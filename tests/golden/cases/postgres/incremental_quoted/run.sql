INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["\"public\".\"my.dotted\""], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["\"My.Schema\".\"My.Table\""], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["\"public\".\"Capital\""], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-4', 'execute-snapshot', '{"data-collections": ["\"inventory\".\"orders\""], "type": "incremental"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-5', 'execute-snapshot', '{"data-collections": ["public.\"Capital\""], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
