INSERT INTO n VALUES (2, 1e300, 0, -0.01, '{NULL}', '{}'), (3, 'NaN', 0.1, '$1,234,567.89', NULL, NULL);
UPDATE n SET id = 4 WHERE id = 2;
