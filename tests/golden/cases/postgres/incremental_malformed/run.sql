INSERT INTO debezium_signal VALUES ('signal-1', 'log', '{"message": "here: {}"}');
INSERT INTO debezium_signal VALUES ('signal-2', 'log', '{}');
INSERT INTO debezium_signal VALUES ('signal-3', 'nothing', '{}');
INSERT INTO debezium_signal VALUES ('signal-4', 'execute-snapshot', 'no json');
--@ settle 1
INSERT INTO debezium_signal VALUES ('signal-5', 'execute-snapshot', NULL);
--@ settle 1
INSERT INTO debezium_signal VALUES ('signal-6', 'execute-snapshot', '{"data-collections": []}');
--@ settle 1
INSERT INTO debezium_signal VALUES ('signal-7', 'execute-snapshot', '{"type": "incremental"}');
--@ settle 1
INSERT INTO debezium_signal VALUES ('signal-8', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "other"}');
--@ settle 2
INSERT INTO debezium_signal VALUES ('signal-9', 'execute-snapshot', '{"data-collections": ["public.c"]}');
--@ settle 2
INSERT INTO fin VALUES (1);
