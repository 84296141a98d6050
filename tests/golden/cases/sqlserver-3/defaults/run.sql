INSERT INTO defaults (id, g) VALUES (2, '2020-01-01');
