//! Operations within a transaction of the writer.

mod changing;
mod emptying;
mod following;
mod history;
mod log;
mod lookup;
mod reseeding;
mod storing;

use std::collections::BTreeSet;

pub(crate) use emptying::{emptied, forced_keys, keys_of, releases};
pub(crate) use history::is_over;

use crate::definition::{Definition, write_schema};
use crate::error::{AlertsError, Result};
use crate::operation::{Operation, Outcome};
use crate::published::{NeededRows, RecalledRows};
use crate::reads::{KEEP_NIGHTS, nights_of};
use crate::statements as sql;
use crate::store::{Connection, Values};

/// The level of the HTM numbers by which rows are found, as in the field's schemas.
pub(crate) const HTM_LEVEL: u32 = 20;
/// Stands for no object in the key of a source.
pub(crate) const NO_OBJECT: i64 = i64::MIN;
/// The key of the metadata that tells when duplicates were merged.
pub(crate) const DEDUPLICATED: &str = "deduplicated:mjd_tai";

/// A transaction.
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a mut dyn Connection,
    pub(crate) definition: &'a Definition,
    /// What the archive was asked for this operation: what it does not have is nowhere.
    pub(crate) asked: Option<&'a NeededRows>,
}

impl Transaction<'_> {
    /// Does an operation, with the rows that it needs of the archive.
    pub(crate) async fn apply(
        &mut self,
        operation: &Operation,
        recalled: Option<&RecalledRows>,
    ) -> Result<Outcome> {
        self.check_may_change(operation)?;
        if self.check_not_reseeding(operation).await? {
            // What is closed now would be in the way of the release.
            return Ok(Outcome::default());
        }
        if let Some(recalled) = recalled {
            self.recall(recalled).await?;
        }
        match operation {
            Operation::Store(request) => self.store(request).await,
            Operation::ReassignToSolarSystem { sources, time } => {
                self.reassign_to_solar_system(sources, *time).await
            }
            Operation::ReassignToObjects {
                sources,
                increment,
                decrement,
                time,
            } => {
                self.reassign_to_objects(sources, (*increment, *decrement), *time)
                    .await
            }
            Operation::CloseObjects {
                objects,
                validity_end,
                must_exist,
                time,
            } => {
                self.close_objects(objects, *validity_end, *must_exist, *time)
                    .await
            }
            Operation::WithdrawSources {
                sources,
                withdrawn,
                time,
            } => self.withdraw_sources(sources, *withdrawn, *time).await,
            Operation::WithdrawForcedSources {
                sources,
                withdrawn,
                time,
            } => self.withdraw_forced(sources, *withdrawn, *time).await,
            Operation::SetMetadata {
                key,
                value,
                replace,
            } => self.set_metadata(key, value, *replace).await,
            Operation::DeleteMetadata { key } => {
                let keys = [Values::texts([key.clone()])];
                Ok(counted(
                    self.connection.change(sql::DELETE_METADATA, &keys).await?,
                ))
            }
            Operation::ResetDeduplication { time } => {
                check_time("the time", *time)?;
                self.set_metadata(DEDUPLICATED, &time.to_string(), true)
                    .await
            }
            Operation::AppendUpdates { records, time } => self.append_updates(records, *time).await,
            Operation::DeleteReplicaChunks { chunks } => {
                let ids = [Values::ints(distinct(chunks.iter().copied()))];
                Ok(counted(
                    self.connection.change(sql::DELETE_CHUNKS, &ids).await?,
                ))
            }
            Operation::CloseEdition { now_us } => self.close_edition(*now_us).await,
            Operation::Empty { through, step } => self.empty(*through, *step).await,
            Operation::Follow(request) => self.follow(request).await,
            Operation::Reseed(step) => self.reseed(step).await,
            Operation::SetSchema(schema) => {
                self.definition.schema.check_successor(schema)?;
                let last = self.definition.layouts.keys().copied().max().unwrap_or(0);
                write_schema(self.connection, schema, last).await?;
                Ok(counted(1))
            }
        }
    }

    async fn set_metadata(&mut self, key: &str, value: &str, replace: bool) -> Result<Outcome> {
        if key.is_empty() || value.is_empty() {
            let sentence = "neither the key nor the value of metadata can be empty".to_owned();
            return Err(AlertsError::Invalid(sentence));
        }
        if key == KEEP_NIGHTS {
            nights_of(value).map_err(AlertsError::Invalid)?;
        }
        let row = [
            Values::texts([key.to_owned()]),
            Values::texts([value.to_owned()]),
        ];
        let statement = match replace {
            true => sql::SET_METADATA,
            false => sql::ADD_METADATA,
        };
        match self.connection.change(statement, &row).await? {
            0 => Err(AlertsError::Conflict(format!(
                "Metadata key '{key}' already exists"
            ))),
            count => Ok(counted(count)),
        }
    }
}

fn counted(count: u64) -> Outcome {
    Outcome {
        count,
        is_repeated: false,
    }
}

/// Times are finite, and between the years 1800 and 2200 or so.
fn check_time(name: &str, time: f64) -> Result<()> {
    match (-20_000.0..=125_000.0).contains(&time) {
        true => Ok(()),
        false => Err(AlertsError::Invalid(format!(
            "{name} is {time}: give it as a Modified Julian Date (TAI), such as 61000.25"
        ))),
    }
}

/// Each number once, in order.
fn distinct(values: impl Iterator<Item = i64>) -> Vec<i64> {
    values.collect::<BTreeSet<i64>>().into_iter().collect()
}
