create table a (id int primary key, v int);
insert into a values (1, 1);
