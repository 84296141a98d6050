alter table a add column w int, algorithm=inplace, lock=none;
insert into a values (2, 'two', 2);
alter table a add column x int default 5, algorithm=instant;
insert into a values (3, 'three', 3, 3);
alter table a change column v v2 varchar(10), algorithm=copy, lock=shared;
insert into a values (4, 'four', 3, 3);

alter table a add fulltext index ft (v2);
alter table a add index i (w) comment 'c', drop index ft;
alter table a force;
alter table a rename index i to i2;
alter table golden.a drop index i2, rename column w to w2;
insert into golden.a values (5, 'five', 3, 3);
alter table a row_format=dynamic key_block_size=0;
alter table a add column s point srid 4326 null;
insert into a values (6, 'six', 3, 3, st_geomfromtext('POINT(1 2)', 4326));
