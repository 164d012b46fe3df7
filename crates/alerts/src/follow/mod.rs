//! Following another alert database: its rows become those of this one, and are published as if pipelines had stored them here.
//!
//! The database there tells by its replica chunks what is new: rows that were stored, and updates of older ones. It changes rows in place;
//! so an update only tells which rows to read once more, and every row is taken as it is. What no chunk tells is found otherwise: versions
//! that ended as a new one was stored (those that are open here), and sources for which an object of the solar system was found (by the
//! time of that). All rows of a pass are of one moment there, and are published when no row of that moment is missing: as many rows have to
//! be here as are there.
//!
//! What was read is written down with the rows, in one transaction, so that each chunk is read once whatever is killed. Rows that are read
//! once more change nothing.

mod attached;
mod place;
mod state;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use attached::{AttachedConnection, last_key};
pub use place::Follows;
pub(crate) use state::FollowState;
pub use state::{FollowRequest, FollowedChunk, ReadState};

use crate::config::Config;
use crate::database::{AlertDatabase, CONFIG, directory_of};
use crate::error::{AlertsError, Result};
use crate::operation::Operation;
use crate::rows::{ints, reals};
use crate::schema::{AlertSchema, AlertTable, names};
use crate::statements as sql;
use crate::store::{Kind, Values};
use crate::transaction::is_over;
use crate::updates::Update;

/// Days before the last time at which an object of the solar system was found for a source, since which sources are read once more: what
/// was computed early may have been committed late. Still later ones are found by their number.
pub const REASSIGNED_MARGIN: f64 = 1.0;
/// Rows of chunks that are read in one pass; more if the first chunk has more.
const MOST_ROWS: i64 = 200_000;
/// Rows that are stored in one transaction.
const TOGETHER: usize = 20_000;
/// Where the last outcome is written down.
const STATUS: &str = "following.json";

/// What is read of the database that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// What is new, if a replica chunk that is over at this time (microseconds since 1970, UTC) has changed.
    Due(i64),
    /// What is new.
    New,
    /// All rows, whatever was read before.
    All,
}

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowOutcome {
    /// Replica chunks that were new or had changed.
    pub chunks: u64,
    /// Rows that were not here before.
    pub rows: u64,
}

/// How following goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowStatus {
    /// When the database was looked at last, in seconds since 1970 (UTC).
    pub looked_s: i64,
    /// When that went well last.
    pub good_s: Option<i64>,
    /// Why it went wrong, if it did.
    pub error: Option<String>,
    /// Columns that are on one side alone.
    pub differences: Vec<String>,
}

impl FollowStatus {
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        let text = std::fs::read(directory.join(STATUS)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Written for people: whether that works does not matter to what is followed.
    fn write(&self, directory: &Path) {
        let Ok(text) = serde_json::to_vec_pretty(self) else {
            return;
        };
        let path = directory.join(STATUS);
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "how following goes could not be written down");
        }
    }
}

/// Ends that a database follows another one; tells which one that was. What was read stays, and nobody stores into it.
///
/// # Errors
/// There is none of the name, it follows none, or that cannot be written down.
pub fn detach(data_dir: &Path, name: &str) -> Result<Follows> {
    let no_database = || AlertsError::NoDatabase {
        name: name.to_owned(),
    };
    let path = directory_of(data_dir, name)
        .map_err(|_| no_database())?
        .join(CONFIG);
    let mut config = Config::read(&path)?.ok_or_else(no_database)?;
    let follows = config.follows.take().ok_or_else(|| {
        AlertsError::Conflict(format!("the alert database {name} follows no other one"))
    })?;
    let written = config.write(&path);
    written.map_err(|source| AlertsError::File { path, source })?;
    Ok(follows)
}

/// Sees that a database can be followed with a schema; tells which columns are on one side alone.
///
/// # Errors
/// It cannot be reached, or is no database that can be followed.
pub async fn check_followed(follows: &Follows, schema: &AlertSchema) -> Result<Vec<String>> {
    Ok(AttachedConnection::open(follows, schema).await?.differences)
}

impl AlertDatabase {
    /// Whether its rows are those of another database, which it follows or did follow.
    pub fn is_follower(&self) -> bool {
        self.definition().follows
    }

    /// The database that it follows, which may end at any time.
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub fn follows(&self) -> Result<Option<Follows>> {
        let config = Config::read(&self.directory.join(CONFIG))?;
        Ok(config.and_then(|config| config.follows))
    }

    /// How following goes; `None` if nothing was read yet.
    pub fn follow_status(&self) -> Option<FollowStatus> {
        FollowStatus::read(&self.directory)
    }

    /// What the store remembers of the database that it follows.
    pub(crate) async fn follow_state(&self) -> Result<FollowState> {
        FollowState::read(self.store.reader().await?.as_mut()).await
    }

    /// The replica chunks that were read of the database that it follows.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn followed_chunks(&self) -> Result<HashMap<i64, FollowedChunk>> {
        FollowState::chunks(self.store.reader().await?.as_mut()).await
    }

    /// Which of these objects have an open version, and when that began.
    pub(crate) async fn open_versions(&self, objects: &BTreeSet<i64>) -> Result<Vec<(i64, f64)>> {
        let rows = [Values::ints(objects.iter().copied())];
        let kinds = [Kind::Int, Kind::Real];
        let mut reader = self.store.reader().await?;
        let found = reader.fetch(sql::OPEN_VERSIONS, &rows, &kinds).await?;
        let mut found = found.into_iter();
        let objects = found.next().map(Values::into_ints).unwrap_or_default();
        let starts = found.next().map(Values::into_reals).unwrap_or_default();
        let versions = objects.into_iter().zip(starts);
        Ok(versions
            .filter_map(|(object, start)| Some((object?, start?)))
            .collect())
    }

    /// Reads what is new in the database that this one follows, and stores it. Nothing of it is published until all of it is here.
    ///
    /// # Errors
    /// It follows none; that one cannot be read, or lacks what was not read yet; or another server stores into this one.
    pub async fn follow(&self, extent: Extent) -> Result<FollowOutcome> {
        let _turn = self.turn.lock().await;
        let Some(follows) = self.follows()? else {
            return Err(AlertsError::Conflict(format!(
                "the alert database {} follows no other one",
                self.name()
            )));
        };
        let before = FollowStatus::read(&self.directory).unwrap_or_default();
        let mut follower = Follower {
            database: self,
            follows: &follows,
            outcome: FollowOutcome::default(),
            differences: before.differences,
        };
        let done = Box::pin(follower.run(extent)).await;
        if let Err(AlertsError::InUse { .. }) = done {
            // The server that has it tells how following goes.
            return done.map(|()| follower.outcome);
        }
        let now = now_s();
        let status = FollowStatus {
            looked_s: now,
            good_s: match &done {
                Ok(()) => Some(now),
                Err(_) => before.good_s,
            },
            error: done.as_ref().err().map(ToString::to_string),
            differences: follower.differences,
        };
        status.write(&self.directory);
        done.map(|()| follower.outcome)
    }
}

struct Follower<'a> {
    database: &'a AlertDatabase,
    follows: &'a Follows,
    outcome: FollowOutcome,
    differences: Vec<String>,
}

/// Rows that were read and are to be stored, in this order.
#[derive(Default)]
struct Pass {
    rows: Vec<(AlertTable, RecordBatch, Option<i64>)>,
    read: ReadState,
}

impl Follower<'_> {
    async fn run(&mut self, extent: Extent) -> Result<()> {
        let state = self.database.follow_state().await?;
        if extent == Extent::All || !state.is_copied {
            self.copy().await?;
        }
        while !self.pass(extent).await? {}
        Ok(())
    }

    async fn open(&mut self) -> Result<AttachedConnection> {
        let attached = AttachedConnection::open(self.follows, &self.database.schema()).await?;
        self.differences.clone_from(&attached.differences);
        Ok(attached)
    }

    /// Reads all rows, a page at a time and not all of one moment: what changes meanwhile is what a pass finds afterwards.
    async fn copy(&mut self) -> Result<()> {
        let mut attached = self.open().await?;
        let chunks = attached.chunks().await?;
        let reassigned = match attached.has_reassigned {
            true => Some(reassigned_now(&mut attached).await?),
            false => None,
        };
        for table in AlertTable::ALL {
            let mut after: Option<Vec<Values>> = None;
            loop {
                let page = attached.page(table, after.as_deref()).await?;
                if page.num_rows() == 0 {
                    break;
                }
                after = Some(last_key(table, &page));
                let mut pass = Pass::default();
                if table == AlertTable::DiaObject {
                    self.add_open(&mut attached, (&page, None), &mut pass)
                        .await?;
                }
                pass.rows.push((table, page, None));
                self.store(pass.rows).await?;
            }
        }
        let read = ReadState {
            chunks,
            is_copied: true,
            expects: None,
            reassigned,
        };
        self.apply(FollowRequest {
            read: Some(read),
            ..FollowRequest::default()
        })
        .await
    }

    /// Reads what is new, of one moment; tells whether that is all.
    async fn pass(&mut self, extent: Extent) -> Result<bool> {
        let state = self.database.follow_state().await?;
        let known = self.database.followed_chunks().await?;
        let mut attached = self.open().await?;
        if let Extent::Due(now_us) = extent
            && state.is_complete
        {
            let span = self.database.replica_seconds().unwrap_or_default();
            let listed = attached.listed_chunks().await?;
            let is_due = |chunk: &FollowedChunk| {
                let before = known.get(&chunk.id).map(|it| &it.unique_id);
                before != Some(&chunk.unique_id) && is_over(Some(chunk.id), span, now_us)
            };
            if !listed.iter().any(is_due) {
                return Ok(true);
            }
        }
        attached.begin().await?;
        let mut due = attached.chunks().await?;
        due.retain(|chunk| {
            known
                .get(&chunk.id)
                .is_none_or(|before| before.updates != chunk.updates || is_changed(before, chunk))
        });
        let (mut rows, mut taken) = (0, 0);
        for chunk in &due {
            rows += attached.rows_of_chunk(chunk.id).await? + chunk.updates;
            if taken > 0 && rows > MOST_ROWS {
                break;
            }
            taken += 1;
        }
        let is_all = taken == due.len();
        due.truncate(taken);
        self.outcome.chunks += due.len() as u64;
        let mut pass = self.read_chunks(&mut attached, due).await?;
        if is_all {
            if attached.has_reassigned {
                read_reassigned(&mut attached, &state, &mut pass).await?;
            }
            pass.read.expects = Some(attached.counts().await?);
        }
        attached.end().await?;
        drop(attached);
        let expects = pass.read.expects;
        self.store(pass.rows).await?;
        self.apply(FollowRequest {
            read: Some(pass.read),
            ..FollowRequest::default()
        })
        .await?;
        if let Some(expects) = expects {
            let state = self.database.follow_state().await?;
            check_counts(state.rows, expects, self.database.name())?;
        }
        Ok(is_all)
    }

    /// Reads the rows of chunks and those that their updates are of.
    async fn read_chunks(
        &mut self,
        attached: &mut AttachedConnection,
        chunks: Vec<FollowedChunk>,
    ) -> Result<Pass> {
        let mut pass = Pass::default();
        let ids: Vec<i64> = chunks.iter().map(|chunk| chunk.id).collect();
        let last = ids.last().copied();
        let updated = UpdatedRows::of(&attached.updates(&ids).await?)?;
        let objects = [Values::ints(updated.objects)];
        let found = attached
            .rows_with(AlertTable::DiaObject, &[names::DIA_OBJECT], &objects)
            .await?;
        pass.push(AlertTable::DiaObject, found, last);
        let mut of_chunks = Vec::new();
        for &id in &ids {
            for table in AlertTable::ALL {
                let rows = attached.chunk_rows(table, id).await?;
                if table == AlertTable::DiaObject {
                    self.add_open(attached, (&rows, last), &mut pass).await?;
                }
                of_chunks.push((table, rows, Some(id)));
            }
        }
        for (table, rows, chunk) in of_chunks {
            pass.push(table, rows, chunk);
        }
        let sources = [Values::ints(updated.sources)];
        let found = attached
            .rows_with(AlertTable::DiaSource, &[names::DIA_SOURCE], &sources)
            .await?;
        pass.push(AlertTable::DiaSource, found, last);
        let keys = [
            Values::ints(updated.forced.iter().map(|key| key.0)),
            Values::ints(updated.forced.iter().map(|key| key.1)),
            Values::ints(updated.forced.iter().map(|key| key.2)),
        ];
        let columns = [names::DIA_OBJECT, names::VISIT, names::DETECTOR];
        let found = attached
            .rows_with(AlertTable::DiaForcedSource, &columns, &keys)
            .await?;
        pass.push(AlertTable::DiaForcedSource, found, last);
        pass.read.chunks = chunks;
        Ok(pass)
    }

    /// Reads the versions that are open here of objects which have others there: they may have ended.
    async fn add_open(
        &mut self,
        attached: &mut AttachedConnection,
        (objects, chunk): (&RecordBatch, Option<i64>),
        pass: &mut Pass,
    ) -> Result<()> {
        let ids: BTreeSet<i64> = ints(objects, names::DIA_OBJECT)
            .into_iter()
            .flatten()
            .collect();
        let open = self.database.open_versions(&ids).await?;
        let values = [
            Values::ints(open.iter().map(|it| it.0)),
            Values::reals(open.iter().map(|it| it.1)),
        ];
        let columns = [names::DIA_OBJECT, names::VALIDITY_START];
        let found = attached
            .rows_with(AlertTable::DiaObject, &columns, &values)
            .await?;
        if found.num_rows() < open.len() {
            let there = ints(&found, names::DIA_OBJECT);
            let gone = open.iter().find(|it| !there.contains(&Some(it.0)));
            return Err(AlertsError::Followed(format!(
                "the version of DiaObject {} that was read is not there any more: rows that were read have to stay as they are",
                gone.map_or(0, |it| it.0)
            )));
        }
        pass.push(AlertTable::DiaObject, found, chunk);
        Ok(())
    }

    /// Stores rows, some at a time.
    async fn store(&mut self, rows: Vec<(AlertTable, RecordBatch, Option<i64>)>) -> Result<()> {
        for (table, batch, chunk) in rows {
            let mut begin = 0;
            while begin < batch.num_rows() {
                let count = TOGETHER.min(batch.num_rows() - begin);
                let rows = vec![batch.slice(begin, count)];
                begin += count;
                let mut request = FollowRequest {
                    chunk,
                    ..FollowRequest::default()
                };
                match table {
                    AlertTable::DiaObject => request.objects = rows,
                    AlertTable::DiaSource => request.sources = rows,
                    AlertTable::DiaForcedSource => request.forced = rows,
                }
                self.apply(request).await?;
            }
        }
        Ok(())
    }

    async fn apply(&mut self, request: FollowRequest) -> Result<()> {
        let operation = Operation::Follow(Box::new(request));
        self.outcome.rows += self.database.apply(operation).await?.count;
        Ok(())
    }
}

impl Pass {
    fn push(&mut self, table: AlertTable, rows: RecordBatch, chunk: Option<i64>) {
        if rows.num_rows() > 0 {
            self.rows.push((table, rows, chunk));
        }
    }
}

/// Whether a chunk has been stored into. One that was deleted has nothing but its updates.
fn is_changed(before: &FollowedChunk, now: &FollowedChunk) -> bool {
    now.unique_id.is_some() && before.unique_id != now.unique_id
}

/// When an object of the solar system was found for a source last, and how many have a time before the margin of that.
async fn reassigned_now(attached: &mut AttachedConnection) -> Result<(f64, i64)> {
    let (last, _) = attached.reassigned(0.0).await?;
    let last = last.unwrap_or(f64::MIN);
    let (_, before) = attached.reassigned(last - REASSIGNED_MARGIN).await?;
    Ok((last, before))
}

/// Reads the sources for which an object of the solar system was found meanwhile, which no chunk tells.
async fn read_reassigned(
    attached: &mut AttachedConnection,
    state: &FollowState,
    pass: &mut Pass,
) -> Result<()> {
    let (last, before) = state.reassigned.unwrap_or((f64::MIN, 0));
    let since = last - REASSIGNED_MARGIN;
    let (latest, early) = attached.reassigned(since).await?;
    // If more have an early time than had, it is not known which ones these are.
    let (since, early) = match early > before {
        true => (f64::MIN, 0),
        false => (since, early),
    };
    let latest = latest.unwrap_or(f64::MIN).max(last);
    let found = attached.reassigned_since(since).await?;
    let next = latest - REASSIGNED_MARGIN;
    let times = reals(&found, names::SS_REASSIGNED);
    let passed = times.iter().flatten().filter(|time| **time < next).count() as i64;
    pass.read.reassigned = Some((latest, early + passed));
    let chunk = pass.read.chunks.last().map(|it| it.id);
    pass.push(AlertTable::DiaSource, found, chunk);
    Ok(())
}

fn check_counts(here: [i64; 3], there: [i64; 3], name: &str) -> Result<()> {
    for ((table, here), there) in AlertTable::ALL.into_iter().zip(here).zip(there) {
        let table = table.name();
        if there > here {
            return Err(AlertsError::Followed(format!(
                "{} of its rows of {table} are of no replica chunk that could be read: chunks were deleted before. \
                 `meridian alerts follow {name} --all` reads all rows anew",
                there - here
            )));
        }
        if there < here {
            return Err(AlertsError::Followed(format!(
                "it has {there} rows of {table}, and {here} were read: rows were removed there, which stay here. \
                 What was published before stays; follow it anew under another name"
            )));
        }
    }
    Ok(())
}

/// The rows that updates are of.
#[derive(Default)]
struct UpdatedRows {
    objects: BTreeSet<i64>,
    sources: BTreeSet<i64>,
    forced: BTreeSet<(i64, i64, i64)>,
}

impl UpdatedRows {
    fn of(records: &[String]) -> Result<Self> {
        let mut updated = Self::default();
        for record in records {
            let update: Update = serde_json::from_str(record).map_err(|error| {
                AlertsError::Followed(format!(
                    "an update of it is not understood ({error}): {record}"
                ))
            })?;
            match update {
                Update::ReassignToObject { source, .. }
                | Update::ReassignToSolarSystem { source, .. }
                | Update::WithdrawSource { source, .. } => {
                    updated.sources.insert(source.dia_source_id);
                }
                Update::WithdrawForcedSource {
                    dia_object_id,
                    visit,
                    detector,
                    ..
                } => {
                    updated.forced.insert((dia_object_id, visit, detector));
                }
                Update::CloseObject { object, .. } | Update::CountSources { object, .. } => {
                    updated.objects.insert(object.dia_object_id);
                }
            }
        }
        Ok(updated)
    }
}

fn now_s() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_secs().cast_signed())
}
