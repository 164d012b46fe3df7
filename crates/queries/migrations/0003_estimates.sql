-- Bytes of columns that a query decodes by the catalog's counts, and the milliseconds that it was expected to take.
ALTER TABLE queries ADD COLUMN scan_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queries ADD COLUMN estimate INTEGER;
