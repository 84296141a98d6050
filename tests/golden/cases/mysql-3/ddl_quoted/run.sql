ALTER TABLE `odd name` ADD COLUMN `c d` INT COMMENT 'it''s "quoted"', RENAME COLUMN `select` TO `from`;
insert into `odd name` values (2, 'x', 1, 1);
rename  table   `odd name`   to `other``name` ,  `other``name` to back;
insert into back values (3, 'x', 1, 1);
/* leading comment */ alter table back /* inner */ drop column `c d` -- trailing
;
alter /* c */ table back comment 'semi; colon';
create table if not exists back (id int);
create table e (id int primary key /* pk */, # hash comment
  v int -- dash comment
);
insert into e values (1, 1);
drop table /*!40005 if exists */ nope, e, back;
