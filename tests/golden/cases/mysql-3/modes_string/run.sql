insert into n values (2, 0, 0, 0, '-838:59:59', '1000-01-01', '1970-01-01 00:00:01', '', '', '', 0, 1901, '9999-12-31', '9999-12-31 23:59:59.99', '00:00:00');
insert into n values (3, null, null, null, null, null, null, null, null, null, null, null, null, null, null);
update n set a = 999.999, h = repeat(0x00, 10) where id = 2;
