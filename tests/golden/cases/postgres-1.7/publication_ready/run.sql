INSERT INTO a VALUES (2, 'y', 'h', 2);
UPDATE a SET v = 'z', hidden = 'i' WHERE id = 1;
INSERT INTO b VALUES (3, 'z', 30), (4, 'w', 4);
UPDATE b SET k = 40 WHERE id = 4;
UPDATE b SET k = 2 WHERE id = 2;
INSERT INTO c VALUES (2, 'y');
TRUNCATE b;
DELETE FROM a WHERE id = 1;
