-- The query whose result answered this one, if it did not run.
ALTER TABLE queries ADD COLUMN cached_from INTEGER;
