insert into `a b` values (2, 2, 2, 2, 2);
insert into d2.`$x` values (2, 2);
alter table `a b` add `f/g` int;
insert into `a b` values (3, 2, 2, 2, 2, 3);
