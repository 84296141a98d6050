insert into m (id,k2,k3,b64,s64,z,zd,f,d,t0,t6,dt0,dt6,ts,ts6,y,da,j,g,vb,bn,tb,tx,cj,cg,cc,cu,c32) values (1,'a',0,0,'',0,0,0,0,'838:59:59','-838:59:59','9999-12-31 23:59:59','0001-01-01 00:00:00.000001','1970-01-01 00:00:01','2038-01-19 03:14:07.999999',0,'9999-12-31','[]',st_geomfromtext('POLYGON((0 0,1 0,1 1,0 0))'),'', '', x'7f80', 'tiny', 'ｱ','文','Ё','','a');
insert into m (id,k2,k3) values (2,'a',7);
update m set id = 3, j = json_set(coalesce(j,'{}'), '$.x', cast('2024-01-02 03:04:05.6' as datetime(6)), '$.d', cast(1.50 as decimal(5,2)), '$.b', cast('12:13:14' as time)) where id = 2;
update m set k2 = 'b', vb = x'616263', z = 999999 where id = 1;
delete from m where id > 5;
