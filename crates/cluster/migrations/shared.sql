-- What the front ends of a cluster share whose catalog is in PostgreSQL, in the catalog's schema.
CREATE TABLE cluster_settings (
    id         BIGINT PRIMARY KEY CHECK (id = 1),
    version    BIGINT NOT NULL,
    -- A number that no other archive has, in hexadecimal digits.
    archive    TEXT COLLATE "C" NOT NULL,
    -- Raised whenever another front end becomes the leader.
    epoch      BIGINT NOT NULL,
    -- The process of the front end that decides what workers hold, until its lease expires.
    leader     BIGINT,
    expires_at TIMESTAMPTZ NOT NULL
);

-- The front ends, each until its row expires.
CREATE TABLE cluster_front_ends (
    process    BIGINT PRIMARY KEY,
    address    TEXT COLLATE "C" NOT NULL,
    replicas   BIGINT NOT NULL,
    -- Whether it gives up files of the data directory that workers hold (1) or not (0).
    gives_up   BIGINT NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);

-- The workers that shall give everything up.
CREATE TABLE cluster_draining (
    worker TEXT COLLATE "C" PRIMARY KEY
);

-- The workers that were taken off the list lately: each front end forgets them.
CREATE TABLE cluster_removals (
    number     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker     TEXT COLLATE "C" NOT NULL,
    removed_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
