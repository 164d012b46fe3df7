//! Rows of another database, which this one follows: each becomes here what it is there.
//!
//! Rows are given as they are there now, whatever they were before. One that is not here is stored, and of one that is here what may change
//! of a row is changed: so that the same rows can be given any number of times, and the order in which they became what they are does not
//! matter. Every end of a version is written down by itself, since versions of an object may come in any order.

use std::collections::{HashMap, HashSet};

use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::error::ArrowError;

use super::log::unique_id;
use super::storing::{htm_numbers, required};
use super::{NO_OBJECT, Transaction, counted, forced_keys};
use crate::error::{AlertsError, Result, listed};
use crate::follow::{FollowRequest, FollowState, ReadState};
use crate::operation::{Operation, Outcome};
use crate::rows::{Kept, conformed, ints, payloads, reals};
use crate::schema::{AlertTable, names};
use crate::statements as sql;
use crate::store::{Kind, Values, first};

/// A version of an object, by its number and the bits of the time when it began.
type Version = (i64, u64);

/// How many rows were stored, and how many that were here have changed.
#[derive(Debug, Clone, Copy)]
struct Done {
    added: i64,
    changed: i64,
}

impl Done {
    fn of(added: usize, changed: usize) -> Self {
        Self {
            added: added as i64,
            changed: changed as i64,
        }
    }
}

/// What may change of a source: its object, its object of the solar system and when that was found, and when it was withdrawn.
type SourceState = (i64, Option<i64>, Option<f64>, Option<f64>);

impl Transaction<'_> {
    /// Refuses what only pipelines do, in a database that follows another one.
    pub(super) fn check_may_change(&self, operation: &Operation) -> Result<()> {
        let is_followed = match operation {
            Operation::Store(_)
            | Operation::ReassignToSolarSystem { .. }
            | Operation::ReassignToObjects { .. }
            | Operation::CloseObjects { .. }
            | Operation::WithdrawSources { .. }
            | Operation::WithdrawForcedSources { .. }
            | Operation::ResetDeduplication { .. }
            | Operation::AppendUpdates { .. }
            | Operation::DeleteReplicaChunks { .. }
            | Operation::Empty { .. } => true,
            Operation::SetMetadata { key, .. } => key == crate::reads::KEEP_NIGHTS,
            Operation::Follow(_)
            | Operation::DeleteMetadata { .. }
            | Operation::CloseEdition { .. }
            | Operation::Reseed(_)
            | Operation::SetSchema(_) => false,
        };
        match is_followed && self.definition.follows {
            true => Err(AlertsError::Conflict(
                "this alert database follows another one, or did: pipelines store into that one"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Stores and changes rows, and writes down what was read.
    pub(super) async fn follow(&mut self, request: &FollowRequest) -> Result<Outcome> {
        if !self.definition.follows {
            return Err(AlertsError::Conflict(
                "this alert database follows no other one".to_owned(),
            ));
        }
        let schema = &self.definition.schema;
        let rows = |table: AlertTable, batches: &[RecordBatch]| {
            conformed(schema.table(table), batches, &[])
        };
        let objects = rows(AlertTable::DiaObject, &request.objects)?;
        let sources = rows(AlertTable::DiaSource, &request.sources)?;
        let forced = rows(AlertTable::DiaForcedSource, &request.forced)?;
        let mut state = FollowState::read(self.connection).await?;
        let mut added = 0;
        if request.rows() > 0 {
            let (chunk, is_new) = self.followed_chunk(request.chunk).await?;
            let done = [
                self.follow_objects(&objects, chunk).await?,
                self.follow_sources(&sources, chunk).await?,
                self.follow_forced(&forced, chunk).await?,
            ];
            for (count, done) in state.rows.iter_mut().zip(&done) {
                *count += done.added;
                added += done.added;
            }
            if is_new && done.iter().all(|it| it.added + it.changed == 0) {
                let row = [Values::ints([chunk])];
                self.connection.change(sql::REMOVE_CHUNK, &row).await?;
            }
            self.store_visits(&[&sources, &forced]).await?;
        }
        // What was read in part is not published.
        state.is_complete = false;
        if let Some(read) = &request.read {
            self.note_read(read, &mut state).await?;
        }
        let settings = state.settings();
        let keys = Values::texts(settings.iter().map(|(name, _)| (*name).to_owned()));
        let values = Values::texts(settings.into_iter().map(|(_, value)| value));
        self.connection
            .change(sql::SET_SETTING, &[keys, values])
            .await?;
        Ok(counted(added.unsigned_abs()))
    }

    async fn note_read(&mut self, read: &ReadState, state: &mut FollowState) -> Result<()> {
        let chunks = [
            Values::ints(read.chunks.iter().map(|chunk| chunk.id)),
            Values::Text(read.chunks.iter().map(|it| it.unique_id.clone()).collect()),
            Values::ints(read.chunks.iter().map(|chunk| chunk.updates)),
        ];
        self.connection
            .change(sql::NOTE_FOLLOWED_CHUNKS, &chunks)
            .await?;
        state.is_copied |= read.is_copied;
        if read.reassigned.is_some() {
            state.reassigned = read.reassigned;
        }
        state.is_complete = read.expects == Some(state.rows);
        Ok(())
    }

    /// The number of the chunk of rows, with the id of the chunk there or without one, and whether it is new.
    async fn followed_chunk(&mut self, id: Option<i64>) -> Result<(i64, bool)> {
        let known = match id {
            None => Vec::new(),
            Some(id) => {
                let rows = [Values::ints([id])];
                let found = self.connection.fetch(sql::CHUNK_OF, &rows, &[Kind::Int]);
                first(found.await?).into_ints()
            }
        };
        let known = known.first().copied().flatten();
        let number = match known {
            Some(number) => number,
            None => self.number(sql::NEXT_CHUNK).await?,
        };
        let row = [
            Values::ints([number]),
            Values::Int(vec![id]),
            Values::ints([id.unwrap_or_default().saturating_mul(1_000_000_000)]),
            Values::texts([unique_id()?]),
        ];
        self.connection.change(sql::ADD_CHUNK, &row).await?;
        Ok((number, known.is_none()))
    }

    /// Versions of objects.
    async fn follow_objects(&mut self, batch: &RecordBatch, chunk: i64) -> Result<Done> {
        let objects = required(batch, names::DIA_OBJECT);
        if objects.contains(&NO_OBJECT) {
            return Err(AlertsError::Invalid(format!(
                "a DiaObject cannot have the number {NO_OBJECT}"
            )));
        }
        let starts: Vec<f64> = reals(batch, names::VALIDITY_START)
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect();
        let key = |row: usize| (objects[row], starts[row].to_bits());
        let known = self.known_versions(&objects, &starts).await?;
        let mut seen = HashSet::new();
        let rows = (0..batch.num_rows()).filter(|&row| seen.insert(key(row)));
        let (here, new): (Vec<usize>, Vec<usize>) =
            rows.partition(|&row| known.contains_key(&key(row)));
        let ends = reals(batch, names::VALIDITY_END);
        let counts = ints(batch, names::N_SOURCES);
        let mut ended = Vec::new();
        let mut recounted = Vec::new();
        for row in here {
            let (end, count) = known[&key(row)];
            match (end, ends[row]) {
                (None, Some(end)) => ended.push((objects[row], starts[row], end)),
                (before, now) if before == now => {}
                (before, now) => {
                    return Err(AlertsError::Conflict(format!(
                        "the version of DiaObject {} that began at {} ended at {}, and now {}: an end that was read cannot change",
                        objects[row],
                        starts[row],
                        before.unwrap_or_default(),
                        now.map_or_else(|| "it has no end".to_owned(), |now| format!("at {now}")),
                    )));
                }
            }
            if count != counts[row] {
                recounted.push(row);
            }
        }
        self.recount(&objects, &starts, &counts, &recounted).await?;
        self.end_each(&ended).await?;
        self.add_versions(&taken(batch, &new)?, chunk).await?;
        Ok(Done::of(new.len(), ended.len() + recounted.len()))
    }

    /// The ends and the numbers of sources of those of these versions that are here.
    async fn known_versions(
        &mut self,
        objects: &[i64],
        starts: &[f64],
    ) -> Result<HashMap<Version, (Option<f64>, Option<i64>)>> {
        let rows = [
            Values::ints(objects.iter().copied()),
            Values::reals(starts.iter().copied()),
        ];
        let kinds = [Kind::Int, Kind::Real, Kind::Real, Kind::Int];
        let found = self
            .connection
            .fetch(sql::VERSIONS_BY_KEY, &rows, &kinds)
            .await?;
        let mut found = found.into_iter();
        let objects = found.next().map(Values::into_ints).unwrap_or_default();
        let starts = found.next().map(Values::into_reals).unwrap_or_default();
        let ends = found.next().map(Values::into_reals).unwrap_or_default();
        let counts = found.next().map(Values::into_ints).unwrap_or_default();
        let states = ends.into_iter().zip(counts);
        let versions = objects.into_iter().zip(starts).zip(states);
        let version = |((object, start), state): ((Option<i64>, Option<f64>), _)| {
            Some(((object?, start?.to_bits()), state))
        };
        Ok(versions.filter_map(version).collect())
    }

    /// Gives versions other numbers of sources.
    async fn recount(
        &mut self,
        objects: &[i64],
        starts: &[f64],
        counts: &[Option<i64>],
        rows: &[usize],
    ) -> Result<()> {
        let keys = || Values::ints(rows.iter().map(|&row| objects[row]));
        let begins = || Values::reals(rows.iter().map(|&row| starts[row]));
        let sources = || Values::Int(rows.iter().map(|&row| counts[row]).collect());
        self.keep_objects(keys(), begins()).await?;
        let changed = [keys(), begins(), sources()];
        self.connection.change(sql::COUNT_OBJECTS, &changed).await?;
        self.note_objects(keys(), begins()).await?;
        let open = self
            .open_versions(rows.iter().map(|&row| objects[row]))
            .await?;
        let latest: Vec<(i64, i64, Option<i64>)> = rows
            .iter()
            .filter_map(|&row| {
                let (start, htm) = open.get(&objects[row])?;
                (start.to_bits() == starts[row].to_bits()).then_some((
                    *htm,
                    objects[row],
                    counts[row],
                ))
            })
            .collect();
        let changed = [
            Values::ints(latest.iter().map(|it| it.0)),
            Values::ints(latest.iter().map(|it| it.1)),
            Values::Int(latest.iter().map(|it| it.2).collect()),
        ];
        self.connection.change(sql::COUNT_LATEST, &changed).await?;
        Ok(())
    }

    /// When the open versions of objects began, and their HTM numbers.
    async fn open_versions(
        &mut self,
        objects: impl Iterator<Item = i64>,
    ) -> Result<HashMap<i64, (f64, i64)>> {
        let objects: HashSet<i64> = objects.collect();
        let kinds = [Kind::Int, Kind::Real, Kind::Int];
        let found = self
            .connection
            .fetch(sql::OPEN_VERSIONS, &[Values::ints(objects)], &kinds)
            .await?;
        let mut found = found.into_iter();
        let objects = found.next().map(Values::into_ints).unwrap_or_default();
        let starts = found.next().map(Values::into_reals).unwrap_or_default();
        let htm = found.next().map(Values::into_ints).unwrap_or_default();
        let places = starts.into_iter().zip(htm);
        let version = |(object, (start, htm)): (Option<i64>, (Option<f64>, Option<i64>))| {
            Some((object?, (start?, htm?)))
        };
        Ok(objects
            .into_iter()
            .zip(places)
            .filter_map(version)
            .collect())
    }

    /// Ends open versions, each at its time.
    async fn end_each(&mut self, ended: &[(i64, f64, f64)]) -> Result<()> {
        let open = self.open_versions(ended.iter().map(|it| it.0)).await?;
        let rows = [
            Values::ints(ended.iter().map(|it| it.0)),
            Values::reals(ended.iter().map(|it| it.1)),
            Values::reals(ended.iter().map(|it| it.2)),
        ];
        self.connection.change(sql::CLOSE_VERSIONS, &rows).await?;
        let gone = ended.iter().filter_map(|(object, _, _)| {
            let (_, htm) = open.get(object)?;
            Some((*htm, *object))
        });
        let gone: Vec<(i64, i64)> = gone.collect();
        let latest = [
            Values::ints(gone.iter().map(|it| it.0)),
            Values::ints(gone.iter().map(|it| it.1)),
        ];
        self.connection.change(sql::REMOVE_LATEST, &latest).await?;
        self.note_ends(ended).await
    }

    async fn note_ends(&mut self, ended: &[(i64, f64, f64)]) -> Result<()> {
        let edition = self.number(sql::NEXT_EDITION).await?;
        let rows = [
            Values::ints(ended.iter().map(|it| it.0)),
            Values::reals(ended.iter().map(|it| it.1)),
            Values::ints(ended.iter().map(|_| edition)),
            Values::reals(ended.iter().map(|it| it.2)),
        ];
        self.connection.change(sql::NOTE_CLOSES, &rows).await?;
        Ok(())
    }

    async fn add_versions(&mut self, batch: &RecordBatch, chunk: i64) -> Result<()> {
        let count = batch.num_rows();
        let objects = required(batch, names::DIA_OBJECT);
        let starts = Values::Real(reals(batch, names::VALIDITY_START));
        let ends = reals(batch, names::VALIDITY_END);
        let is_open = |row: &usize| ends[*row].is_none();
        let (open, ended): (Vec<usize>, Vec<usize>) = (0..count).partition(is_open);
        let mut unique = HashSet::new();
        let twice = open.iter().map(|&row| objects[row]);
        let mut twice: Vec<i64> = twice.filter(|object| !unique.insert(*object)).collect();
        twice.extend(self.open_versions(unique.into_iter()).await?.keys());
        if !twice.is_empty() {
            return Err(AlertsError::Conflict(format!(
                "these DiaObjects have more than one version without an end there: {}",
                listed(&twice)
            )));
        }
        let (number, layout) = self.definition.layout(Kept::Table(AlertTable::DiaObject))?;
        let htm = htm_numbers(batch, "DiaObject")?;
        let rows = [
            Values::ints(objects.iter().copied()),
            starts,
            Values::Real(ends.clone()),
            Values::Int(ints(batch, names::N_SOURCES)),
            Values::ints(std::iter::repeat_n(chunk, count)),
            Values::ints(std::iter::repeat_n(number, count)),
            Values::bytes(payloads(batch, &layout)),
        ];
        self.connection.change(sql::ADD_OBJECTS, &rows).await?;
        let begins = reals(batch, names::VALIDITY_START);
        let noted: Vec<(i64, f64, f64)> = ended
            .iter()
            .filter_map(|&row| Some((objects[row], begins[row]?, ends[row]?)))
            .collect();
        self.note_ends(&noted).await?;
        let latest = taken(batch, &open)?;
        let (number, layout) = self.definition.layout(Kept::Latest)?;
        let rows = [
            Values::ints(open.iter().map(|&row| htm[row])),
            Values::ints(open.iter().map(|&row| objects[row])),
            Values::Real(reals(&latest, names::VALIDITY_START)),
            Values::Int(ints(&latest, names::N_SOURCES)),
            Values::ints(std::iter::repeat_n(number, open.len())),
            Values::bytes(payloads(&latest, &layout)),
        ];
        self.connection.change(sql::ADD_LATEST, &rows).await?;
        Ok(())
    }

    /// Sources.
    async fn follow_sources(&mut self, batch: &RecordBatch, chunk: i64) -> Result<Done> {
        let ids = required(batch, names::DIA_SOURCE);
        let known = self.known_sources(&ids).await?;
        let objects = ints(batch, names::DIA_OBJECT);
        let ss_objects = ints(batch, names::SS_OBJECT);
        let reassigned = reals(batch, names::SS_REASSIGNED);
        let withdrawn = reals(batch, names::WITHDRAWN);
        let state = |row: usize| -> SourceState {
            let object = objects[row].unwrap_or(NO_OBJECT);
            (object, ss_objects[row], reassigned[row], withdrawn[row])
        };
        let mut seen = HashSet::new();
        let rows = (0..batch.num_rows()).filter(|&row| seen.insert(ids[row]));
        let (here, new): (Vec<usize>, Vec<usize>) =
            rows.partition(|&row| known.contains_key(&ids[row]));
        let is_changed = |row: &usize| known[&ids[*row]] != state(*row);
        let changed: Vec<usize> = here.into_iter().filter(is_changed).collect();
        let changed_ids: Vec<i64> = changed.iter().map(|&row| ids[row]).collect();
        self.keep_sources(&changed_ids).await?;
        let rows = [
            Values::ints(changed_ids.iter().copied()),
            Values::ints(changed.iter().map(|&row| state(row).0)),
            Values::Int(changed.iter().map(|&row| ss_objects[row]).collect()),
            Values::Real(changed.iter().map(|&row| reassigned[row]).collect()),
            Values::Real(changed.iter().map(|&row| withdrawn[row]).collect()),
        ];
        self.connection.change(sql::SET_SOURCES, &rows).await?;
        self.note_sources(&changed_ids).await?;
        let new = taken(batch, &new)?;
        let count = new.num_rows();
        match self.add_sources(&new, vec![Some(chunk); count]).await? {
            added if added == count as u64 => Ok(Done::of(count, changed.len())),
            _ => Err(AlertsError::Damaged(
                "sources that are not there cannot be stored".to_owned(),
            )),
        }
    }

    async fn known_sources(&mut self, ids: &[i64]) -> Result<HashMap<i64, SourceState>> {
        let rows = [Values::ints(ids.iter().copied())];
        let kinds = [Kind::Int, Kind::Int, Kind::Int, Kind::Real, Kind::Real];
        let found = self
            .connection
            .fetch(sql::SOURCE_STATES_BY_ID, &rows, &kinds)
            .await?;
        let mut found = found.into_iter();
        let ids = found.next().map(Values::into_ints).unwrap_or_default();
        let objects = found.next().map(Values::into_ints).unwrap_or_default();
        let ss_objects = found.next().map(Values::into_ints).unwrap_or_default();
        let reassigned = found.next().map(Values::into_reals).unwrap_or_default();
        let withdrawn = found.next().map(Values::into_reals).unwrap_or_default();
        let states = ids.into_iter().enumerate().filter_map(|(at, id)| {
            let state = (objects[at]?, ss_objects[at], reassigned[at], withdrawn[at]);
            Some((id?, state))
        });
        Ok(states.collect())
    }

    /// Forced sources.
    async fn follow_forced(&mut self, batch: &RecordBatch, chunk: i64) -> Result<Done> {
        let keys = forced_keys(batch);
        let columns = |keys: &mut dyn Iterator<Item = (i64, i64, i64)>| {
            let keys: Vec<(i64, i64, i64)> = keys.collect();
            [
                Values::ints(keys.iter().map(|key| key.0)),
                Values::ints(keys.iter().map(|key| key.1)),
                Values::ints(keys.iter().map(|key| key.2)),
            ]
        };
        let kinds = [Kind::Int, Kind::Int, Kind::Int, Kind::Real];
        let found = self
            .connection
            .fetch(
                sql::WITHDRAWN_FORCED,
                &columns(&mut keys.iter().copied()),
                &kinds,
            )
            .await?;
        let known_keys = super::keys_of(found.get(..3).unwrap_or_default());
        let times = found.into_iter().nth(3).map(Values::into_reals);
        let times = times.unwrap_or_default();
        let known: HashMap<(i64, i64, i64), Option<f64>> =
            known_keys.into_iter().zip(times).collect();
        let withdrawn = reals(batch, names::WITHDRAWN);
        let mut seen = HashSet::new();
        let rows = (0..batch.num_rows()).filter(|&row| seen.insert(keys[row]));
        let (here, new): (Vec<usize>, Vec<usize>) =
            rows.partition(|&row| known.contains_key(&keys[row]));
        let mut changed = Vec::new();
        for row in here {
            match (known[&keys[row]], withdrawn[row]) {
                (None, Some(_)) => changed.push(row),
                (before, now) if before == now => {}
                _ => {
                    let (object, visit, detector) = keys[row];
                    return Err(AlertsError::Conflict(format!(
                        "the DiaForcedSource of DiaObject {object}, visit {visit}, detector {detector} has another time of withdrawal now: one that was read cannot change"
                    )));
                }
            }
        }
        let [objects, visits, detectors] = columns(&mut changed.iter().map(|&row| keys[row]));
        let times = Values::Real(changed.iter().map(|&row| withdrawn[row]).collect());
        let rows = [objects, visits, detectors, times];
        self.connection.change(sql::WITHDRAW_FORCED, &rows).await?;
        self.note_withdrawals(rows).await?;
        let new = taken(batch, &new)?;
        let count = new.num_rows();
        match self.add_forced(&new, vec![Some(chunk); count]).await? {
            added if added == count as u64 => Ok(Done::of(count, changed.len())),
            _ => Err(AlertsError::Damaged(
                "forced sources that are not there cannot be stored".to_owned(),
            )),
        }
    }

    /// Whether all that was read of the database that is followed is of one moment.
    pub(super) async fn is_followed_whole(&mut self) -> Result<bool> {
        let state = FollowState::read(self.connection).await?;
        Ok(state.is_complete)
    }
}

fn taken(batch: &RecordBatch, rows: &[usize]) -> Result<RecordBatch> {
    let rows: UInt64Array = rows.iter().map(|&row| row as u64).collect();
    take_record_batch(batch, &rows).map_err(|error: ArrowError| {
        AlertsError::Invalid(format!("rows cannot be chosen: {error}"))
    })
}
