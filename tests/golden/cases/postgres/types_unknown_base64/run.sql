INSERT INTO u VALUES (2, '(1,é)', '0/16B3748', 'a & b', '$.a', '((0,0),(1,1))', 'v');
UPDATE u SET v = 'w', l = NULL WHERE id = 1;
