UPDATE t SET v = 'z' WHERE id = 1;
UPDATE t SET id = 9 WHERE id = 2;
DELETE FROM t WHERE id = 1;
INSERT INTO t VALUES (4, 'end');
