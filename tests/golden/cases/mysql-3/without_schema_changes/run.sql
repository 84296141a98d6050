alter table a add column w varchar(5) default 'q';
insert into a values (2, 2, 'x');
--@ stop
alter table a drop column v;
insert into a values (3, 'y');
create table b (id int primary key, x int);
insert into b values (1, 1);
rename table a to c;
insert into c values (4, 'z');
--@ start
insert into c values (5, 'zz');
insert into b values (2, 2);
