//! The state that readers look at, and what several handles do at once.

use meridian_catalog::{LoadId, Table};

use crate::support::{
    chunks, contents, director, load, publish, settled, shown, wait_for_state, words,
};
use crate::{Place, append, superseded};

/// Readers keep what they have read as long as the state stays: it must change with whatever they could see.
async fn the_state_changes_with_every_publication_and_with_nothing_else<P: Place>(place: P) {
    let (catalog, other) = (place.open().await, place.open().await);
    let mut seen = vec![settled(&catalog).await];
    let mut is_new = async |what: &str| {
        // Who has made the change knows of it at once.
        let state = settled(&other).await;
        match P::KNOWS_AT_ONCE {
            true => assert_eq!(catalog.state(), Some(state), "{what}"),
            false => wait_for_state(&catalog, state).await,
        }
        let known = seen.contains(&state);
        seen.push(state);
        !known
    };
    let spec = director("d", "Object");
    let running = other.begin_load("d", "Object").await.unwrap();
    assert!(!is_new("a load has begun").await);
    publish(&other, running, &spec, &chunks(3, 1))
        .await
        .unwrap();
    assert!(is_new("published").await);
    let table = shown(&other, "d", "Object").await;
    let given_up = other.begin_load("d", "Object").await.unwrap();
    other.abandon(given_up).await.unwrap();
    other.forget(given_up).await.unwrap();
    assert!(!is_new("given up and forgotten").await);
    let appended = append(&other, &table, &chunks(2, 1), &[]).await.unwrap();
    assert!(is_new("appended").await);
    let error = append(&other, &replaced_by(&table, LoadId(99)), &chunks(1, 1), &[]).await;
    error.unwrap_err();
    assert!(!is_new("an append was rejected").await);
    let merged = other.begin_load("d", "Object").await.unwrap();
    let five = chunks(5, 1);
    let both = [running, appended];
    let merging = other.merge_parts(merged, &table, &both, contents(&spec, &five));
    merging.await.unwrap();
    assert!(is_new("merged").await);
    append(&other, &table, &chunks(2, 1), &[]).await.unwrap();
    assert!(is_new("appended once more").await);
    other.drop_part("d", "Object", merged).await.unwrap();
    assert!(is_new("a part was dropped").await);
    catalog.tables("d").await.unwrap();
    catalog.verify().await.unwrap();
    assert!(!is_new("read").await);
    assert!(other.describe("d", &words()).await.unwrap());
    assert!(is_new("described").await);
    assert!(!other.describe("d", &words()).await.unwrap());
    other.describe("e", &words()).await.unwrap_err();
    assert!(!is_new("described as before").await);
    load(&other, &spec, &chunks(1, 1)).await.unwrap();
    assert!(is_new("replaced").await);
    other.drop_table("d", "Object").await.unwrap();
    assert!(is_new("a table was dropped").await);
    other.drop_database("d").await.unwrap();
    assert!(is_new("a database was dropped").await);
}

/// The table as if another load had placed it.
fn replaced_by(table: &Table, load: LoadId) -> Table {
    Table {
        placement: load,
        ..table.clone()
    }
}

/// What a reader finds after it has seen a state is never older than that state, whoever publishes meanwhile.
async fn the_state_is_never_ahead_of_what_is_read<P: Place>(place: P) {
    let reader = place.open().await;
    load(&reader, &director("d", "t"), &chunks(1, 0))
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let writer = place.open().await;
        tasks.spawn(async move {
            for rows in 1..12 {
                load(&writer, &director("d", "t"), &chunks(1, rows))
                    .await
                    .unwrap();
            }
        });
    }
    let start = std::time::Instant::now();
    let mut kept = None;
    let mut looks = 0;
    while looks < 20 || !tasks.is_empty() {
        while tasks.try_join_next().is_some() {}
        looks += 1;
        let state = reader.state();
        match &kept {
            // What was read under this state or before it is what is shown, or was replaced since the state was looked at.
            Some((of, table)) if state.is_some() && *of == state => {
                let now = shown(&reader, "d", "t").await;
                let is_kept_too_long = || now != *table && reader.state() == state;
                while !P::KNOWS_AT_ONCE && is_kept_too_long() {
                    assert!(start.elapsed().as_secs() < 120, "kept what was replaced");
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                assert!(!is_kept_too_long(), "kept what was replaced");
            }
            _ => kept = Some((state, shown(&reader, "d", "t").await)),
        }
    }
    settled(&reader).await;
}

/// Twenty loads of five tables publish from as many handles at once: every table ends as one of its
/// loads, whole, and all its other loads are superseded.
async fn concurrent_publications_do_not_mix(place: impl Place) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20_u64 {
        let catalog = place.open().await;
        let spec = director("d", &format!("t{}", number % 5));
        tasks.spawn(async move {
            let count = i32::try_from(number).unwrap() + 1;
            load(&catalog, &spec, &chunks(count, number)).await.unwrap()
        });
    }
    let published = tasks.join_all().await;
    let catalog = place.open().await;
    for number in 0..5 {
        let name = format!("t{number}");
        shown(&catalog, "d", &name).await;
        assert_eq!(superseded(&catalog, &name).await.len(), 3);
    }
    // Each superseded load was named to exactly one successor.
    let mut replaced: Vec<_> = published
        .iter()
        .flat_map(|(_, replaced)| replaced)
        .collect();
    replaced.sort();
    replaced.dedup();
    assert_eq!(replaced.len(), 15);
}

/// Readers see whole states only, while another handle replaces the table again and again.
async fn readers_go_on_while_a_table_is_replaced(place: impl Place) {
    let (writer, reader) = (place.open().await, place.open().await);
    load(&writer, &director("d", "t"), &chunks(100, 1))
        .await
        .unwrap();
    let writing = tokio::spawn(async move {
        for rows in 2..30 {
            load(&writer, &director("d", "t"), &chunks(100, rows))
                .await
                .unwrap();
        }
    });
    let mut looks = 0;
    while !writing.is_finished() {
        shown(&reader, "d", "t").await;
        looks += 1;
    }
    writing.await.unwrap();
    assert!(looks > 1, "the reader waited for the writer");
    assert_eq!(shown(&reader, "d", "t").await.rows(), 2900);
}

conformance!(
    concurrent_publications_do_not_mix,
    the_state_changes_with_every_publication_and_with_nothing_else,
    the_state_is_never_ahead_of_what_is_read,
    readers_go_on_while_a_table_is_replaced,
);
