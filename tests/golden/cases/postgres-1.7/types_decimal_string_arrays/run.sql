INSERT INTO n VALUES (2, 1e30, 0, -0.01, '{NULL}', '{}'), (3, 1e-10, 0.1, '$1,234,567.89', NULL, NULL), (4, 100, 100, 100, '{100}', '{1.10}');
UPDATE n SET id = 5 WHERE id = 2;
