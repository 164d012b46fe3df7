//! The tables of an alert database, and the statements on them. They are the same for SQLite and PostgreSQL.
//!
//! `CROSS JOIN` keeps SQLite from looping over the table before the given rows.

/// Which types a database has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// The version of the tables.
pub(crate) const FORMAT: i64 = 4;

const TABLES: &str = "
CREATE TABLE settings (name {text} PRIMARY KEY, value {text} NOT NULL) {plain};
CREATE TABLE metadata (name {text} PRIMARY KEY, value {text} NOT NULL) {plain};
CREATE TABLE layouts (number {int} PRIMARY KEY, table_name {text} NOT NULL, columns {text} NOT NULL) {plain};
-- `emptied` of those whose forced sources were removed.
CREATE TABLE visits (visit {int} NOT NULL, detector {int} NOT NULL, emptied {int}, PRIMARY KEY (visit, detector)) {clustered};
-- What clients call their stores, so that one that is sent again is stored once.
CREATE TABLE stores (request {text} PRIMARY KEY, stored {real} NOT NULL) {clustered};
-- A chunk that was deleted keeps its number and loses its id. What is stored after an edition was closed gets another number, so that
-- several may have one id.
CREATE TABLE replica_chunks (
    number {int} PRIMARY KEY,
    id {int},
    updated {int} NOT NULL,
    unique_id {text} NOT NULL,
    edition {int}
) {plain};
CREATE INDEX replica_chunks_id ON replica_chunks (id);
CREATE INDEX replica_chunks_edition ON replica_chunks (edition);

-- The latest version of each live object.
CREATE TABLE latest (
    htm {int} NOT NULL,
    object {int} NOT NULL,
    validity_start {real} NOT NULL,
    sources {int},
    layout {int} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (htm, object)
) {clustered};
CREATE UNIQUE INDEX latest_object ON latest (object);

CREATE TABLE objects (
    object {int} NOT NULL,
    validity_start {real} NOT NULL,
    validity_end {real},
    sources {int},
    chunk {int},
    layout {int} NOT NULL,
    payload {bytes} NOT NULL
) {plain};
CREATE UNIQUE INDEX objects_version ON objects (object, validity_start);
CREATE UNIQUE INDEX objects_open ON objects (object) WHERE validity_end IS NULL;
CREATE INDEX objects_start ON objects (validity_start);
CREATE INDEX objects_chunk ON objects (chunk) WHERE chunk IS NOT NULL;

-- Clustered by object, as they are read; those of no object have the smallest number.
CREATE TABLE sources (
    object {int} NOT NULL,
    midpoint {real} NOT NULL,
    source {int} NOT NULL,
    htm {int} NOT NULL,
    ss_object {int},
    ss_reassigned {real},
    withdrawn {real},
    chunk {int},
    layout {int} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (object, midpoint, source)
) {clustered};
CREATE UNIQUE INDEX sources_source ON sources (source);
CREATE INDEX sources_htm ON sources (htm);
CREATE INDEX sources_chunk ON sources (chunk) WHERE chunk IS NOT NULL;

CREATE TABLE forced (
    object {int} NOT NULL,
    visit {int} NOT NULL,
    detector {int} NOT NULL,
    midpoint {real} NOT NULL,
    htm {int} NOT NULL,
    withdrawn {real},
    chunk {int},
    layout {int} NOT NULL,
    payload {bytes} NOT NULL,
    PRIMARY KEY (object, visit, detector)
) {clustered};
CREATE INDEX forced_htm ON forced (htm);
CREATE INDEX forced_chunk ON forced (chunk) WHERE chunk IS NOT NULL;

CREATE TABLE updates (
    time_ns {int} NOT NULL,
    place {int} NOT NULL,
    chunk {int},
    record {text} NOT NULL,
    PRIMARY KEY (time_ns, place)
) {clustered};
CREATE INDEX updates_chunk ON updates (chunk) WHERE chunk IS NOT NULL;

{editions}
{emptied}";

/// The numbers of sources that only the archive has, as ranges, each with a circle in which these sources are: degrees, NULL where that is not
/// known.
const EMPTIED_TABLES: &str = "CREATE TABLE emptied_sources (low {int} PRIMARY KEY, high {int} NOT NULL, ra {real}, decl {real}, radius {real}) {plain};";

/// What editions are made of: what rows were before they were changed, and what they became, by the edition in which that was. The first
/// change of a row writes down, under the edition in which the row was stored, what it was then.
const EDITION_TABLES: &str =
    "CREATE TABLE editions (edition {int} PRIMARY KEY, closed_us {int} NOT NULL) {plain};
CREATE TABLE source_states (
    source {int} NOT NULL,
    edition {int} NOT NULL,
    object {int} NOT NULL,
    ss_object {int},
    ss_reassigned {real},
    withdrawn {real},
    PRIMARY KEY (source, edition)
) {clustered};
CREATE INDEX source_states_edition ON source_states (edition);
CREATE TABLE object_states (
    object {int} NOT NULL,
    validity_start {real} NOT NULL,
    edition {int} NOT NULL,
    sources {int},
    PRIMARY KEY (object, validity_start, edition)
) {clustered};
CREATE INDEX object_states_edition ON object_states (edition);
-- Versions that ended without a new one.
CREATE TABLE object_closes (
    object {int} NOT NULL,
    validity_start {real} NOT NULL,
    edition {int} NOT NULL,
    validity_end {real} NOT NULL,
    PRIMARY KEY (object, validity_start)
) {clustered};
CREATE INDEX object_closes_edition ON object_closes (edition);
CREATE TABLE forced_withdrawals (
    object {int} NOT NULL,
    visit {int} NOT NULL,
    detector {int} NOT NULL,
    edition {int} NOT NULL,
    withdrawn {real} NOT NULL,
    PRIMARY KEY (object, visit, detector)
) {clustered};
CREATE INDEX forced_withdrawals_edition ON forced_withdrawals (edition);
";

/// What brings the tables of version 1 up to date. Versions that were closed without a new one are closed in the first edition.
const FROM_VERSION_1: &str = "
ALTER TABLE replica_chunks RENAME TO replica_chunks_1;
CREATE TABLE replica_chunks (
    number {int} PRIMARY KEY,
    id {int},
    updated {int} NOT NULL,
    unique_id {text} NOT NULL,
    edition {int}
) {plain};
INSERT INTO replica_chunks (number, id, updated, unique_id) SELECT number, id, updated, unique_id FROM replica_chunks_1;
DROP TABLE replica_chunks_1;
CREATE INDEX replica_chunks_id ON replica_chunks (id);
CREATE INDEX replica_chunks_edition ON replica_chunks (edition);
{editions}
INSERT INTO object_closes (object, validity_start, edition, validity_end)
    SELECT o.object, o.validity_start, 1, o.validity_end FROM objects o WHERE o.validity_end IS NOT NULL AND o.chunk IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM objects n WHERE n.object = o.object AND n.validity_start = o.validity_end);
";

/// What brings the tables of version 2 up to date.
const FROM_VERSION_2: &str = "
ALTER TABLE visits ADD COLUMN emptied {int};
{emptied}
";

/// What brings the tables of version 3 up to date.
const FROM_VERSION_3: &str = "
ALTER TABLE emptied_sources ADD COLUMN ra {real};
ALTER TABLE emptied_sources ADD COLUMN decl {real};
ALTER TABLE emptied_sources ADD COLUMN radius {real};
";

/// What was read of the database that is followed: its replica chunks, as they were.
const FOLLOWING_TABLES: &str = "CREATE TABLE followed_chunks (id {int} PRIMARY KEY, unique_id {text}, updates {int} NOT NULL) {plain};";

/// The statements that make what only databases have that follow another one.
pub(crate) fn following_tables(dialect: Dialect) -> String {
    in_dialect(FOLLOWING_TABLES, dialect)
}

/// The statements that make the tables.
pub(crate) fn tables(dialect: Dialect) -> String {
    in_dialect(TABLES, dialect)
}

/// The statements that drop them, those that there are.
pub(crate) fn drop_tables() -> String {
    let names = [
        "settings",
        "metadata",
        "layouts",
        "visits",
        "stores",
        "replica_chunks",
        "latest",
        "objects",
        "sources",
        "forced",
        "updates",
        "editions",
        "source_states",
        "object_states",
        "object_closes",
        "forced_withdrawals",
        "emptied_sources",
        "followed_chunks",
    ];
    let drops = names
        .iter()
        .map(|name| format!("DROP TABLE IF EXISTS {name};"));
    drops.collect::<Vec<_>>().join("\n")
}

/// The statements that bring tables of an older version up to date; `None` if they are.
pub(crate) fn upgrade(version: i64, dialect: Dialect) -> Option<String> {
    match version {
        1 => Some(in_dialect(
            &[FROM_VERSION_1, FROM_VERSION_2].concat(),
            dialect,
        )),
        2 => Some(in_dialect(FROM_VERSION_2, dialect)),
        3 => Some(in_dialect(FROM_VERSION_3, dialect)),
        _ => None,
    }
}

pub(crate) fn in_dialect(statements: &str, dialect: Dialect) -> String {
    let (int, real, bytes, text, plain, clustered) = match dialect {
        Dialect::Sqlite => (
            "INTEGER",
            "REAL",
            "BLOB",
            "TEXT",
            "STRICT",
            "STRICT, WITHOUT ROWID",
        ),
        Dialect::Postgres => ("bigint", "double precision", "bytea", "text", "", ""),
    };
    let replaced = [
        ("{editions}", EDITION_TABLES),
        ("{emptied}", EMPTIED_TABLES),
        ("{int}", int),
        ("{real}", real),
        ("{bytes}", bytes),
        ("{text}", text),
        ("{plain}", plain),
        ("{clustered}", clustered),
    ];
    let tables = replaced
        .iter()
        .fold(statements.to_owned(), |tables, (name, value)| {
            tables.replace(name, value)
        });
    tables.trim().to_owned()
}

// Settings, metadata, layouts.

pub(crate) const SETTINGS: &str = "SELECT name, value FROM settings";
pub(crate) const SET_SETTING: &str = "WITH r(name, value) AS ({rows}) INSERT INTO settings (name, value) SELECT name, value FROM r WHERE true \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
pub(crate) const LAYOUTS: &str = "SELECT number, table_name, columns FROM layouts ORDER BY number";
pub(crate) const ADD_LAYOUT: &str = "WITH r(number, table_name, columns) AS ({rows}) INSERT INTO layouts (number, table_name, columns) \
     SELECT number, table_name, columns FROM r";
pub(crate) const METADATA: &str = "SELECT name, value FROM metadata ORDER BY name";
pub(crate) const SET_METADATA: &str = "WITH r(name, value) AS ({rows}) INSERT INTO metadata (name, value) SELECT name, value FROM r WHERE true \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
pub(crate) const ADD_METADATA: &str = "WITH r(name, value) AS ({rows}) INSERT INTO metadata (name, value) SELECT name, value FROM r WHERE true \
     ON CONFLICT (name) DO NOTHING";
pub(crate) const DELETE_METADATA: &str =
    "WITH r(name) AS ({rows}) DELETE FROM metadata WHERE name IN (SELECT name FROM r)";

// Storing.

pub(crate) const STORED_REQUEST: &str = "WITH r(request) AS ({rows}) SELECT s.stored FROM r CROSS JOIN stores s WHERE s.request = r.request";
pub(crate) const ADD_REQUEST: &str = "WITH r(request, stored) AS ({rows}) INSERT INTO stores (request, stored) SELECT request, stored FROM r";
pub(crate) const ADD_VISITS: &str = "WITH r(visit, detector) AS ({rows}) INSERT INTO visits (visit, detector) SELECT visit, detector FROM r WHERE true \
     ON CONFLICT (visit, detector) DO NOTHING";
pub(crate) const VISIT: &str = "WITH r(visit, detector) AS ({rows}) SELECT v.visit FROM r CROSS JOIN visits v \
     WHERE v.visit = r.visit AND v.detector = r.detector";
pub(crate) const LATEST_OF: &str = "WITH r(object) AS ({rows}) SELECT l.object, l.htm, l.validity_start, l.sources, l.layout, l.payload \
     FROM r CROSS JOIN latest l WHERE l.object = r.object";
/// Of objects that may have been closed: when the last of their versions began and ended.
pub(crate) const LAST_VERSIONS: &str = "WITH r(object) AS ({rows}) SELECT o.object, MAX(o.validity_start), MAX(o.validity_end) \
     FROM r CROSS JOIN objects o WHERE o.object = r.object GROUP BY o.object";
pub(crate) const CLOSE_VERSIONS: &str = "WITH r(object, validity_start, validity_end) AS ({rows}) UPDATE objects SET validity_end = r.validity_end FROM r \
     WHERE objects.object = r.object AND objects.validity_start = r.validity_start";
pub(crate) const REMOVE_LATEST: &str = "WITH r(htm, object) AS ({rows}) DELETE FROM latest WHERE (htm, object) IN (SELECT htm, object FROM r)";
pub(crate) const ADD_LATEST: &str = "WITH r(htm, object, validity_start, sources, layout, payload) AS ({rows}) \
     INSERT INTO latest (htm, object, validity_start, sources, layout, payload) \
     SELECT htm, object, validity_start, sources, layout, payload FROM r";
pub(crate) const ADD_OBJECTS: &str = "WITH r(object, validity_start, validity_end, sources, chunk, layout, payload) AS ({rows}) \
     INSERT INTO objects (object, validity_start, validity_end, sources, chunk, layout, payload) \
     SELECT object, validity_start, validity_end, sources, chunk, layout, payload FROM r";
pub(crate) const ADD_SOURCES: &str = "WITH r(object, midpoint, source, htm, ss_object, ss_reassigned, withdrawn, chunk, layout, payload) AS ({rows}) \
     INSERT INTO sources (object, midpoint, source, htm, ss_object, ss_reassigned, withdrawn, chunk, layout, payload) \
     SELECT object, midpoint, source, htm, ss_object, ss_reassigned, withdrawn, chunk, layout, payload FROM r WHERE true \
     ON CONFLICT DO NOTHING";
pub(crate) const ADD_FORCED: &str = "WITH r(object, visit, detector, midpoint, htm, withdrawn, chunk, layout, payload) AS ({rows}) \
     INSERT INTO forced (object, visit, detector, midpoint, htm, withdrawn, chunk, layout, payload) \
     SELECT object, visit, detector, midpoint, htm, withdrawn, chunk, layout, payload FROM r WHERE true \
     ON CONFLICT DO NOTHING";

// Changing.

pub(crate) const SOURCES_BY_ID: &str = "WITH r(source) AS ({rows}) SELECT s.source, s.object, s.midpoint, s.ss_object, s.withdrawn, s.layout, s.payload \
     FROM r CROSS JOIN sources s WHERE s.source = r.source";
pub(crate) const MOVE_SOURCES: &str = "WITH r(source, object) AS ({rows}) UPDATE sources SET object = r.object, ss_object = NULL, ss_reassigned = NULL FROM r \
     WHERE sources.source = r.source";
pub(crate) const REASSIGN_SOURCES: &str = "WITH r(source, ss_object, ss_reassigned) AS ({rows}) \
     UPDATE sources SET ss_object = r.ss_object, ss_reassigned = r.ss_reassigned FROM r WHERE sources.source = r.source";
pub(crate) const WITHDRAW_SOURCES: &str = "WITH r(source, withdrawn) AS ({rows}) UPDATE sources SET withdrawn = r.withdrawn FROM r WHERE sources.source = r.source";
/// Objects that still have a source which is none of the solar system.
pub(crate) const WITH_SOURCES: &str = "WITH r(object) AS ({rows}) SELECT r.object FROM r \
     WHERE EXISTS (SELECT 1 FROM sources s WHERE s.object = r.object AND s.ss_object IS NULL)";
pub(crate) const COUNT_LATEST: &str = "WITH r(htm, object, sources) AS ({rows}) UPDATE latest SET sources = r.sources FROM r \
     WHERE latest.htm = r.htm AND latest.object = r.object";
pub(crate) const COUNT_OBJECTS: &str = "WITH r(object, validity_start, sources) AS ({rows}) UPDATE objects SET sources = r.sources FROM r \
     WHERE objects.object = r.object AND objects.validity_start = r.validity_start";
pub(crate) const FORCED_BY_ID: &str = "WITH r(object, visit, detector) AS ({rows}) \
     SELECT f.object, f.visit, f.detector, f.midpoint, f.withdrawn, f.layout, f.payload \
     FROM r CROSS JOIN forced f WHERE f.object = r.object AND f.visit = r.visit AND f.detector = r.detector";
pub(crate) const WITHDRAW_FORCED: &str = "WITH r(object, visit, detector, withdrawn) AS ({rows}) UPDATE forced SET withdrawn = r.withdrawn FROM r \
     WHERE forced.object = r.object AND forced.visit = r.visit AND forced.detector = r.detector";
pub(crate) const LAST_PLACE: &str = "WITH r(time_ns) AS ({rows}) SELECT MAX(u.place) FROM r CROSS JOIN updates u WHERE u.time_ns = r.time_ns";
pub(crate) const ADD_UPDATES: &str = "WITH r(time_ns, place, chunk, record) AS ({rows}) INSERT INTO updates (time_ns, place, chunk, record) \
     SELECT time_ns, place, chunk, record FROM r WHERE true ON CONFLICT (time_ns, place) DO NOTHING";

// Replica chunks.

pub(crate) const CHUNK_OF: &str = "WITH r(id) AS ({rows}) SELECT c.number FROM r CROSS JOIN replica_chunks c WHERE c.id = r.id AND c.edition IS NULL";
pub(crate) const NEXT_CHUNK: &str = "SELECT COALESCE(MAX(number), 0) + 1 FROM replica_chunks";
pub(crate) const ADD_CHUNK: &str = "WITH r(number, id, updated, unique_id) AS ({rows}) INSERT INTO replica_chunks (number, id, updated, unique_id) \
     SELECT number, id, updated, unique_id FROM r WHERE true \
     ON CONFLICT (number) DO UPDATE SET updated = excluded.updated, unique_id = excluded.unique_id";
pub(crate) const CHUNKS: &str =
    "SELECT id, updated, unique_id FROM replica_chunks WHERE id IS NOT NULL ORDER BY id, number";
pub(crate) const DELETE_CHUNKS: &str =
    "WITH r(id) AS ({rows}) UPDATE replica_chunks SET id = NULL WHERE id IN (SELECT id FROM r)";
pub(crate) const OBJECTS_OF_CHUNKS: &str = "WITH r(id) AS ({rows}) SELECT o.object, o.validity_start, o.validity_end, o.sources, c.id, o.layout, o.payload \
     FROM r CROSS JOIN replica_chunks c CROSS JOIN objects o WHERE c.id = r.id AND o.chunk = c.number";
pub(crate) const SOURCES_OF_CHUNKS: &str = "WITH r(id) AS ({rows}) SELECT s.source, s.object, s.ss_object, s.ss_reassigned, s.midpoint, s.withdrawn, c.id, s.layout, s.payload \
     FROM r CROSS JOIN replica_chunks c CROSS JOIN sources s WHERE c.id = r.id AND s.chunk = c.number";
pub(crate) const FORCED_OF_CHUNKS: &str = "WITH r(id) AS ({rows}) SELECT f.object, f.visit, f.detector, f.midpoint, f.withdrawn, c.id, f.layout, f.payload \
     FROM r CROSS JOIN replica_chunks c CROSS JOIN forced f WHERE c.id = r.id AND f.chunk = c.number";
pub(crate) const UPDATES_OF_CHUNKS: &str = "WITH r(id) AS ({rows}) SELECT u.record, u.time_ns, u.place FROM r CROSS JOIN replica_chunks c CROSS JOIN updates u \
     WHERE c.id = r.id AND u.chunk = c.number";

// Reading.

pub(crate) const LATEST_IN: &str = "WITH r(low, high) AS ({rows}) SELECT l.object, l.validity_start, l.sources, l.layout, l.payload \
     FROM r CROSS JOIN latest l WHERE l.htm BETWEEN r.low AND r.high";
pub(crate) const SOURCES_OF: &str = "WITH r(object, since) AS ({rows}) SELECT s.source, s.object, s.ss_object, s.ss_reassigned, s.midpoint, s.withdrawn, s.layout, s.payload \
     FROM r CROSS JOIN sources s WHERE s.object = r.object AND s.midpoint >= r.since AND s.ss_object IS NULL";
pub(crate) const SOURCES_IN: &str = "WITH r(low, high, since) AS ({rows}) SELECT s.source, s.object, s.ss_object, s.ss_reassigned, s.midpoint, s.withdrawn, s.layout, s.payload \
     FROM r CROSS JOIN sources s WHERE s.htm BETWEEN r.low AND r.high AND s.midpoint >= r.since AND s.ss_object IS NULL";
pub(crate) const FORCED_OF: &str = "WITH r(object, since) AS ({rows}) SELECT f.object, f.visit, f.detector, f.midpoint, f.withdrawn, f.layout, f.payload \
     FROM r CROSS JOIN forced f WHERE f.object = r.object AND f.midpoint >= r.since";
pub(crate) const FORCED_IN: &str = "WITH r(low, high, since) AS ({rows}) SELECT f.object, f.visit, f.detector, f.midpoint, f.withdrawn, f.layout, f.payload \
     FROM r CROSS JOIN forced f WHERE f.htm BETWEEN r.low AND r.high AND f.midpoint >= r.since";
pub(crate) const OBJECTS_SINCE: &str = "WITH r(since) AS ({rows}) SELECT o.object, o.validity_start, o.sources, o.layout, o.payload \
     FROM r CROSS JOIN objects o WHERE o.validity_start >= r.since AND o.validity_end IS NULL";
pub(crate) const OBJECTS_OF_ONE_SOURCE: &str = "SELECT COUNT(*) FROM latest WHERE sources = 1";

// Editions: what is published together.

pub(crate) const NEXT_EDITION: &str = "SELECT COALESCE(MAX(edition), 0) + 1 FROM editions";
pub(crate) const LAST_CLOSED: &str = "SELECT COALESCE(MAX(closed_us), 0) FROM editions";
/// The chunks of no edition, deleted ones among them.
pub(crate) const OPEN_CHUNKS: &str = "SELECT number, id FROM replica_chunks WHERE edition IS NULL";
pub(crate) const ADD_EDITION: &str = "WITH r(edition, closed_us) AS ({rows}) INSERT INTO editions (edition, closed_us) SELECT edition, closed_us FROM r";
pub(crate) const CLOSE_CHUNKS: &str = "WITH r(edition) AS ({rows}) UPDATE replica_chunks SET edition = r.edition FROM r WHERE replica_chunks.edition IS NULL";
pub(crate) const EDITIONS: &str = "SELECT edition, closed_us FROM editions ORDER BY edition";
pub(crate) const EDITION_CHUNKS: &str = "WITH r(edition) AS ({rows}) SELECT c.number, c.id FROM r CROSS JOIN replica_chunks c WHERE c.edition = r.edition ORDER BY c.number";

/// What sources were when the edition was closed in which they were stored; nothing of those that are of no edition yet.
pub(crate) const KEEP_SOURCES: &str = "WITH r(source) AS ({rows}) INSERT INTO source_states (source, edition, object, ss_object, ss_reassigned, withdrawn) \
     SELECT s.source, c.edition, s.object, s.ss_object, s.ss_reassigned, s.withdrawn \
     FROM r CROSS JOIN sources s CROSS JOIN replica_chunks c WHERE s.source = r.source AND c.number = s.chunk AND c.edition IS NOT NULL \
     ON CONFLICT DO NOTHING";
pub(crate) const NOTE_SOURCES: &str = "WITH r(source, edition) AS ({rows}) INSERT INTO source_states (source, edition, object, ss_object, ss_reassigned, withdrawn) \
     SELECT s.source, r.edition, s.object, s.ss_object, s.ss_reassigned, s.withdrawn \
     FROM r CROSS JOIN sources s WHERE s.source = r.source AND s.chunk IS NOT NULL \
     ON CONFLICT (source, edition) DO UPDATE SET object = excluded.object, ss_object = excluded.ss_object, \
     ss_reassigned = excluded.ss_reassigned, withdrawn = excluded.withdrawn";
pub(crate) const KEEP_OBJECTS: &str = "WITH r(object, validity_start) AS ({rows}) INSERT INTO object_states (object, validity_start, edition, sources) \
     SELECT o.object, o.validity_start, c.edition, o.sources FROM r CROSS JOIN objects o CROSS JOIN replica_chunks c \
     WHERE o.object = r.object AND o.validity_start = r.validity_start AND c.number = o.chunk AND c.edition IS NOT NULL \
     ON CONFLICT DO NOTHING";
pub(crate) const NOTE_OBJECTS: &str = "WITH r(object, validity_start, edition) AS ({rows}) INSERT INTO object_states (object, validity_start, edition, sources) \
     SELECT o.object, o.validity_start, r.edition, o.sources FROM r CROSS JOIN objects o \
     WHERE o.object = r.object AND o.validity_start = r.validity_start AND o.chunk IS NOT NULL \
     ON CONFLICT (object, validity_start, edition) DO UPDATE SET sources = excluded.sources";
pub(crate) const NOTE_CLOSES: &str = "WITH r(object, validity_start, edition, validity_end) AS ({rows}) \
     INSERT INTO object_closes (object, validity_start, edition, validity_end) SELECT object, validity_start, edition, validity_end FROM r";
pub(crate) const NOTE_WITHDRAWALS: &str = "WITH r(object, visit, detector, edition, withdrawn) AS ({rows}) \
     INSERT INTO forced_withdrawals (object, visit, detector, edition, withdrawn) SELECT object, visit, detector, edition, withdrawn FROM r";

// What an edition has, chunk by chunk.

/// The first versions of objects, whose positions become their homes: those that no edition before has, and of one edition the earliest.
pub(crate) const FIRST_VERSIONS: &str = "WITH r(number) AS ({rows}) SELECT o.object, o.validity_start, o.layout, o.payload \
     FROM r CROSS JOIN replica_chunks c CROSS JOIN objects o WHERE c.number = r.number AND o.chunk = r.number \
     AND NOT EXISTS (SELECT 1 FROM objects p CROSS JOIN replica_chunks d WHERE p.object = o.object AND d.number = p.chunk \
     AND (d.edition < c.edition OR d.edition = c.edition AND p.validity_start < o.validity_start))";
pub(crate) const EDITION_OBJECTS: &str = "WITH r(number) AS ({rows}) \
     SELECT o.object, o.validity_start, CASE WHEN t.object IS NULL THEN o.sources ELSE t.sources END, o.layout, o.payload \
     FROM r CROSS JOIN replica_chunks c CROSS JOIN objects o \
     LEFT JOIN object_states t ON t.object = o.object AND t.validity_start = o.validity_start AND t.edition = c.edition \
     WHERE c.number = r.number AND o.chunk = r.number";
pub(crate) const EDITION_SOURCES: &str = "WITH r(number) AS ({rows}) SELECT s.source, \
     CASE WHEN t.source IS NULL THEN s.object ELSE t.object END, CASE WHEN t.source IS NULL THEN s.ss_object ELSE t.ss_object END, \
     CASE WHEN t.source IS NULL THEN s.ss_reassigned ELSE t.ss_reassigned END, s.midpoint, \
     CASE WHEN t.source IS NULL THEN s.withdrawn ELSE t.withdrawn END, s.layout, s.payload \
     FROM r CROSS JOIN replica_chunks c CROSS JOIN sources s LEFT JOIN source_states t ON t.source = s.source AND t.edition = c.edition \
     WHERE c.number = r.number AND s.chunk = r.number";
pub(crate) const EDITION_FORCED: &str = "WITH r(number) AS ({rows}) SELECT f.object, f.visit, f.detector, f.midpoint, \
     CASE WHEN w.object IS NULL THEN f.withdrawn END, f.layout, f.payload \
     FROM r CROSS JOIN forced f LEFT JOIN forced_withdrawals w ON w.object = f.object AND w.visit = f.visit AND w.detector = f.detector \
     WHERE f.chunk = r.number";
/// Versions that ended because a new one was stored.
pub(crate) const SUCCEEDED_VERSIONS: &str = "WITH r(number) AS ({rows}), e(object, validity_start, validity_end) AS ( \
     SELECT n.object, (SELECT MAX(p.validity_start) FROM objects p WHERE p.object = n.object AND p.validity_start < n.validity_start), \
     n.validity_start FROM r CROSS JOIN objects n WHERE n.chunk = r.number) \
     SELECT e.object, e.validity_start, e.validity_end FROM e WHERE e.validity_start IS NOT NULL AND NOT EXISTS ( \
     SELECT 1 FROM object_closes x WHERE x.object = e.object AND x.validity_start = e.validity_start)";

// What changed in an edition of rows that earlier ones have.

pub(crate) const EDITION_CLOSES: &str = "WITH r(edition) AS ({rows}) SELECT x.object, x.validity_start, x.validity_end \
     FROM r CROSS JOIN object_closes x WHERE x.edition = r.edition";
pub(crate) const CHANGED_OBJECTS: &str = "WITH r(edition) AS ({rows}) SELECT t.object, t.validity_start, t.sources, \
     (SELECT MAX(b.edition) FROM object_states b WHERE b.object = t.object AND b.validity_start = t.validity_start AND b.edition < t.edition), \
     o.layout, o.payload FROM r CROSS JOIN object_states t CROSS JOIN objects o CROSS JOIN replica_chunks c \
     WHERE t.edition = r.edition AND o.object = t.object AND o.validity_start = t.validity_start AND c.number = o.chunk \
     AND c.edition < r.edition";
pub(crate) const CHANGED_SOURCES: &str = "WITH r(edition) AS ({rows}) SELECT t.source, t.object, t.ss_object, t.ss_reassigned, s.midpoint, t.withdrawn, \
     b.edition, b.object, s.layout, s.payload FROM r CROSS JOIN source_states t CROSS JOIN sources s CROSS JOIN replica_chunks c \
     CROSS JOIN source_states b WHERE t.edition = r.edition AND s.source = t.source AND c.number = s.chunk AND c.edition < r.edition \
     AND b.source = t.source AND b.edition = (SELECT MAX(p.edition) FROM source_states p WHERE p.source = t.source AND p.edition < t.edition)";
pub(crate) const EDITION_WITHDRAWALS: &str = "WITH r(edition) AS ({rows}) SELECT w.object, w.visit, w.detector, f.midpoint, w.withdrawn, f.layout, f.payload \
     FROM r CROSS JOIN forced_withdrawals w CROSS JOIN forced f WHERE w.edition = r.edition AND f.object = w.object \
     AND f.visit = w.visit AND f.detector = w.detector";

// What only the archive has.

/// Up to which edition the store was emptied, and when that was closed.
pub(crate) const EMPTIED: &str = "SELECT e.edition, e.closed_us FROM editions e WHERE e.edition = (SELECT CAST(s.value AS bigint) FROM settings s WHERE s.name = 'emptied')";
pub(crate) const CLOSED: &str = "WITH r(edition) AS ({rows}) SELECT e.closed_us FROM r CROSS JOIN editions e WHERE e.edition = r.edition";
/// Replica chunks through an edition are nobody's any more.
pub(crate) const FORGET_CHUNKS: &str = "WITH r(edition) AS ({rows}) UPDATE replica_chunks SET id = NULL WHERE id IS NOT NULL AND edition <= (SELECT edition FROM r)";
/// For times of editions: the first chunk of each.
pub(crate) const CHUNK_OF_TIME: &str = "WITH r(closed_us) AS ({rows}) SELECT r.closed_us, MIN(c.number) FROM r CROSS JOIN editions e CROSS JOIN replica_chunks c \
     WHERE e.closed_us = r.closed_us AND c.edition = e.edition GROUP BY r.closed_us";
/// Rows of chunks through an edition: the last of these chunks is looked for from the newest one back. A LIMIT is to
/// follow: in this order PostgreSQL goes by the index, and else it expects so many rows that it would look at all.
pub(crate) const SOURCES_THROUGH: &str = "WITH r(edition) AS ({rows}) SELECT s.source FROM sources s WHERE s.chunk <= \
     (SELECT c.number FROM replica_chunks c CROSS JOIN r WHERE +c.edition <= r.edition ORDER BY c.number DESC LIMIT 1) ORDER BY s.chunk";
pub(crate) const FORCED_THROUGH: &str = "WITH r(edition) AS ({rows}) SELECT f.object, f.visit, f.detector FROM forced f WHERE f.chunk <= \
     (SELECT c.number FROM replica_chunks c CROSS JOIN r WHERE +c.edition <= r.edition ORDER BY c.number DESC LIMIT 1) ORDER BY f.chunk";
pub(crate) const KNOWN_SOURCES: &str = "WITH r(source) AS ({rows}) SELECT s.source FROM r CROSS JOIN sources s WHERE s.source = r.source";
pub(crate) const KNOWN_FORCED: &str = "WITH r(object, visit, detector) AS ({rows}) SELECT f.object, f.visit, f.detector FROM r CROSS JOIN forced f \
     WHERE f.object = r.object AND f.visit = r.visit AND f.detector = r.detector";
/// Those of given sources that were removed once.
pub(crate) const EMPTIED_SOURCES: &str = "WITH r(source) AS ({rows}) SELECT r.source FROM r WHERE EXISTS (SELECT 1 FROM emptied_sources e \
     WHERE e.low = (SELECT MAX(f.low) FROM emptied_sources f WHERE f.low <= r.source) AND e.high >= r.source)";
/// The circles of the ranges of given sources that were removed once.
pub(crate) const CIRCLES_OF_EMPTIED: &str = "WITH r(source) AS ({rows}) SELECT e.ra, e.decl, e.radius FROM emptied_sources e WHERE e.low IN \
     (SELECT (SELECT MAX(f.low) FROM emptied_sources f WHERE f.low <= r.source) FROM r)";
pub(crate) const ADD_EMPTIED: &str = "WITH r(low, high, ra, decl, radius) AS ({rows}) INSERT INTO emptied_sources (low, high, ra, decl, radius) \
     SELECT low, high, ra, decl, radius FROM r";
/// Those of given exposures whose forced sources were removed.
pub(crate) const EMPTIED_VISITS: &str = "WITH r(visit, detector) AS ({rows}) SELECT v.visit, v.detector FROM r CROSS JOIN visits v \
     WHERE v.visit = r.visit AND v.detector = r.detector AND v.emptied IS NOT NULL";
pub(crate) const NOTE_EMPTIED_VISITS: &str = "WITH r(visit, detector) AS ({rows}) UPDATE visits SET emptied = 1 FROM r \
     WHERE visits.visit = r.visit AND visits.detector = r.detector AND visits.emptied IS NULL";

/// Chunks through an edition of which there are sources.
pub(crate) const CHUNKS_OF_SOURCES: &str = "WITH r(edition) AS ({rows}) SELECT c.number FROM r CROSS JOIN replica_chunks c WHERE c.edition <= r.edition \
     AND EXISTS (SELECT 1 FROM sources s WHERE s.chunk = c.number) ORDER BY c.number";
pub(crate) const CHUNKS_OF_FORCED: &str = "WITH r(edition) AS ({rows}) SELECT c.number FROM r CROSS JOIN replica_chunks c WHERE c.edition <= r.edition \
     AND EXISTS (SELECT 1 FROM forced f WHERE f.chunk = c.number) ORDER BY c.number";
/// Chunks through an edition behind the last one before whose versions objects were emptied.
pub(crate) const CHUNKS_OF_VERSIONS: &str = "WITH r(edition) AS ({rows}) SELECT c.number FROM r CROSS JOIN replica_chunks c WHERE c.edition <= r.edition \
     AND c.number > COALESCE((SELECT CAST(s.value AS bigint) FROM settings s WHERE s.name = 'emptied_versions'), 0) ORDER BY c.number";
/// Sources of a chunk that have not changed since an edition.
pub(crate) const OLD_SOURCES: &str = "WITH r(number, edition) AS ({rows}) SELECT s.source, s.htm FROM r CROSS JOIN sources s WHERE s.chunk = r.number \
     AND NOT EXISTS (SELECT 1 FROM source_states t WHERE t.source = s.source AND t.edition > r.edition) LIMIT 5000";
pub(crate) const OLD_FORCED: &str = "WITH r(number, edition) AS ({rows}) SELECT f.object, f.visit, f.detector FROM r CROSS JOIN forced f WHERE f.chunk = r.number \
     AND NOT EXISTS (SELECT 1 FROM forced_withdrawals w WHERE w.object = f.object AND w.visit = f.visit AND w.detector = f.detector \
     AND w.edition > r.edition) LIMIT 5000";
/// Versions before those of a chunk.
pub(crate) const OLD_VERSIONS: &str = "WITH r(number) AS ({rows}) SELECT o.object, o.validity_start FROM r CROSS JOIN objects n CROSS JOIN objects o \
     WHERE n.chunk = r.number AND o.object = n.object AND o.validity_start < n.validity_start LIMIT 5000";
pub(crate) const REMOVE_SOURCES: &str =
    "WITH r(source) AS ({rows}) DELETE FROM sources WHERE source IN (SELECT source FROM r)";
pub(crate) const REMOVE_SOURCE_STATES: &str =
    "WITH r(source) AS ({rows}) DELETE FROM source_states WHERE source IN (SELECT source FROM r)";
pub(crate) const REMOVE_FORCED: &str = "WITH r(object, visit, detector) AS ({rows}) DELETE FROM forced WHERE (object, visit, detector) IN (SELECT object, visit, detector FROM r)";
pub(crate) const REMOVE_WITHDRAWALS: &str = "WITH r(object, visit, detector) AS ({rows}) DELETE FROM forced_withdrawals WHERE (object, visit, detector) IN (SELECT object, visit, detector FROM r)";
pub(crate) const REMOVE_VERSIONS: &str = "WITH r(object, validity_start) AS ({rows}) DELETE FROM objects WHERE (object, validity_start) IN (SELECT object, validity_start FROM r)";
pub(crate) const REMOVE_OBJECT_STATES: &str = "WITH r(object, validity_start) AS ({rows}) DELETE FROM object_states WHERE (object, validity_start) IN (SELECT object, validity_start FROM r)";
pub(crate) const REMOVE_CLOSES: &str = "WITH r(object, validity_start) AS ({rows}) DELETE FROM object_closes WHERE (object, validity_start) IN (SELECT object, validity_start FROM r)";

// Following another database.

pub(crate) const FOLLOWED_CHUNKS: &str = "SELECT id, unique_id, updates FROM followed_chunks";
pub(crate) const NOTE_FOLLOWED_CHUNKS: &str = "WITH r(id, unique_id, updates) AS ({rows}) INSERT INTO followed_chunks (id, unique_id, updates) \
     SELECT id, unique_id, updates FROM r WHERE true ON CONFLICT (id) DO UPDATE SET unique_id = excluded.unique_id, updates = excluded.updates";
pub(crate) const REMOVE_CHUNK: &str =
    "WITH r(number) AS ({rows}) DELETE FROM replica_chunks WHERE number IN (SELECT number FROM r)";
pub(crate) const VERSIONS_BY_KEY: &str = "WITH r(object, validity_start) AS ({rows}) SELECT o.object, o.validity_start, o.validity_end, o.sources \
     FROM r CROSS JOIN objects o WHERE o.object = r.object AND o.validity_start = r.validity_start";
pub(crate) const OPEN_VERSIONS: &str = "WITH r(object) AS ({rows}) SELECT l.object, l.validity_start, l.htm FROM r CROSS JOIN latest l WHERE l.object = r.object";
pub(crate) const SOURCE_STATES_BY_ID: &str = "WITH r(source) AS ({rows}) SELECT s.source, s.object, s.ss_object, s.ss_reassigned, s.withdrawn \
     FROM r CROSS JOIN sources s WHERE s.source = r.source";
pub(crate) const SET_SOURCES: &str = "WITH r(source, object, ss_object, ss_reassigned, withdrawn) AS ({rows}) \
     UPDATE sources SET object = r.object, ss_object = r.ss_object, ss_reassigned = r.ss_reassigned, withdrawn = r.withdrawn FROM r \
     WHERE sources.source = r.source";
pub(crate) const WITHDRAWN_FORCED: &str = "WITH r(object, visit, detector) AS ({rows}) SELECT f.object, f.visit, f.detector, f.withdrawn \
     FROM r CROSS JOIN forced f WHERE f.object = r.object AND f.visit = r.visit AND f.detector = r.detector";
