CREATE TYPE pair AS (x INT, y TEXT);
CREATE TABLE u (id INT PRIMARY KEY, p pair, l PG_LSN, q TSQUERY, jp JSONPATH, pol POLYGON, v TEXT);
INSERT INTO u VALUES (1, '(1,a)', '0/16B3748', 'a & b', '$.a', '((0,0),(1,1))', 'v');
