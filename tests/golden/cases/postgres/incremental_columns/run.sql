INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental"}');
--@ settle 2
UPDATE t SET secret = 'n' WHERE id = 1;
DELETE FROM t WHERE id = 2;
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
