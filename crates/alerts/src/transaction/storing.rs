//! Storing what was found in an exposure of a detector.

use std::collections::{BTreeSet, HashMap, HashSet};

use arrow::array::RecordBatch;
use sky::htm::{Level, ids_degrees};

use super::lookup::LatestVersion;
use super::{HTM_LEVEL, NO_OBJECT, Transaction, check_time, counted, forced_keys};
use crate::error::{AlertsError, Result, listed};
use crate::operation::{Outcome, StoreRequest};
use crate::rows::{Kept, conformed, ints, payloads, reals};
use crate::schema::{AlertTable, names};
use crate::statements as sql;
use crate::store::{Kind, Values, first};

const MOST_REQUEST_BYTES: usize = 200;

impl Transaction<'_> {
    pub(super) async fn store(&mut self, request: &StoreRequest) -> Result<Outcome> {
        let time = request.visit_time;
        check_time("the visit's time", time)?;
        if let Some(name) = &request.request {
            if name.is_empty() || name.len() > MOST_REQUEST_BYTES {
                let sentence = format!("the name of a request has 1 to {MOST_REQUEST_BYTES} bytes");
                return Err(AlertsError::Invalid(sentence));
            }
            let names = [Values::texts([name.clone()])];
            let stored = self
                .connection
                .fetch(sql::STORED_REQUEST, &names, &[Kind::Real])
                .await?;
            if first(stored).len() > 0 {
                return Ok(Outcome {
                    count: 0,
                    is_repeated: true,
                });
            }
            let row = [Values::texts([name.clone()]), Values::reals([time])];
            self.connection.change(sql::ADD_REQUEST, &row).await?;
        }
        let schema = &self.definition.schema;
        let filled = [names::VALIDITY_START, names::VALIDITY_END];
        let objects = conformed(
            schema.table(AlertTable::DiaObject),
            &request.objects,
            &filled,
        )?;
        let sources = conformed(schema.table(AlertTable::DiaSource), &request.sources, &[])?;
        let forced = conformed(
            schema.table(AlertTable::DiaForcedSource),
            &request.forced,
            &[],
        )?;
        let rows = (objects.num_rows() + sources.num_rows() + forced.num_rows()) as u64;
        if rows == 0 {
            return Ok(Outcome::default());
        }
        self.check_after_cut(time, &sources, &forced).await?;
        let chunk = self.replica_chunk(time).await?;
        self.store_objects(&objects, time, chunk).await?;
        self.store_sources(&sources, chunk).await?;
        self.store_forced(&forced, chunk).await?;
        self.store_visits(&[&sources, &forced]).await?;
        Ok(counted(rows))
    }

    pub(super) async fn store_visits(&mut self, tables: &[&RecordBatch]) -> Result<()> {
        let mut visits = BTreeSet::new();
        for table in tables {
            let pairs = ints(table, names::VISIT)
                .into_iter()
                .zip(ints(table, names::DETECTOR));
            visits.extend(pairs.filter_map(|(visit, detector)| Some((visit?, detector?))));
        }
        let rows = [
            Values::ints(visits.iter().map(|pair| pair.0)),
            Values::ints(visits.iter().map(|pair| pair.1)),
        ];
        self.connection.change(sql::ADD_VISITS, &rows).await?;
        Ok(())
    }

    pub(super) async fn store_objects(
        &mut self,
        batch: &RecordBatch,
        time: f64,
        chunk: Option<i64>,
    ) -> Result<()> {
        let count = batch.num_rows();
        let objects = required(batch, names::DIA_OBJECT);
        if let Some(twice) = repeated(&objects) {
            return Err(AlertsError::Conflict(format!(
                "the DiaObject {twice} comes twice in one store"
            )));
        }
        let latest = self.latest_of(&objects).await?;
        self.check_starts(&objects, &latest, time).await?;
        let closed: Vec<(i64, LatestVersion)> = objects
            .iter()
            .filter_map(|object| Some((*object, *latest.get(object)?)))
            .collect();
        self.end_versions(&closed, time).await?;
        let htm = htm_numbers(batch, "DiaObject")?;
        let sources = Values::Int(ints(batch, names::N_SOURCES));
        let start = Values::reals(std::iter::repeat_n(time, count));
        let (number, layout) = self.definition.layout(Kept::Table(AlertTable::DiaObject))?;
        let rows = [
            Values::ints(objects.iter().copied()),
            start.clone(),
            Values::Real(vec![None; count]),
            sources.clone(),
            Values::Int(vec![chunk; count]),
            Values::ints(std::iter::repeat_n(number, count)),
            Values::bytes(payloads(batch, &layout)),
        ];
        self.connection.change(sql::ADD_OBJECTS, &rows).await?;
        let (number, layout) = self.definition.layout(Kept::Latest)?;
        let rows = [
            Values::ints(htm),
            Values::ints(objects),
            start,
            sources,
            Values::ints(std::iter::repeat_n(number, count)),
            Values::bytes(payloads(batch, &layout)),
        ];
        self.connection.change(sql::ADD_LATEST, &rows).await?;
        Ok(())
    }

    /// Refuses versions that do not begin after those that are there.
    pub(super) async fn check_starts(
        &mut self,
        objects: &[i64],
        latest: &HashMap<i64, LatestVersion>,
        time: f64,
    ) -> Result<()> {
        let not_after: Vec<i64> = objects
            .iter()
            .copied()
            .filter(|object| {
                latest
                    .get(object)
                    .is_some_and(|version| version.validity_start >= time)
            })
            .collect();
        if !not_after.is_empty() {
            return Err(AlertsError::Conflict(format!(
                "these DiaObjects have a version of this time or a later one: {}",
                listed(&not_after)
            )));
        }
        let others = objects
            .iter()
            .copied()
            .filter(|object| !latest.contains_key(object));
        let others = [Values::ints(others)];
        let kinds = [Kind::Int, Kind::Real, Kind::Real];
        let mut found = self
            .connection
            .fetch(sql::LAST_VERSIONS, &others, &kinds)
            .await?
            .into_iter();
        let objects = found.next().map(Values::into_ints).unwrap_or_default();
        let starts = found.next().map(Values::into_reals).unwrap_or_default();
        let ends = found.next().map(Values::into_reals).unwrap_or_default();
        let versions = objects.into_iter().zip(starts).zip(ends);
        let later = versions.filter(|((_, start), end)| {
            start.is_some_and(|start| start >= time) || end.is_some_and(|end| end > time)
        });
        let later: Vec<i64> = later.filter_map(|((object, _), _)| object).collect();
        match later.is_empty() {
            true => Ok(()),
            false => Err(AlertsError::Conflict(format!(
                "these DiaObjects were closed, and were valid at this time or a later one: {}",
                listed(&later)
            ))),
        }
    }

    /// Gives the latest versions of objects their end.
    pub(super) async fn end_versions(
        &mut self,
        versions: &[(i64, LatestVersion)],
        end: f64,
    ) -> Result<()> {
        let objects = || versions.iter().map(|(object, _)| *object);
        let rows = [
            Values::ints(objects()),
            Values::reals(versions.iter().map(|(_, version)| version.validity_start)),
            Values::reals(versions.iter().map(|_| end)),
        ];
        self.connection.change(sql::CLOSE_VERSIONS, &rows).await?;
        let rows = [
            Values::ints(versions.iter().map(|(_, version)| version.htm)),
            Values::ints(objects()),
        ];
        self.connection.change(sql::REMOVE_LATEST, &rows).await?;
        Ok(())
    }

    pub(super) async fn store_sources(
        &mut self,
        batch: &RecordBatch,
        chunk: Option<i64>,
    ) -> Result<()> {
        let count = batch.num_rows();
        let ids = required(batch, names::DIA_SOURCE);
        self.check_not_emptied(&ids).await?;
        let stored = self.add_sources(batch, vec![chunk; count]).await?;
        if stored == count as u64 {
            return Ok(());
        }
        let repeated = repeated(&ids).map_or_else(String::new, |id| format!(": {id} comes twice"));
        Err(AlertsError::Conflict(format!(
            "{} of the DiaSources are stored already{repeated}; a retry of a store is recognised by its request name",
            count as u64 - stored
        )))
    }

    /// Adds the sources that are not there yet, and tells how many these are.
    pub(super) async fn add_sources(
        &mut self,
        batch: &RecordBatch,
        chunks: Vec<Option<i64>>,
    ) -> Result<u64> {
        let (number, layout) = self.definition.layout(Kept::Table(AlertTable::DiaSource))?;
        let objects = ints(batch, names::DIA_OBJECT).into_iter();
        let rows = [
            Values::ints(objects.map(|object| object.unwrap_or(NO_OBJECT))),
            Values::Real(reals(batch, names::MIDPOINT)),
            Values::ints(required(batch, names::DIA_SOURCE)),
            Values::ints(htm_numbers(batch, "DiaSource")?),
            Values::Int(ints(batch, names::SS_OBJECT)),
            Values::Real(reals(batch, names::SS_REASSIGNED)),
            Values::Real(reals(batch, names::WITHDRAWN)),
            Values::Int(chunks),
            Values::ints(std::iter::repeat_n(number, batch.num_rows())),
            Values::bytes(payloads(batch, &layout)),
        ];
        self.connection.change(sql::ADD_SOURCES, &rows).await
    }

    pub(super) async fn store_forced(
        &mut self,
        batch: &RecordBatch,
        chunk: Option<i64>,
    ) -> Result<()> {
        let count = batch.num_rows();
        self.need_forced(&forced_keys(batch)).await?;
        let stored = self.add_forced(batch, vec![chunk; count]).await?;
        match stored == count as u64 {
            true => Ok(()),
            false => Err(AlertsError::Conflict(format!(
                "{} of the DiaForcedSources are stored already, by their object, visit and detector; a retry of a store is recognised \
                 by its request name",
                count as u64 - stored
            ))),
        }
    }

    /// Adds the forced sources that are not there yet, and tells how many these are.
    pub(super) async fn add_forced(
        &mut self,
        batch: &RecordBatch,
        chunks: Vec<Option<i64>>,
    ) -> Result<u64> {
        let (number, layout) = self
            .definition
            .layout(Kept::Table(AlertTable::DiaForcedSource))?;
        let rows = [
            Values::ints(required(batch, names::DIA_OBJECT)),
            Values::ints(required(batch, names::VISIT)),
            Values::ints(required(batch, names::DETECTOR)),
            Values::Real(reals(batch, names::MIDPOINT)),
            Values::ints(htm_numbers(batch, "DiaForcedSource")?),
            Values::Real(reals(batch, names::WITHDRAWN)),
            Values::Int(chunks),
            Values::ints(std::iter::repeat_n(number, batch.num_rows())),
            Values::bytes(payloads(batch, &layout)),
        ];
        self.connection.change(sql::ADD_FORCED, &rows).await
    }
}

/// A column that has no NULL, because the schema does not allow it; a NULL that slips through is refused by the database below.
pub(super) fn required(batch: &RecordBatch, name: &str) -> Vec<i64> {
    ints(batch, name)
        .into_iter()
        .map(|value| value.unwrap_or(NO_OBJECT))
        .collect()
}

pub(super) fn htm_numbers(batch: &RecordBatch, table: &str) -> Result<Vec<i64>> {
    let level = Level::new(HTM_LEVEL).map_err(|error| AlertsError::Invalid(error.to_string()))?;
    let degrees = |name| {
        reals(batch, name)
            .into_iter()
            .map(|value| value.unwrap_or(f64::NAN))
    };
    let (ra, dec): (Vec<f64>, Vec<f64>) =
        (degrees(names::RA).collect(), degrees(names::DEC).collect());
    let mut numbers = Vec::new();
    ids_degrees(level, &ra, &dec, &mut numbers);
    match numbers.iter().position(|&number| number == 0) {
        None => Ok(numbers.into_iter().map(|number| number as i64).collect()),
        Some(row) => Err(AlertsError::Invalid(format!(
            "row {} of {table} has no position: ra {}, dec {}; they are in degrees, dec from -90 to 90",
            row + 1,
            ra[row],
            dec[row]
        ))),
    }
}

fn repeated(values: &[i64]) -> Option<i64> {
    let mut seen = HashSet::new();
    values.iter().copied().find(|value| !seen.insert(*value))
}
