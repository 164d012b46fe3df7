-- Whether what a query reads tells of rows that its user may not see.
ALTER TABLE queries ADD COLUMN veiled INTEGER NOT NULL DEFAULT 0;
