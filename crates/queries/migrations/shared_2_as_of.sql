-- The time of whose state published data are read, in microseconds since 1970 in UTC; the latest state without one.
ALTER TABLE queries ADD COLUMN as_of BIGINT;
UPDATE query_settings SET version = 2;
