-- Bytes of columns that a query has decoded, and bytes that it has found decoded in memory.
ALTER TABLE queries ADD COLUMN decoded_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queries ADD COLUMN shared_bytes INTEGER NOT NULL DEFAULT 0;
