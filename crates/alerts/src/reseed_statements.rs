//! The statements by which a release is prepared and put in the place of what is there. Like all others they are the same for both stores.

use crate::statements::{Dialect, in_dialect, tables};

/// The settings: what is being prepared, how many releases there were, and from when on users see the last one.
pub(crate) const RESEED: &str = "reseed";
pub(crate) const RELEASES: &str = "releases";
pub(crate) const RESEEDED: &str = "reseeded_us";

pub(crate) const SETTING: &str =
    "WITH r(name) AS ({rows}) SELECT s.value FROM r CROSS JOIN settings s WHERE s.name = r.name";
pub(crate) const REMOVE_SETTING: &str =
    "WITH r(name) AS ({rows}) DELETE FROM settings WHERE name IN (SELECT name FROM r)";

/// The tables that are replaced as a whole.
const REPLACED: [&str; 4] = ["latest", "objects", "object_closes", "emptied_sources"];

/// The exposures of a release, which are added to those that are there.
const VISITS: &str = "CREATE TABLE visits_release (visit {int} NOT NULL, detector {int} NOT NULL, PRIMARY KEY (visit, detector)) {clustered};";

/// The statements that make the tables for what is prepared of a release: those that make the tables whose places they take, with other names.
/// Names of indexes are of the whole schema: they get the number of the release.
pub(crate) fn prepared_tables(dialect: Dialect, release: i64) -> String {
    let all = tables(dialect);
    let lines: Vec<&str> = (all.lines())
        .filter(|line| !line.starts_with("--"))
        .collect();
    let all = lines.join("\n");
    let statements = all.split(';').map(str::trim);
    let made = statements.filter_map(|statement| prepared(statement, release));
    made.chain([in_dialect(VISITS, dialect)])
        .collect::<Vec<_>>()
        .join("\n")
}

/// The statement that makes a table, or an index of one, for what takes the place of that table, if something does.
fn prepared(statement: &str, release: i64) -> Option<String> {
    REPLACED.iter().find_map(|table| {
        if let Some(columns) = statement.strip_prefix(&format!("CREATE TABLE {table} (")) {
            return Some(format!("CREATE TABLE {table}_release ({columns};"));
        }
        let (index, columns) = statement.split_once(&format!(" ON {table} ("))?;
        Some(format!("{index}_r{release} ON {table}_release ({columns};"))
    })
}

/// Forgets them.
pub(crate) const DROP_PREPARED: &str = "DROP TABLE IF EXISTS latest_release; DROP TABLE IF EXISTS objects_release; \
     DROP TABLE IF EXISTS object_closes_release; DROP TABLE IF EXISTS emptied_sources_release; DROP TABLE IF EXISTS visits_release;";

pub(crate) const ADD_CHUNK_OF_RELEASE: &str = "WITH r(number, updated, unique_id, edition) AS ({rows}) \
     INSERT INTO replica_chunks (number, id, updated, unique_id, edition) SELECT number, CAST(NULL AS bigint), updated, unique_id, edition FROM r";

pub(crate) const PREPARE_LATEST: &str = "WITH r(htm, object, validity_start, sources, layout, payload) AS ({rows}) \
     INSERT INTO latest_release (htm, object, validity_start, sources, layout, payload) \
     SELECT htm, object, validity_start, sources, layout, payload FROM r";
pub(crate) const PREPARE_OBJECTS: &str = "WITH r(object, validity_start, validity_end, sources, chunk, layout, payload) AS ({rows}) \
     INSERT INTO objects_release (object, validity_start, validity_end, sources, chunk, layout, payload) \
     SELECT object, validity_start, validity_end, sources, chunk, layout, payload FROM r";
pub(crate) const PREPARE_CLOSES: &str = "WITH r(object, validity_start, edition, validity_end) AS ({rows}) \
     INSERT INTO object_closes_release (object, validity_start, edition, validity_end) SELECT object, validity_start, edition, validity_end FROM r";
pub(crate) const PREPARE_EMPTIED: &str = "WITH r(low, high, ra, decl, radius) AS ({rows}) \
     INSERT INTO emptied_sources_release (low, high, ra, decl, radius) SELECT low, high, ra, decl, radius FROM r";
pub(crate) const PREPARE_VISITS: &str = "WITH r(visit, detector) AS ({rows}) INSERT INTO visits_release (visit, detector) \
     SELECT visit, detector FROM r WHERE true ON CONFLICT (visit, detector) DO NOTHING";

/// Those of given sources that the release has.
pub(crate) const PREPARED_SOURCES: &str = "WITH r(source) AS ({rows}) SELECT r.source FROM r WHERE EXISTS (SELECT 1 FROM emptied_sources_release e \
     WHERE e.low = (SELECT MAX(f.low) FROM emptied_sources_release f WHERE f.low <= r.source) AND e.high >= r.source)";
/// Those of given exposures that the release has.
pub(crate) const PREPARED_VISITS: &str = "WITH r(visit, detector) AS ({rows}) SELECT v.visit, v.detector FROM r CROSS JOIN visits_release v \
     WHERE v.visit = r.visit AND v.detector = r.detector";

// What was stored since it began, and cannot stay.

pub(crate) const STORED_SOURCES: &str = "SELECT s.source FROM replica_chunks c CROSS JOIN sources s WHERE c.edition IS NULL AND s.chunk = c.number \
     AND EXISTS (SELECT 1 FROM emptied_sources_release e \
     WHERE e.low = (SELECT MAX(f.low) FROM emptied_sources_release f WHERE f.low <= s.source) AND e.high >= s.source) LIMIT 20";
pub(crate) const STORED_FORCED: &str = "SELECT f.visit FROM replica_chunks c CROSS JOIN forced f CROSS JOIN visits_release v WHERE c.edition IS NULL \
     AND f.chunk = c.number AND v.visit = f.visit AND v.detector = f.detector LIMIT 20";
pub(crate) const STORED_OBJECTS: &str = "SELECT o.object FROM replica_chunks c CROSS JOIN objects o CROSS JOIN objects_release p \
     WHERE c.edition IS NULL AND o.chunk = c.number AND p.object = o.object \
     AND (p.validity_start >= o.validity_start OR p.validity_end > o.validity_start) LIMIT 20";
/// Rows of editions that are still in the store: they have changed since they were published.
pub(crate) const LEFT_SOURCES: &str = "SELECT s.source FROM replica_chunks c CROSS JOIN sources s WHERE c.edition IS NOT NULL AND s.chunk = c.number LIMIT 20";
pub(crate) const LEFT_FORCED: &str = "SELECT f.visit FROM replica_chunks c CROSS JOIN forced f WHERE c.edition IS NOT NULL AND f.chunk = c.number LIMIT 20";

/// Puts what is prepared in the place of what is there. Versions that were stored meanwhile stay, and end those before them.
pub(crate) const SWITCH: &str = "
DELETE FROM latest_release WHERE object IN
    (SELECT o.object FROM replica_chunks c CROSS JOIN objects o WHERE c.edition IS NULL AND o.chunk = c.number);
UPDATE objects_release SET validity_end = (SELECT MIN(n.validity_start) FROM objects n CROSS JOIN replica_chunks d
    WHERE n.object = objects_release.object AND d.number = n.chunk AND d.edition IS NULL)
    WHERE validity_end IS NULL AND object IN
    (SELECT o.object FROM replica_chunks c CROSS JOIN objects o WHERE c.edition IS NULL AND o.chunk = c.number);
INSERT INTO objects_release (object, validity_start, validity_end, sources, chunk, layout, payload)
    SELECT o.object, o.validity_start, o.validity_end, o.sources, o.chunk, o.layout, o.payload
    FROM replica_chunks c CROSS JOIN objects o WHERE c.edition IS NULL AND o.chunk = c.number;
INSERT INTO latest_release (htm, object, validity_start, sources, layout, payload)
    SELECT l.htm, l.object, l.validity_start, l.sources, l.layout, l.payload
    FROM replica_chunks c CROSS JOIN objects o CROSS JOIN latest l
    WHERE c.edition IS NULL AND o.chunk = c.number AND o.validity_end IS NULL AND l.object = o.object;
DROP TABLE latest;
ALTER TABLE latest_release RENAME TO latest;
DROP TABLE objects;
ALTER TABLE objects_release RENAME TO objects;
DROP TABLE object_closes;
ALTER TABLE object_closes_release RENAME TO object_closes;
DROP TABLE emptied_sources;
ALTER TABLE emptied_sources_release RENAME TO emptied_sources;
INSERT INTO visits (visit, detector, emptied) SELECT visit, detector, 1 FROM visits_release WHERE true
    ON CONFLICT (visit, detector) DO UPDATE SET emptied = 1;
DROP TABLE visits_release;
DELETE FROM source_states;
DELETE FROM object_states;
DELETE FROM forced_withdrawals;
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_tables_are_made_as_those_that_they_replace() {
        for dialect in [Dialect::Sqlite, Dialect::Postgres] {
            let made = prepared_tables(dialect, 3);
            assert!(!made.contains('{') && !made.contains("--"), "{made}");
            for table in REPLACED.into_iter().chain(["visits"]) {
                let begin = format!("CREATE TABLE {table}_release (");
                assert_eq!(made.matches(&begin).count(), 1, "{begin}");
            }
            assert_eq!(made.matches("CREATE TABLE").count(), 5);
            let indexes = |text: &str, table: &str| text.matches(&format!(" ON {table} (")).count();
            for table in REPLACED {
                let wanted = indexes(&tables(dialect), table);
                assert_eq!(
                    indexes(&made, &format!("{table}_release")),
                    wanted,
                    "{table}"
                );
            }
            assert_eq!(
                made.matches("_r3 ON ").count(),
                made.matches(" ON ").count()
            );
            assert!(
                made.contains("CREATE UNIQUE INDEX latest_object_r3 ON latest_release (object);")
            );
            assert!(made.contains("WHERE chunk IS NOT NULL;"), "{made}");
        }
    }
}
