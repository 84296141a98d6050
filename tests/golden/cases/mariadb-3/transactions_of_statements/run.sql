insert into a values (2, 2);
create table b (id int primary key);
insert into b values (1);
