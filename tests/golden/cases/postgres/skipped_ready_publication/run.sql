UPDATE t SET v = 'z' WHERE id = 1;
UPDATE t SET id = 9 WHERE id = 2;
INSERT INTO t VALUES (4, 'end');
TRUNCATE t;
--@ settle 1
