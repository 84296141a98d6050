create table a (id int primary key, v int);
create view va as select * from a;
insert into a values (1, 1);
