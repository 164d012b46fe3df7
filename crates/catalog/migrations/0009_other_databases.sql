-- Version 9: children of directors in other databases. The columns are NULL where the director is in the table's own database.
-- stripes and sub_stripes are those by which that database was cut when the rows were placed, and by which this table is.

ALTER TABLE table_directors ADD COLUMN director_database TEXT;
ALTER TABLE table_directors ADD COLUMN stripes INTEGER;
ALTER TABLE table_directors ADD COLUMN sub_stripes INTEGER;
