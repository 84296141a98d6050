INSERT INTO made (a) VALUES (5);
UPDATE made SET a = 6 WHERE id = 1;
INSERT INTO heir VALUES (4, 'h', 5);
UPDATE ONLY base SET v = 'all';
INSERT INTO unlogged VALUES (2);
DELETE FROM ONLY base;
