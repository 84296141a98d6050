insert into `ü-x.y` values (2, 2);
