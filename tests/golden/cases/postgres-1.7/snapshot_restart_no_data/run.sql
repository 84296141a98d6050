INSERT INTO a VALUES (3, 'w');
--@ stop
DELETE FROM a WHERE id = 1;
--@ start
UPDATE a SET v = 'end' WHERE id = 2;
