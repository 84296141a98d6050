CREATE EXTENSION cube;
CREATE TYPE pair AS (x INT, y TEXT);
CREATE TABLE u (id INT PRIMARY KEY, p pair, pa pair[], l PG_LSN, q TSQUERY, jp JSONPATH, x XID, x8 XID8, ti TID, rc REGCLASS, c CUBE, v TEXT, sn PG_SNAPSHOT, tx TXID_SNAPSHOT, ov OIDVECTOR, nn pair NOT NULL DEFAULT '(1,a)');
INSERT INTO u VALUES (1, '(1,a)', '{"(2,b)"}', '0/16B3748', 'a & b', '$.a', '5', '6', '(0,1)', 'pg_class', '(1,2)', 'v', '1:2:', '1:2:', '1 2');
