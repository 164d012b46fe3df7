-- The dialect of a query's statement; until now all were in MySQL's.
ALTER TABLE queries ADD COLUMN dialect TEXT NOT NULL DEFAULT 'mysql';
