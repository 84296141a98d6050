INSERT INTO c (id, a, price) VALUES (2, 4, 5);
UPDATE c SET a = 7 WHERE id = 1;
