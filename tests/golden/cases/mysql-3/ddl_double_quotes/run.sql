create table a (id int primary key, v varchar(10) default "dq" comment "a c's comment", e enum("a","b'c") default "a", w varchar(9) default "say ""x", x varchar(9) default "back" comment 'single "in" it') comment "table";
alter table a add y varchar(5) default "y" comment "yy";
alter table a comment "plain comment";
alter table a add z int comment 'it "is"';
create table b (id int primary key) comment='nothing';
alter table a alter y set default "new";
drop table /* "q" */ b;
