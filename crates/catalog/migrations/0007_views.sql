-- Version 7: views, each a query that is read under a name.

CREATE TABLE views (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    database_id      INTEGER NOT NULL REFERENCES databases (id) ON DELETE CASCADE,
    name             TEXT NOT NULL,
    folded_name      TEXT NOT NULL,
    -- Where tables that the definition names without a database are looked for.
    default_database TEXT,
    definition       TEXT NOT NULL,
    -- The names of its columns, as a JSON array of strings.
    columns          TEXT NOT NULL,
    ra_column        TEXT,
    dec_column       TEXT,
    description      TEXT,
    created_at       TEXT NOT NULL,
    checksum         INTEGER NOT NULL DEFAULT 0,
    UNIQUE (database_id, folded_name)
) STRICT;

-- One more list has a checksum.
ALTER TABLE lists RENAME TO lists_without_views;

CREATE TABLE lists (
    name     TEXT    NOT NULL PRIMARY KEY CHECK (name IN ('databases', 'loads', 'views')),
    checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO lists (name, checksum) SELECT name, checksum FROM lists_without_views;

DROP TABLE lists_without_views;
