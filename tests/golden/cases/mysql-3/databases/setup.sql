create database shop character set latin1 collate latin1_swedish_ci;
create database `other-db`;
create table shop.t (id int primary key, v varchar(10));
create table `other-db`.t (id int primary key, v varchar(10));
create table t (id int primary key, v varchar(10));
insert into shop.t values (1, 'é');
insert into `other-db`.t values (1, 'é');
insert into t values (1, 'é');
