-- Checksums of what the catalog says: docs/catalog.md tells what each covers. They are computed right after this step, of
-- what the catalog says then.

ALTER TABLE databases ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tables ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE loads ADD COLUMN chunk_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE loads ADD COLUMN chunks_checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE loads ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;

CREATE TABLE lists (
    name     TEXT    NOT NULL PRIMARY KEY CHECK (name IN ('databases', 'loads')),
    checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
