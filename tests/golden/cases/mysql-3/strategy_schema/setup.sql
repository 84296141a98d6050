create table `a_b c` (id int primary key, v int);
create table `ü-x.y` (id int primary key, v int);
insert into `a_b c` values (1, 1);
insert into `ü-x.y` values (1, 1);
