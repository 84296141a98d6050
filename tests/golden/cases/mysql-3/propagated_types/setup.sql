create table t1 (id int primary key, a varchar(20), b int, c decimal(5,2));
create table t2 (id int primary key, a varchar(20), b int);
create table other (id int primary key);
insert into t1 values (1, 'secret', 2, 3.5);
insert into t2 values (1, 'long text here', 2);
