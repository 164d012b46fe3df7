-- The queries of all front ends of a data directory whose catalog is in PostgreSQL, in the catalog's schema.
CREATE TABLE query_settings (
    id          BIGINT PRIMARY KEY CHECK (id = 1),
    version     BIGINT NOT NULL,
    -- The first number that no process has reserved.
    next_number BIGINT NOT NULL,
    -- Changes of the list so far. Each change raises it first, so that changes are committed in the order of their numbers.
    changes     BIGINT NOT NULL
);

-- The front ends that run queries. Numbers are never used again.
CREATE TABLE query_front_ends (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE queries (
    id            BIGINT PRIMARY KEY,
    "user"        TEXT COLLATE "C" NOT NULL,
    database      TEXT COLLATE "C",
    protocol      TEXT COLLATE "C" NOT NULL,
    is_async      BIGINT NOT NULL,
    state         TEXT COLLATE "C" NOT NULL,
    lane          TEXT COLLATE "C",
    -- Times are microseconds since 1970 in UTC.
    submitted     BIGINT NOT NULL,
    started       BIGINT,
    ended         BIGINT,
    pieces_done   BIGINT NOT NULL,
    pieces        BIGINT NOT NULL,
    scan_bytes    BIGINT NOT NULL,
    estimate      BIGINT,
    decoded_bytes BIGINT NOT NULL,
    shared_bytes  BIGINT NOT NULL,
    rows          BIGINT NOT NULL,
    result_bytes  BIGINT NOT NULL,
    expires       BIGINT,
    error_code    BIGINT,
    error         TEXT COLLATE "C",
    row_limit     BIGINT,
    time_limit    BIGINT,
    -- What the connection had set of cte_max_recursion_depth and group_concat_max_len.
    recursion_depth    BIGINT,
    group_concat_bytes BIGINT,
    -- The time of whose state published data are read; the latest state without one.
    as_of         BIGINT,
    dialect       TEXT COLLATE "C" NOT NULL,
    statement     TEXT COLLATE "C" NOT NULL,
    cached_from   BIGINT,
    milestones    TEXT COLLATE "C" NOT NULL,
    -- How many warnings are beside its stored result.
    warnings      BIGINT NOT NULL,
    -- Whether what it reads tells of rows that its user may not see.
    veiled        BIGINT NOT NULL,
    -- How often another front end has taken it over: its journal and its result are named after that.
    epoch         BIGINT NOT NULL,
    -- Who runs it, or did.
    front_end     BIGINT NOT NULL,
    -- The change that was the last one of it.
    changed       BIGINT NOT NULL,
    -- A query that was removed stays for an hour, so that all front ends learn of it.
    removed_at    TIMESTAMPTZ
);
CREATE INDEX queries_changed ON queries (changed);
CREATE INDEX queries_active ON queries (front_end) WHERE state IN ('QUEUED', 'EXECUTING') AND removed_at IS NULL;
CREATE INDEX queries_removed ON queries (removed_at) WHERE removed_at IS NOT NULL;
