INSERT INTO u VALUES (2, '(1,é)', '{"(2,b)"}', '0/16B3748', 'a & b', '$.a', '(1,2),(0,0)', 'v');
UPDATE u SET v = 'w', l = NULL WHERE id = 1;
DELETE FROM u WHERE id = 2;
