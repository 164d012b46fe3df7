//! Small tables in hundreds of chunks: what pieces of many chunks give is what two chunks give.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod small_tables;

use std::collections::{BTreeMap, BTreeSet};

use meridian_engine::Session;
use small_tables::{OBJECTS, Sky, plan, rows};

/// Statements whose rows do not depend on how the sky is cut. KEY is another number each time.
const STATEMENTS: &[&str] = &[
    "SELECT count(*), count(flux), sum(flux), avg(flux), min(id), max(decl) FROM Object WHERE id > KEY",
    "SELECT * FROM Object",
    "SELECT flag, count(*), sum(flux) FROM Object WHERE flux < KEY GROUP BY flag",
    "SELECT count(DISTINCT flag) FROM Object",
    "SELECT id FROM Object WHERE id = KEY",
    "SELECT * FROM Object WHERE id IN (3, 700, 1401, KEY, 2999)",
    "SELECT flux FROM Source WHERE objectId IN (3, 700, 50001, KEY)",
    "SELECT count(*), sum(flux) FROM Object WHERE scisql_s2PtInCircle(ra, decl, 100, 10, KEY) = 1",
    "SELECT count(*) FROM Source WHERE scisql_s2PtInBox(ra, decl, 350, -20, 10, 20) = 1 AND id <> KEY",
    "SELECT count(*) FROM Object WHERE flux < -KEY",
    // Director and child, in the pieces.
    "SELECT o.id, s.id FROM Object o JOIN Source s ON s.objectId = o.id",
    "SELECT o.id, s.id FROM Object o LEFT JOIN Source s ON s.objectId = o.id AND s.flux > KEY",
    "SELECT o.id, s.id FROM Object o RIGHT JOIN Source s ON s.objectId = o.id",
    "SELECT o.id, s.id FROM Object o FULL JOIN Source s ON s.objectId = o.id",
    "SELECT o.id, count(*), sum(s.flux) FROM Object o JOIN Source s ON s.objectId = o.id GROUP BY o.id",
    "SELECT count(*), sum(o.flux - s.flux) FROM Object o, Source s WHERE s.objectId = o.id AND o.flag = 3",
    "SELECT objectId, count(*) FROM Source GROUP BY objectId",
    "SELECT a.id, b.id FROM Source a JOIN Source b ON a.objectId = b.objectId AND a.id < b.id",
    "SELECT id FROM Object o WHERE EXISTS (SELECT 1 FROM Source s WHERE s.objectId = o.id AND s.flux > KEY)",
    "SELECT id FROM Object WHERE id NOT IN (SELECT objectId FROM Source WHERE objectId IS NOT NULL)",
    "SELECT id FROM Object WHERE id NOT IN (SELECT objectId FROM Source)",
    "SELECT id, row_number() OVER (PARTITION BY objectId ORDER BY flux, id) FROM Source WHERE objectId IS NOT NULL",
    // Replicated tables, whose rows are the same in every piece.
    "SELECT s.id, f.name FROM Source s JOIN Filter f ON f.id = s.filterId",
    "SELECT s.id, f.name FROM Source s LEFT JOIN Filter f ON f.id = s.filterId",
    "SELECT s.id, f.name FROM Source s RIGHT JOIN Filter f ON f.id = s.filterId",
    "SELECT name FROM Filter f WHERE EXISTS (SELECT 1 FROM Source s WHERE s.filterId = f.id AND s.flux > KEY)",
    "SELECT id FROM Source WHERE filterId IN (SELECT id FROM Filter WHERE name <> 'g')",
    "SELECT id FROM Source WHERE filterId NOT IN (SELECT id FROM Filter)",
    "SELECT f.name, count(*) FROM Object o JOIN Source s ON s.objectId = o.id JOIN Filter f ON f.id = s.filterId GROUP BY f.name",
    "SELECT count(*) FROM Filter CROSS JOIN Object",
    // A match table: each pair once, by whichever end it is read.
    "SELECT count(*), sum(sep) FROM RefMatch WHERE sep < KEY",
    "SELECT m.objectId, m.refId, o.flux FROM RefMatch m JOIN Object o ON o.id = m.objectId",
    "SELECT m.objectId, m.refId, r.mag FROM RefMatch m JOIN Ref r ON r.id = m.refId",
    "SELECT o.id, r.id, m.sep FROM Object o JOIN RefMatch m ON m.objectId = o.id JOIN Ref r ON r.id = m.refId",
    "SELECT s.id, m.refId FROM Source s JOIN RefMatch m ON m.objectId = s.objectId",
    "SELECT m.objectId, m.refId FROM RefMatch m LEFT JOIN Object o ON o.id = m.objectId WHERE o.id IS NULL",
    "SELECT m.objectId, m.refId FROM RefMatch m LEFT JOIN Ref r ON r.id = m.refId WHERE r.id IS NULL",
    "SELECT id FROM Ref WHERE id IN (SELECT refId FROM RefMatch WHERE sep > 0.2)",
    "SELECT m.refId, count(*) FROM RefMatch m JOIN Ref r ON r.id = m.refId GROUP BY m.refId",
    // Neighbours and matches, in the pieces of the one side and around them.
    "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 3.5 AND a.id < b.id",
    "SELECT a.id, count(b.id) FROM Object a LEFT JOIN Ref b ON scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 1.5 GROUP BY a.id",
    "SELECT a.id FROM Object a WHERE NOT EXISTS
       (SELECT 1 FROM Ref b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 1.5)",
    "SELECT a.id, b.id FROM Object a, Source b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 1",
    "SELECT a.id, b.id FROM Object a, Ref b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 90 AND a.id < 5 AND b.id < 10900",
    "SELECT id_1, id_2 FROM crossmatch(Object, Ref, 5400)",
    "SELECT id_1, id_2 FROM crossmatch(Ref, Object, 9000, 'best1', 'all1')",
    "SELECT id_1, id_2 FROM nearest(Ref, Object, 20000, 2)",
    "SELECT id_1, id_2 FROM crossmatch(Object, Source, 100, 'all')",
    // Above the pieces.
    "SELECT a.id, b.id FROM Object a JOIN Ref b ON a.id + 10000 = b.id",
    "SELECT id FROM Object WHERE flux > (SELECT avg(flux) FROM Source)",
    "SELECT id FROM Object WHERE flag = 1 UNION ALL SELECT id FROM Ref WHERE mag < 15",
];

/// The same, whose rows are in order.
const LISTS: &[&str] = &[
    "SELECT id, flux FROM Object ORDER BY flux DESC, id LIMIT 17",
    "SELECT id, flux FROM Source WHERE id > KEY ORDER BY flux, id LIMIT 10 OFFSET 100",
    "SELECT id FROM Object ORDER BY ra, id",
    "SELECT flag, count(*) AS n FROM Object GROUP BY flag ORDER BY n, flag",
];

#[tokio::test(flavor = "multi_thread")]
async fn many_chunks_have_the_rows_of_a_few() {
    let sky = Sky::shared().await;
    let mut wrong = Vec::new();
    let statements = STATEMENTS.iter().map(|sql| (*sql, false));
    for (sql, is_list) in statements.chain(LISTS.iter().map(|sql| (*sql, true))) {
        let sorted = async |session, sql: &str| {
            let mut rows = rows(session, sql).await;
            if !is_list {
                rows.sort_unstable();
            }
            rows
        };
        let mut known: Option<(String, Vec<String>)> = None;
        // The third time by a plan that was kept.
        for key in [17, 40, 3] {
            let sql = sql.replace("KEY", &key.to_string());
            let expected = match known {
                Some((of, rows)) if of == sql => rows,
                _ => sorted(&sky.coarse, &sql).await,
            };
            let found = sorted(&sky.fine, &sql).await;
            if found != expected {
                let numbers = (found.len(), expected.len());
                wrong.push(format!("{sql}\n    {numbers:?}"));
            }
            known = Some((sql, expected));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_keep_as_many_rows_as_there_are() {
    let sky = Sky::shared().await;
    for (limit, expected) in [
        ("LIMIT 7", 7),
        ("LIMIT 20000", OBJECTS),
        ("LIMIT 100 OFFSET 2950", 50),
        ("LIMIT 0", 0),
    ] {
        let all = rows(&sky.fine, &format!("SELECT id FROM Object {limit}")).await;
        assert_eq!(all.len(), expected, "{limit}");
    }
}

async fn sorted(session: &Session, sql: &str) -> Vec<String> {
    let mut found = rows(session, sql).await;
    found.sort_unstable();
    found
}

/// Which rows a filter keeps, by their keys.
type Keep = fn(&usize) -> bool;

/// Groups by the number of the chunk are aggregated by themselves where chunks are large, and looked up in a table where they are
/// small.
#[tokio::test(flavor = "multi_thread")]
async fn groups_by_the_chunk_are_those_of_the_positions() {
    let sky = Sky::shared().await;
    for (session, chunks) in sky.with_chunks() {
        let mut of_chunk: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        for (id, chunk) in chunks.iter().enumerate() {
            of_chunk.entry(*chunk).or_default().push(id);
        }
        let groups = |keep: Keep| {
            let kept = of_chunk.iter().filter_map(|(chunk, ids)| {
                let ids: Vec<usize> = ids.iter().copied().filter(keep).collect();
                let sum: usize = ids.iter().sum();
                Some(format!("{chunk}|{}|{}|{sum}", ids.len(), ids.first()?))
            });
            let mut kept: Vec<String> = kept.collect();
            kept.sort_unstable();
            kept
        };
        let filters: [(&str, Keep); 4] = [
            ("", |_| true),
            ("WHERE flag = 3", |id| id % 7 == 3),
            // Of some chunks no row is left, and these have no group.
            ("WHERE id < 1400", |id| *id < 1_400),
            ("WHERE id IN (5, 900, 901)", |id| [5, 900, 901].contains(id)),
        ];
        for (filter, keep) in filters {
            let select = "SELECT chunkId, count(*), min(id), sum(id) FROM Object";
            let sql = format!("{select} {filter} GROUP BY chunkId");
            for _ in 0..3 {
                assert_eq!(sorted(session, &sql).await, groups(keep), "{sql}");
            }
        }
        let sql = "SELECT chunkId, count(*) FROM Object GROUP BY chunkId";
        let alone = plan(session, sql).await.contains("gby=[], aggr=[count");
        assert_eq!(alone, of_chunk.len() == 2, "{} chunks", of_chunk.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_has_the_number_of_its_own_chunk() {
    let sky = Sky::shared().await;
    for (session, chunks) in sky.with_chunks() {
        let numbered = chunks.iter().enumerate();
        let mut expected: Vec<_> = numbered
            .map(|(id, chunk)| format!("{id}|{chunk}"))
            .collect();
        expected.sort_unstable();
        let found = sorted(session, "SELECT id, chunkId FROM Object").await;
        assert_eq!(found, expected);

        let chunk = chunks[123];
        let there = (0..OBJECTS).filter(|id| chunks[*id] == chunk);
        let mut there: Vec<_> = there.map(|id| id.to_string()).collect();
        there.sort_unstable();
        let sql = format!("SELECT id FROM Object WHERE chunkId = {chunk}");
        assert_eq!(sorted(session, &sql).await, there);

        let with_flag = "SELECT chunkId, flag, count(*) FROM Object GROUP BY chunkId, flag";
        let groups = sorted(session, with_flag).await;
        let count = |row: &String| row.rsplit('|').next().unwrap().parse::<usize>().unwrap();
        assert_eq!(groups.iter().map(count).sum::<usize>(), OBJECTS);
    }
    // A child and the left end of a pair are where the object is.
    for pairs in [
        "SELECT count(*) FROM Object o JOIN Source s ON s.objectId = o.id WHERE o.chunkId <> s.chunkId",
        "SELECT count(*) FROM Object o JOIN RefMatch m ON m.objectId = o.id WHERE o.chunkId <> m.chunkId",
    ] {
        assert_eq!(sorted(&sky.fine, pairs).await, ["0"], "{pairs}");
    }
    let apart =
        "SELECT count(*) FROM RefMatch m JOIN Ref r ON r.id = m.refId WHERE r.chunkId <> m.chunkId";
    let found = sorted(&sky.fine, apart).await;
    assert_ne!(found, ["0"], "no pair lies across an edge");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sum_is_the_same_to_the_last_bit_every_time() {
    let sky = Sky::shared().await;
    let sql = "SELECT sum(ra * decl), avg(sqrt(ra)), stddev(ra / 3) FROM Object WHERE id > 10";
    let first = rows(&sky.fine, sql).await;
    for _ in 0..10 {
        assert_eq!(rows(&sky.fine, sql).await, first);
    }
}

/// The numbers of chunks and of pieces of each phase of a plan.
fn phases(plan: &str) -> Vec<(usize, usize)> {
    let number = |text: &str| text.split(' ').next().and_then(|n| n.parse().ok());
    let phase = |line: &str| {
        let (_, chunks) = line.split_once("ChunkPhaseExec: ")?;
        let (_, pieces) = chunks.split_once(", in ")?;
        Some((number(chunks)?, number(pieces)?))
    };
    plan.lines().filter_map(phase).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn few_rows_are_in_few_pieces_however_many_chunks_they_are_in() {
    let sky = Sky::shared().await;
    let [(_, chunks), _] = sky.with_chunks();
    let distinct = chunks.into_iter().collect::<BTreeSet<_>>().len();
    assert!(distinct > 200, "{distinct} chunks");
    for (sql, pieces) in [
        ("SELECT sum(flux) FROM Object", 2..=4),
        (
            "SELECT chunkId, count(*) FROM Object GROUP BY chunkId",
            2..=4,
        ),
        (
            "SELECT o.id FROM Object o JOIN Source s ON s.objectId = o.id",
            4..=8,
        ),
        // The objects are read around some, and there are few of them.
        (
            "SELECT count(*) FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 1",
            2..=4,
        ),
        // Where a source is, is known by bounds alone.
        (
            "SELECT count(*) FROM Object a LEFT JOIN Source b ON scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 1",
            distinct..=distinct,
        ),
    ] {
        let text = plan(&sky.fine, sql).await;
        let found = phases(&text);
        let [(of, found)] = found.as_slice() else {
            panic!("{sql}\n{text}");
        };
        assert_eq!(*of, distinct, "{sql}\n{text}");
        assert!(pieces.contains(found), "{sql}\n{text}");
    }
    let keys = "SELECT flux FROM Object WHERE id IN (5, 900, 901)";
    assert_eq!(phases(&plan(&sky.fine, keys).await), [(3, 1)]);
    let key = "SELECT flux FROM Object WHERE id = 5";
    assert_eq!(phases(&plan(&sky.fine, key).await), [(1, 1)]);
}
