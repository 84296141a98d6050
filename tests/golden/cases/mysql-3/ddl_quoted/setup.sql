create table `odd name` (`id` int primary key, `a``b` varchar(5), `select` int);
insert into `odd name` values (1, 'x', 1);
