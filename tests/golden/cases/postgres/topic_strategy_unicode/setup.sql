create table "a_b c" (id int primary key, v int);
create schema "s_1 é";
create table "s_1 é"."ü-x.y😀" (id int primary key, v int);
insert into "a_b c" values (1, 1);
