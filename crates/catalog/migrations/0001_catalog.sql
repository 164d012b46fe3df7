-- The catalog's tables. docs/catalog.md says what each is for and what always holds.

CREATE TABLE databases (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL,
    folded_name TEXT    NOT NULL UNIQUE,
    stripes     INTEGER NOT NULL CHECK (stripes > 0),
    sub_stripes INTEGER NOT NULL CHECK (sub_stripes > 0),
    overlap_deg REAL    NOT NULL CHECK (overlap_deg >= 0)
) STRICT;

-- A load's database and table need not exist while it runs: they are kept by name.
CREATE TABLE loads (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    folded_database TEXT    NOT NULL,
    folded_table    TEXT    NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('running', 'published', 'superseded', 'abandoned')),
    pid             INTEGER NOT NULL,
    host            TEXT    NOT NULL,
    started_at      TEXT    NOT NULL,
    ended_at        TEXT
) STRICT;

CREATE INDEX loads_of_table ON loads (folded_database, folded_table, state);
CREATE UNIQUE INDEX one_published_load ON loads (folded_database, folded_table) WHERE state = 'published';

CREATE TABLE tables (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    database_id INTEGER NOT NULL REFERENCES databases (id),
    name        TEXT    NOT NULL,
    folded_name TEXT    NOT NULL,
    load_id     INTEGER NOT NULL UNIQUE REFERENCES loads (id),
    kind        TEXT    NOT NULL CHECK (kind IN ('director', 'child', 'match', 'replicated')),
    key_column  TEXT,
    ra_column   TEXT,
    dec_column  TEXT,
    scan_rating INTEGER NOT NULL CHECK (scan_rating BETWEEN 0 AND 255),
    null_keys   INTEGER NOT NULL CHECK (null_keys >= 0),
    orphan_rows INTEGER NOT NULL CHECK (orphan_rows >= 0),
    row_count   INTEGER NOT NULL CHECK (row_count >= 0),
    byte_count  INTEGER NOT NULL CHECK (byte_count >= 0),
    loaded_at   TEXT    NOT NULL,
    UNIQUE (database_id, folded_name),
    CHECK ((ra_column IS NULL) = (dec_column IS NULL))
) STRICT;

CREATE TABLE columns (
    table_id    INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    ordinal     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    folded_name TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    nullable    INTEGER NOT NULL CHECK (nullable IN (0, 1)),
    declared    TEXT,
    PRIMARY KEY (table_id, ordinal),
    UNIQUE (table_id, folded_name)
) STRICT, WITHOUT ROWID;

-- director_load has no foreign key: that load may be replaced and forgotten, which is how a child
-- finds out that it was placed by an older director.
CREATE TABLE table_directors (
    table_id      INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    ordinal       INTEGER NOT NULL,
    director      TEXT    NOT NULL,
    key_column    TEXT    NOT NULL,
    director_load INTEGER NOT NULL,
    PRIMARY KEY (table_id, ordinal)
) STRICT, WITHOUT ROWID;

-- Chunks belong to a load, not to a table, so that a query that began before a replacement still
-- finds the chunks it began with.
CREATE TABLE chunks (
    load_id          INTEGER NOT NULL REFERENCES loads (id) ON DELETE CASCADE,
    chunk_id         INTEGER NOT NULL,
    row_count        INTEGER NOT NULL,
    byte_count       INTEGER NOT NULL,
    checksum         INTEGER NOT NULL,
    overlap_rows     INTEGER,
    overlap_bytes    INTEGER,
    overlap_checksum INTEGER,
    ra_min           REAL,
    dec_min          REAL,
    ra_max           REAL,
    dec_max          REAL,
    PRIMARY KEY (load_id, chunk_id)
) STRICT, WITHOUT ROWID;
