INSERT INTO t VALUES (100, 'x');
--@ settle 1
ALTER TABLE t ADD COLUMN more TEXT DEFAULT 'more';
INSERT INTO t VALUES (101, 'x');
INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "INCREMENTAL"}');
--@ settle 2
ALTER TABLE c RENAME COLUMN v TO w;
UPDATE c SET w = 'new' WHERE a = 1;
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.c"], "type": "INCREMENTAL"}');
--@ settle 2
INSERT INTO fin VALUES (1);
