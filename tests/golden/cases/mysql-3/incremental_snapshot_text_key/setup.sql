create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null);
create table a (id int primary key, v varchar(10), u varchar(10) unique);
create table b (id int, v varchar(10));
insert into a values (1, 'one', 'q'), (2, 'two', 'p'), (3, 'three', 'o'), (4, 'four', 'n'), (5, 'five', 'm');
insert into b values (1, 'x'), (2, 'y');
