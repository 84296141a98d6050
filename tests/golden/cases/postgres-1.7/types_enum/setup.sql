CREATE SCHEMA "Other";
CREATE TYPE "Other"."Level" AS ENUM ('Low', 'HIGH', 'it''s', 'a,b', 'q"q', '');
CREATE TYPE small AS ENUM ('b', 'a');
ALTER TYPE small ADD VALUE 'first' BEFORE 'b';
CREATE TABLE e (id INT PRIMARY KEY, l "Other"."Level", s small NOT NULL DEFAULT 'a', al "Other"."Level"[], l2 "Other"."Level" DEFAULT 'it''s');
INSERT INTO e VALUES (1, 'it''s', 'first', '{Low,"a,b","q\"q",""}');
CREATE TABLE k (l "Other"."Level" PRIMARY KEY, v INT);
INSERT INTO k VALUES ('Low', 1);
