//! The log of updates, and the replica chunks.

use super::{Transaction, check_time, counted};
use crate::error::{AlertsError, Result};
use crate::operation::Outcome;
use crate::statements as sql;
use crate::store::{Kind, Values, first};
use crate::updates::{Update, UpdateRecord, nanoseconds, seconds};

impl Transaction<'_> {
    /// The number of the replica chunk of a time, which is made if it is not there, and gets another unique id. `None` if none are kept.
    pub(super) async fn replica_chunk(&mut self, time: f64) -> Result<Option<i64>> {
        let Some(span) = self.definition.replica_seconds else {
            return Ok(None);
        };
        let id = seconds(time).div_euclid(span) * span;
        let known = self
            .connection
            .fetch(sql::CHUNK_OF, &[Values::ints([id])], &[Kind::Int])
            .await?;
        let number = match first(known).into_ints().first() {
            Some(number) => *number,
            None => {
                let next = self
                    .connection
                    .fetch(sql::NEXT_CHUNK, &[], &[Kind::Int])
                    .await?;
                first(next).into_ints().first().copied().flatten()
            }
        };
        let number = number
            .ok_or_else(|| AlertsError::Damaged("a replica chunk has no number".to_owned()))?;
        let row = [
            Values::ints([number]),
            Values::ints([id]),
            Values::ints([nanoseconds(time)]),
            Values::texts([unique_id()?]),
        ];
        self.connection.change(sql::ADD_CHUNK, &row).await?;
        Ok(Some(number))
    }

    /// Writes updates of a time into the log, behind those of the same time that are there.
    pub(super) async fn log(&mut self, updates: Vec<Update>, time: f64) -> Result<()> {
        if updates.is_empty() {
            return Ok(());
        }
        let chunk = self.replica_chunk(time).await?;
        let update_time_ns = nanoseconds(time);
        let last = self
            .connection
            .fetch(
                sql::LAST_PLACE,
                &[Values::ints([update_time_ns])],
                &[Kind::Int],
            )
            .await?;
        let next = first(last)
            .into_ints()
            .first()
            .copied()
            .flatten()
            .map_or(0, |last| last + 1);
        let records = (next..)
            .zip(updates)
            .map(|(update_order, update)| UpdateRecord {
                update_time_ns,
                update_order,
                update,
            });
        let records: Vec<UpdateRecord> = records.collect();
        self.add_updates(&records, chunk).await?;
        Ok(())
    }

    pub(super) async fn add_updates(
        &mut self,
        records: &[UpdateRecord],
        chunk: Option<i64>,
    ) -> Result<u64> {
        let mut texts = Vec::with_capacity(records.len());
        for record in records {
            let text = serde_json::to_string(record);
            texts.push(text.map_err(|error| AlertsError::Invalid(error.to_string()))?);
        }
        let rows = [
            Values::ints(records.iter().map(|record| record.update_time_ns)),
            Values::ints(records.iter().map(|record| record.update_order)),
            Values::Int(vec![chunk; records.len()]),
            Values::texts(texts),
        ];
        self.connection.change(sql::ADD_UPDATES, &rows).await
    }

    pub(super) async fn append_updates(
        &mut self,
        records: &[UpdateRecord],
        time: f64,
    ) -> Result<Outcome> {
        check_time("the time", time)?;
        let chunk = self.replica_chunk(time).await?;
        let added = self.add_updates(records, chunk).await?;
        match added == records.len() as u64 {
            true => Ok(counted(added)),
            false => Err(AlertsError::Conflict(
                "the log has updates of these times and places already".to_owned(),
            )),
        }
    }
}

/// A random UUID (RFC 9562, version 4).
pub(super) fn unique_id() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| {
        AlertsError::Damaged("the operating system has no random numbers".to_owned())
    })?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok([
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-"))
}
