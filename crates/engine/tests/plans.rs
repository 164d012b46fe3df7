//! What queries are planned to, as snapshots: which subtrees run piece by piece, on which pieces, and what merges them.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use insta::assert_snapshot;

mod small_sky;
use small_sky::SmallSky;

#[tokio::test(flavor = "multi_thread")]
async fn a_cone_reads_a_few_sub_chunks() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT id FROM Object WHERE scisql_s2PtInCircle(ra, decl, 100.0, 0.5, 0.4) = 1")
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_leads_to_its_sub_chunk() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT flux FROM Source WHERE objectId = 17")
            .await
    );
    assert_snapshot!(
        sky.plan("SELECT flux FROM Source WHERE objectId = -5")
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn director_and_child_join_and_group_in_the_piece() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT o.id, avg(s.flux) FROM Object o JOIN Source s ON s.objectId = o.id GROUP BY o.id").await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_are_read_around_the_rows_of_a_piece() {
    let sky = SmallSky::load().await;
    for sql in [
        "SELECT a.id, b.id FROM Object a, Object b WHERE qserv_angSep(a.ra, a.decl, b.ra, b.decl) <= 0.5 AND a.id < b.id",
        // The restricted side is the one around whose rows is read.
        "SELECT count(*) FROM Object a JOIN Object b ON 0.1 > scisql_angSep(a.ra, a.decl, b.ra, b.decl)
         WHERE scisql_s2PtInCircle(b.ra, b.decl, 100.0, 0.5, 0.4) = 1",
        "SELECT a.id FROM Object a WHERE NOT EXISTS
         (SELECT 1 FROM Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 1.5 AND a.id <> b.id)",
        "SELECT a.id, count(b.id) FROM Object a LEFT JOIN Object b ON scisql_angSep(a.ra, a.decl, b.ra, b.decl) < a.flag
         GROUP BY a.id",
        // What one row of a pair decides.
        "SELECT a.id, sqrt(b.flag) FROM Object a, Object b
         WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.5 AND abs(sqrt(a.flag) - sqrt(b.flag)) < 0.1",
    ] {
        assert_snapshot!(sky.plan(sql).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_looks_like_nearness_is_a_loop() {
    let sky = SmallSky::load().await;
    for sql in [
        "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) > 0.5",
        "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, b.decl, b.ra, a.decl) < 0.5",
        "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < a.flag * b.flag",
        "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.5 OR a.id = 3",
        "SELECT a.id, b.id FROM Object a FULL JOIN Object b ON scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.5",
    ] {
        let plan = sky.plan(sql).await;
        assert!(
            plan.contains("NestedLoopJoinExec") && !plan.contains("NeighbourJoin"),
            "{sql}\n{plan}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_groups_are_merged_in_the_order_of_the_pieces() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT filterId, sum(flux) FROM Source GROUP BY filterId")
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_by_a_key_with_nulls_are_merged() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT objectId, count(*) FROM Source GROUP BY objectId")
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replicated_table_joins_in_every_piece() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT s.id, f.name FROM Source s LEFT JOIN Filter f ON f.id = s.filterId")
            .await
    );
    assert_snapshot!(
        sky.plan("SELECT s.id, f.name FROM Source s RIGHT JOIN Filter f ON f.id = s.filterId")
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_match_table_is_read_by_the_end_that_is_joined() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT m.sep FROM ObjectPair m JOIN Object o ON o.id = m.rightId")
            .await
    );
    assert_snapshot!(sky.plan("SELECT m.sep FROM ObjectPair m").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_rows_are_chosen_in_the_piece_and_above() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT id, flux FROM Source ORDER BY flux DESC LIMIT 3")
            .await
    );
    assert_snapshot!(sky.plan("SELECT id FROM Source LIMIT 3 OFFSET 2").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_restricts_nothing_prunes_nothing() {
    let sky = SmallSky::load().await;
    for (filter, chunks) in [
        (
            "NOT scisql_s2PtInCircle(ra, decl, 100.0, 0.5, 0.4) = 1",
            "ChunkPhaseExec: 10 of 10 chunks",
        ),
        (
            "scisql_s2PtInCircle(ra, decl, 100.0, 0.5, 0.4) = 0",
            "ChunkPhaseExec: 10 of 10 chunks",
        ),
        (
            "scisql_s2PtInCircle(ra, decl, 100.0, 0.5, 0.4) = 1 OR id = 3",
            "ChunkPhaseExec: 2 of 10 chunks",
        ),
        ("id = 3 OR flag = 1", "ChunkPhaseExec: 10 of 10 chunks"),
        ("ra > 355 OR ra < 5", "ChunkPhaseExec: 2 of 10 chunks"),
        (
            "id IN (3, 4, 5, 6, 7) AND NOT id = 3",
            "ChunkPhaseExec: 1 of 10 chunks",
        ),
    ] {
        let plan = sky
            .plan(&format!("SELECT id FROM Object WHERE {filter}"))
            .await;
        assert!(plan.contains(chunks), "{filter}\n{plan}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_is_known_without_reading() {
    let sky = SmallSky::load().await;
    assert_snapshot!(sky.plan("SELECT count(*) FROM Source").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_the_chunk_is_added_in_the_piece() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT chunkId, count(*) AS n, avg(ra), avg(decl) FROM Object GROUP BY chunkId")
            .await
    );
    assert_snapshot!(
        sky.plan("SELECT id FROM Object WHERE chunkId = 63 AND ra > 3")
            .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_has_the_chunk_of_its_left_end_however_it_is_joined() {
    let sky = SmallSky::load().await;
    assert_snapshot!(
        sky.plan("SELECT m.chunkId FROM ObjectPair m JOIN Object o ON o.id = m.rightId")
            .await
    );
}
