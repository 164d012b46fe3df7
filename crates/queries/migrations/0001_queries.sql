-- Queries, running and past. What is written often has a file of its own, so that it neither changes the catalog nor waits for loads.
CREATE TABLE queries (
    id            INTEGER PRIMARY KEY,
    user          TEXT NOT NULL,
    database      TEXT,
    protocol      TEXT NOT NULL,
    is_async      INTEGER NOT NULL,
    state         TEXT NOT NULL,
    -- Times are microseconds since 1970 in UTC.
    submitted     INTEGER NOT NULL,
    lane          TEXT,
    started       INTEGER,
    ended         INTEGER,
    pieces_done   INTEGER NOT NULL DEFAULT 0,
    pieces        INTEGER NOT NULL DEFAULT 0,
    rows          INTEGER NOT NULL DEFAULT 0,
    result_bytes  INTEGER NOT NULL DEFAULT 0,
    expires       INTEGER,
    error_code    INTEGER,
    error         TEXT,
    -- Settings of the connection that apply to the query.
    row_limit     INTEGER,
    time_limit    INTEGER,
    statement     TEXT NOT NULL
) STRICT;

-- The first number that no process has reserved.
CREATE TABLE numbers (
    next INTEGER NOT NULL
) STRICT;
INSERT INTO numbers (next) VALUES (1000001);
