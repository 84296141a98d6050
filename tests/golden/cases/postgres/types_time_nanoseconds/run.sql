INSERT INTO t_time VALUES (2, '1969-12-31', '23:59:59.999999', '24:00:00', '1677-09-22 00:12:44', '2262-04-11 23:47:16.854', '1900-01-01 00:00:00+00', '00:00:00+14', '-1 mon', '{}', '{NULL}', NULL);
INSERT INTO t_time (id, ts, ts3) VALUES (3, 'infinity', '-infinity');
UPDATE t_time SET d = NULL, ts = NULL WHERE id = 1;
