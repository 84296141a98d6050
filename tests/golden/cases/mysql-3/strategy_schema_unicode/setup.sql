create database d2;
create table `a b` (id int primary key, `c.d` int, `1e` int, `ü` int, `-` int);
create table d2.`$x` (id int primary key, v int);
insert into `a b` values (1, 1, 1, 1, 1);
insert into d2.`$x` values (1, 1);
