CREATE TABLE i (id INT PRIMARY KEY, v INTERVAL, d INTERVAL DAY TO SECOND(2), y INTERVAL YEAR, n INTERVAL NOT NULL DEFAULT '1 day 2 hours');
INSERT INTO i VALUES (1, '1 year', '1 day', '2 years'), (2, '-1 mon +2 days -03:00:00.000001', '-1 day', '-2 years'), (3, '178000000 years', '100000 hours', '0');
