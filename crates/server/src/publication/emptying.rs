//! Removing what is published from the store once it is old, so that the store does not grow for ever.

use alerts::{AlertDatabase, Through};
use catalog::Catalog;
use tracing::info;

use super::{PublicationError, last_published, now_us};

const MICROSECONDS_OF_A_NIGHT: i64 = 86_400_000_000;

/// Removes the rows of editions from the store that are published, and were closed more nights ago than it keeps.
///
/// # Errors
/// Another server stores into the database, or the store or the catalog cannot be read.
pub async fn empty_store(
    catalog: &Catalog,
    database: &AlertDatabase,
) -> Result<(), PublicationError> {
    let now = now_us();
    if database.replica_seconds().is_none() {
        return Ok(());
    }
    let Some(nights) = database.keep_nights().await? else {
        return Ok(());
    };
    let before = database.emptied().await?;
    let keeps = i64::from(nights) * MICROSECONDS_OF_A_NIGHT;
    let published = last_published(catalog, database).await?;
    // Once a night is often enough, unless nothing is kept.
    let not_before = match before {
        Some(before) if nights > 0 => before.closed_us + MICROSECONDS_OF_A_NIGHT,
        _ => 0,
    };
    let after = before.map_or(0, |before| before.edition);
    let old = now.saturating_sub(keeps);
    let is_old = |it: &Through| {
        (after + 1..=published).contains(&it.edition) && (not_before..=old).contains(&it.closed_us)
    };
    let Some(through) = database.closings().await?.into_iter().rev().find(is_old) else {
        return Ok(());
    };
    let removed = database.empty(through.edition).await?;
    info!(
        database = database.name(),
        edition = through.edition,
        rows = removed,
        "the store is emptied of what is published"
    );
    Ok(())
}
