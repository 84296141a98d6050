INSERT INTO i VALUES (11, '1 year', '1 day', '2 years'), (12, '-1 mon +2 days -03:00:00.000001', '-1 day', '-2 years');
INSERT INTO i VALUES (13, '00:00:00.5', '1.239 seconds', NULL), (14, '-00:00:01', '00:00:00', '1 year'), (15, '1 mon -1 day', '23:59:59.99', '1 year'), (16, '10000 years 11 mons 30 days 23:59:59.999999', '1 day', '1 year');
UPDATE i SET v = '0' WHERE id = 1;
