//! What was read of the database that is followed, as the store remembers it.

use std::collections::HashMap;

use arrow::array::RecordBatch;

use crate::error::{AlertsError, Result};
use crate::statements as sql;
use crate::store::{Connection, Kind, Values};

const COMPLETE: &str = "followed_complete";
const COPIED: &str = "followed_copied";
const ROWS: [&str; 3] = ["followed_objects", "followed_sources", "followed_forced"];
const REASSIGNED: &str = "followed_reassigned";
const REASSIGNED_BEFORE: &str = "followed_reassigned_before";

/// Rows as they are in the database that is followed.
#[derive(Debug, Default)]
pub struct FollowRequest {
    /// Versions of objects.
    pub objects: Vec<RecordBatch>,
    /// Sources.
    pub sources: Vec<RecordBatch>,
    /// Forced sources.
    pub forced: Vec<RecordBatch>,
    /// The id of the replica chunk there that they are of; without one they are of many.
    pub chunk: Option<i64>,
    /// What has been read with these rows.
    pub read: Option<ReadState>,
}

impl FollowRequest {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        let batches = self.objects.iter().chain(&self.sources).chain(&self.forced);
        batches.map(RecordBatch::num_rows).sum()
    }
}

/// What has been read of the database that is followed.
#[derive(Debug, Default)]
pub struct ReadState {
    /// Replica chunks, as they were.
    pub chunks: Vec<FollowedChunk>,
    /// Whether all rows were read once, whatever their chunks.
    pub is_copied: bool,
    /// How many rows the three tables have there, if all chunks were read in one moment: as many have to be here.
    pub expects: Option<[i64; 3]>,
    /// How far sources were read by the time when an object of the solar system was found for them, as MJD (TAI), and how many have an
    /// earlier time than the margin before.
    pub reassigned: Option<(f64, i64)>,
}

/// A replica chunk of the database that is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedChunk {
    /// Its number there: seconds since 1970 (TAI).
    pub id: i64,
    /// What changes with each store; `None` once the chunk was deleted and only its updates are left.
    pub unique_id: Option<String>,
    /// How many updates it has.
    pub updates: i64,
}

/// What the store remembers.
#[derive(Debug, Clone, Default)]
pub(crate) struct FollowState {
    /// Whether all that was read is of one moment.
    pub(crate) is_complete: bool,
    pub(crate) is_copied: bool,
    /// How many rows of the three tables are here.
    pub(crate) rows: [i64; 3],
    pub(crate) reassigned: Option<(f64, i64)>,
}

impl FollowState {
    pub(crate) async fn read(connection: &mut dyn Connection) -> Result<Self> {
        let kinds = [Kind::Text, Kind::Text];
        let found = connection.fetch(sql::SETTINGS, &[], &kinds).await?;
        let mut found = found.into_iter().map(Values::into_texts);
        let names = found.next().unwrap_or_default().into_iter();
        let settings: HashMap<String, String> = names
            .zip(found.next().unwrap_or_default())
            .filter_map(|(name, value)| Some((name?, value?)))
            .collect();
        let number = |name: &str| -> Result<Option<i64>> {
            let text = settings.get(name).map(|text| text.parse());
            text.transpose()
                .map_err(|_| AlertsError::Damaged(format!("the setting {name} is no number")))
        };
        let mut rows = [0; 3];
        for (count, name) in rows.iter_mut().zip(ROWS) {
            *count = number(name)?.unwrap_or(0);
        }
        // Its bits, so that no digit is lost.
        let time = number(REASSIGNED)?.map(|bits| f64::from_bits(bits.cast_unsigned()));
        Ok(Self {
            is_complete: number(COMPLETE)? == Some(1),
            is_copied: number(COPIED)? == Some(1),
            rows,
            reassigned: time.zip(number(REASSIGNED_BEFORE)?),
        })
    }

    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let flag = |value: bool| i64::from(value).to_string();
        let mut settings = vec![
            (COMPLETE, flag(self.is_complete)),
            (COPIED, flag(self.is_copied)),
        ];
        settings.extend(
            ROWS.into_iter()
                .zip(self.rows.map(|count| count.to_string())),
        );
        if let Some((time, before)) = self.reassigned {
            let bits = time.to_bits().cast_signed();
            settings.push((REASSIGNED, bits.to_string()));
            settings.push((REASSIGNED_BEFORE, before.to_string()));
        }
        settings
    }

    /// The replica chunks that were read.
    pub(crate) async fn chunks(
        connection: &mut dyn Connection,
    ) -> Result<HashMap<i64, FollowedChunk>> {
        let kinds = [Kind::Int, Kind::Text, Kind::Int];
        let found = connection.fetch(sql::FOLLOWED_CHUNKS, &[], &kinds).await?;
        let mut found = found.into_iter();
        let ids = found.next().map(Values::into_ints).unwrap_or_default();
        let unique = found.next().map(Values::into_texts).unwrap_or_default();
        let updates = found.next().map(Values::into_ints).unwrap_or_default();
        let chunks = ids.into_iter().zip(unique).zip(updates);
        let chunk = |((id, unique_id), updates): ((Option<i64>, _), Option<i64>)| {
            let id = id?;
            let updates = updates?;
            Some((
                id,
                FollowedChunk {
                    id,
                    unique_id,
                    updates,
                },
            ))
        };
        Ok(chunks.filter_map(chunk).collect())
    }
}
