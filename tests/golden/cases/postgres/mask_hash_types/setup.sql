CREATE TABLE m (k INT PRIMARY KEY, t TEXT, c CHAR(10), j JSON, v TEXT, vc VARCHAR(20), md TEXT);
INSERT INTO m VALUES (1, 'é', 'a', '{}', 'v', 'vc', 'm');
