UPDATE t SET n = 2 WHERE id = 1;
--@ settle 2
BEGIN;
UPDATE t SET n = 3 WHERE id = 1;
UPDATE t SET dflt = 'later', maybe = 'later' WHERE id = 1;
COMMIT;
--@ settle 2
BEGIN;
UPDATE t SET n = 4 WHERE id = 1;
DELETE FROM t WHERE id = 1;
COMMIT;
--@ settle 2
INSERT INTO nokey VALUES (3, 'c', NULL);
--@ settle 2
UPDATE keyed SET name = 'b' WHERE id = 1;
--@ settle 2
