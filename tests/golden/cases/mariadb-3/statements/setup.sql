create table a (id int primary key, v varchar(10), n int unique);
create table b (id int primary key, a_id int, v varchar(10));
insert into a values (1, 'one', 1), (2, 'two', 2), (3, 'three', 3);
insert into b values (1, 1, 'x'), (2, 2, 'y');
