CREATE TYPE pair AS (x INT, y TEXT);
CREATE TABLE u (id INT PRIMARY KEY, p pair, pa pair[], l PG_LSN, q TSQUERY, jp JSONPATH, bx BOX, v TEXT, nn pair NOT NULL DEFAULT '(1,a)');
INSERT INTO u VALUES (1, '(1,a)', '{"(2,b)"}', '0/16B3748', 'a & b', '$.a', '(1,2),(0,0)', 'v');
