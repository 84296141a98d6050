create table a (id int primary key, v varchar(10));
insert into a values (1, 'one');
