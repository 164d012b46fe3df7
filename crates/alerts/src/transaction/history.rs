//! What rows were before they were changed, and editions: what users are shown together.
//!
//! An edition is everything that was committed between two closings. So whatever is changed in an edition was stored in it or before, and
//! an edition, once closed, has the same rows and changes whenever it is read, however the rows are changed afterwards.

use super::lookup::LatestVersion;
use super::{Transaction, counted};
use crate::error::{AlertsError, Result};
use crate::operation::Outcome;
use crate::reseed::reseeded;
use crate::statements as sql;
use crate::store::{Kind, Values, first};

/// How far TAI has been ahead of UTC since 2017, in seconds. More leap seconds would close chunks as much too early.
const TAI_MINUS_UTC: i64 = 37;

impl Transaction<'_> {
    /// The number of the edition that is open; `None` if there are none, as no replica chunks are kept.
    async fn open_edition(&mut self) -> Result<Option<i64>> {
        match self.definition.replica_seconds {
            None => Ok(None),
            Some(_) => self.number(sql::NEXT_EDITION).await.map(Some),
        }
    }

    pub(super) async fn number(&mut self, statement: &str) -> Result<i64> {
        let found = self.connection.fetch(statement, &[], &[Kind::Int]).await?;
        let number = first(found).into_ints().first().copied().flatten();
        number.ok_or_else(|| AlertsError::Damaged("editions have no numbers".to_owned()))
    }

    /// Writes down what sources are, before they are changed for the first time.
    pub(super) async fn keep_sources(&mut self, sources: &[i64]) -> Result<()> {
        if self.definition.replica_seconds.is_some() {
            let rows = [Values::ints(sources.iter().copied())];
            self.connection.change(sql::KEEP_SOURCES, &rows).await?;
        }
        Ok(())
    }

    /// Writes down what sources have become.
    pub(super) async fn note_sources(&mut self, sources: &[i64]) -> Result<()> {
        let Some(edition) = self.open_edition().await? else {
            return Ok(());
        };
        let editions = Values::ints(sources.iter().map(|_| edition));
        let rows = [Values::ints(sources.iter().copied()), editions];
        self.connection.change(sql::NOTE_SOURCES, &rows).await?;
        Ok(())
    }

    /// Writes down how many sources versions of objects have, before that is changed for the first time.
    pub(super) async fn keep_objects(&mut self, objects: Values, starts: Values) -> Result<()> {
        if self.definition.replica_seconds.is_some() {
            let rows = [objects, starts];
            self.connection.change(sql::KEEP_OBJECTS, &rows).await?;
        }
        Ok(())
    }

    /// Writes down how many sources versions of objects have now.
    pub(super) async fn note_objects(&mut self, objects: Values, starts: Values) -> Result<()> {
        let Some(edition) = self.open_edition().await? else {
            return Ok(());
        };
        let editions = Values::ints(std::iter::repeat_n(edition, objects.len()));
        let rows = [objects, starts, editions];
        self.connection.change(sql::NOTE_OBJECTS, &rows).await?;
        Ok(())
    }

    /// Ends versions of objects that have no successor.
    pub(super) async fn close_versions(
        &mut self,
        versions: &[(i64, LatestVersion)],
        end: f64,
    ) -> Result<()> {
        self.end_versions(versions, end).await?;
        let Some(edition) = self.open_edition().await? else {
            return Ok(());
        };
        let rows = [
            Values::ints(versions.iter().map(|(object, _)| *object)),
            Values::reals(versions.iter().map(|(_, version)| version.validity_start)),
            Values::ints(versions.iter().map(|_| edition)),
            Values::reals(versions.iter().map(|_| end)),
        ];
        self.connection.change(sql::NOTE_CLOSES, &rows).await?;
        Ok(())
    }

    /// Writes down which forced sources were withdrawn: the objects, visits, detectors and times.
    pub(super) async fn note_withdrawals(&mut self, rows: [Values; 4]) -> Result<()> {
        let Some(edition) = self.open_edition().await? else {
            return Ok(());
        };
        let [objects, visits, detectors, times] = rows;
        let editions = Values::ints(std::iter::repeat_n(edition, objects.len()));
        let rows = [objects, visits, detectors, editions, times];
        self.connection.change(sql::NOTE_WITHDRAWALS, &rows).await?;
        Ok(())
    }

    /// Closes the open edition if a chunk of it is over.
    pub(super) async fn close_edition(&mut self, now_us: i64) -> Result<Outcome> {
        let Some(span) = self.definition.replica_seconds else {
            return Err(AlertsError::Conflict(
                "nothing of it can be published: it was made without --replica".to_owned(),
            ));
        };
        let kinds = [Kind::Int, Kind::Int];
        let open = self.connection.fetch(sql::OPEN_CHUNKS, &[], &kinds).await?;
        let Some(ids) = open.into_iter().nth(1).map(Values::into_ints) else {
            return Ok(Outcome::default());
        };
        let is_due = match self.definition.follows {
            true => !ids.is_empty() && self.is_followed_whole().await?,
            false => ids.iter().any(|id| is_over(*id, span, now_us)),
        };
        if !is_due {
            return Ok(Outcome::default());
        }
        let edition = self.add_edition(now_us).await?;
        Ok(counted(edition.unsigned_abs()))
    }

    /// Closes the open edition, and gives its number.
    pub(super) async fn add_edition(&mut self, now_us: i64) -> Result<i64> {
        let edition = self.number(sql::NEXT_EDITION).await?;
        // Whatever the clock does, each is closed after the one before.
        let closed = now_us.max(self.last_time().await? + 1);
        let row = [Values::ints([edition]), Values::ints([closed])];
        self.connection.change(sql::ADD_EDITION, &row).await?;
        let row = [Values::ints([edition])];
        self.connection.change(sql::CLOSE_CHUNKS, &row).await?;
        Ok(edition)
    }

    /// The last time of which something was published, or 0.
    pub(super) async fn last_time(&mut self) -> Result<i64> {
        let closed = self.number(sql::LAST_CLOSED).await?;
        Ok(reseeded(self.connection).await?.unwrap_or(0).max(closed))
    }
}

/// Whether nothing is expected any more in the chunk of an id, at a time in microseconds since 1970 (UTC). Of a deleted one nothing is.
pub(crate) fn is_over(id: Option<i64>, span: i64, now_us: i64) -> bool {
    let now = now_us.div_euclid(1_000_000) + TAI_MINUS_UTC;
    id.is_none_or(|id| id + span <= now)
}
