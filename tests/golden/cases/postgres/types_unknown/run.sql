INSERT INTO u VALUES (2, '(1,a)', '{"(2,b)"}', '0/16B3748', 'a & b', '$.a', '5', '6', '(0,1)', 'pg_class', '(1,2)', 'v', '1:2:', '1:2:', '1 2');
UPDATE u SET v = 'w' WHERE id = 1;
DELETE FROM u WHERE id = 2;
