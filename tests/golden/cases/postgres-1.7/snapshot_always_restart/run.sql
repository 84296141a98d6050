INSERT INTO a VALUES (3, 'w');
--@ stop
DELETE FROM a WHERE id = 1;
--@ start
UPDATE b SET v = 'end';
