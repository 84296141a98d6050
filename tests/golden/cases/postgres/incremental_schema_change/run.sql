INSERT INTO t VALUES (100, 'x');
--@ settle 1
ALTER TABLE t ADD COLUMN more TEXT DEFAULT 'more';
INSERT INTO debezium_signal VALUES ('signal-1', 'execute-snapshot', '{"data-collections": ["public.t"], "type": "incremental"}');
--@ settle 2
ALTER TABLE t DROP COLUMN v;
ALTER TABLE c RENAME COLUMN v TO w;
INSERT INTO debezium_signal VALUES ('signal-2', 'execute-snapshot', '{"data-collections": ["public.t", "public.c"], "type": "incremental"}');
--@ settle 2
CREATE TABLE fresh (id INT PRIMARY KEY, v TEXT);
INSERT INTO fresh VALUES (1, 'x'), (2, 'y');
--@ settle 1
INSERT INTO debezium_signal VALUES ('signal-3', 'execute-snapshot', '{"data-collections": ["public.fresh"], "type": "incremental"}');
--@ settle 2
INSERT INTO fin VALUES (1);
