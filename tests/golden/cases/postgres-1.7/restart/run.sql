INSERT INTO t VALUES (2, 'b');
--@ stop
INSERT INTO t VALUES (3, 'while away');
UPDATE t SET id = 4 WHERE id = 1;
BEGIN;
DELETE FROM t WHERE id = 2;
INSERT INTO t VALUES (5, 'in a transaction');
COMMIT;
--@ start
INSERT INTO t VALUES (6, 'back');
