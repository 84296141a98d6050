INSERT INTO g VALUES (11, '(1,2)'), (12, '(-0.1,1e-10)'), (13, '(0,0)'), (14, '(1e20,123456789.25)'), (15, '(NaN,Infinity)');
UPDATE g SET p = NULL WHERE id = 1;
DELETE FROM g WHERE id = 2;
