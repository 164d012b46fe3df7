-- A table is an ordered list of parts. A part is what one load has published; its number is the load's.
-- Each table of the version before gets a list of one part.

CREATE TABLE tables_3 (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    database_id INTEGER NOT NULL REFERENCES databases (id),
    name        TEXT    NOT NULL,
    folded_name TEXT    NOT NULL,
    placement   INTEGER NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('director', 'child', 'match', 'replicated')),
    key_column  TEXT,
    ra_column   TEXT,
    dec_column  TEXT,
    scan_rating INTEGER NOT NULL CHECK (scan_rating BETWEEN 0 AND 255),
    checksum    INTEGER NOT NULL DEFAULT 0,
    UNIQUE (database_id, folded_name),
    CHECK ((ra_column IS NULL) = (dec_column IS NULL))
) STRICT;

CREATE TABLE parts (
    load_id     INTEGER PRIMARY KEY REFERENCES loads (id),
    table_id    INTEGER NOT NULL REFERENCES tables_3 (id) ON DELETE CASCADE,
    ordinal     INTEGER NOT NULL,
    row_count   INTEGER NOT NULL CHECK (row_count >= 0),
    byte_count  INTEGER NOT NULL CHECK (byte_count >= 0),
    null_keys   INTEGER NOT NULL CHECK (null_keys >= 0),
    orphan_rows INTEGER NOT NULL CHECK (orphan_rows >= 0),
    loaded_at   TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    UNIQUE (table_id, ordinal)
) STRICT;

CREATE TABLE columns_3 (
    table_id    INTEGER NOT NULL REFERENCES tables_3 (id) ON DELETE CASCADE,
    ordinal     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    folded_name TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    nullable    INTEGER NOT NULL CHECK (nullable IN (0, 1)),
    declared    TEXT,
    PRIMARY KEY (table_id, ordinal),
    UNIQUE (table_id, folded_name)
) STRICT, WITHOUT ROWID;

-- director_placement has no foreign key: the director may be replaced or dropped, which is how a child finds out that its rows
-- were placed by another director. It is NULL once the director has keys whose rows in this table are elsewhere.
CREATE TABLE table_directors_3 (
    table_id           INTEGER NOT NULL REFERENCES tables_3 (id) ON DELETE CASCADE,
    ordinal            INTEGER NOT NULL,
    director           TEXT    NOT NULL,
    key_column         TEXT    NOT NULL,
    director_placement INTEGER,
    PRIMARY KEY (table_id, ordinal)
) STRICT, WITHOUT ROWID;

INSERT INTO tables_3
    SELECT id, database_id, name, folded_name, load_id, kind, key_column, ra_column, dec_column, scan_rating, checksum
    FROM tables;
INSERT INTO parts
    SELECT load_id, id, 0, row_count, byte_count, null_keys,
           -- How many pairs have an unknown end was not written down: all of them at most.
           CASE kind WHEN 'match' THEN row_count ELSE orphan_rows END,
           loaded_at, ''
    FROM tables;
INSERT INTO columns_3 SELECT table_id, ordinal, name, folded_name, type, nullable, declared FROM columns;
INSERT INTO table_directors_3 SELECT table_id, ordinal, director, key_column, director_load FROM table_directors;

DROP TABLE columns;
DROP TABLE table_directors;
DROP TABLE tables;
ALTER TABLE tables_3 RENAME TO tables;
ALTER TABLE columns_3 RENAME TO columns;
ALTER TABLE table_directors_3 RENAME TO table_directors;

-- A table shows several loads now.
DROP INDEX one_published_load;

-- The chunk after which the file is named that holds this chunk; NULL for the chunk's own file.
ALTER TABLE chunks ADD COLUMN file INTEGER;
-- Rows of a director that are kept here though their positions lie elsewhere: their keys were here before.
ALTER TABLE chunks ADD COLUMN strays INTEGER NOT NULL DEFAULT 0;
