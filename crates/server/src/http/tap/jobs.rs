//! Jobs: what a client has asked for, before and after it became a query of the query service.
//!
//! A job has the number that its query has or will have. What only jobs have (parameters that may still change, when it is to be
//! destroyed) is in a file of its own, `queries/jobs/<number>.json`, written anew as a whole at each change; everything about its
//! execution is the query's. Where several front ends share the queries, the file of a job is read whenever it is asked for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use engine::{QueryInfo, QueryState, ReceivedFile};
use ingest::FileFormat;
use queries::QueryService;
use serde::{Deserialize, Serialize};
use sql::ErrorCode;
use tokio::task::spawn_blocking;

use super::job_document::in_words_of_jobs;
use super::job_files::{
    LEFT, MOST_UPLOADED, UPLOADS, copy_upload, file_of, ids_in, read_all, read_file,
    remove_left_uploads, write,
};
use super::uploads::{NamedFile, UploadNames, Uploads};
use crate::ClientError;
use crate::http::problem::Problem;
use crate::http::received_table::TableRoom;

/// The directory below that of the queries.
const DIRECTORY: &str = "jobs";
/// Jobs that are kept at a time, and bytes of all their parameters.
const MOST_JOBS: usize = 100_000;
const MOST_BYTES: usize = 256 << 20;

/// What is kept of a job. Times are microseconds since 1970 in UTC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub(super) id: u64,
    pub(super) owner: String,
    pub(super) created: i64,
    /// When it is forgotten.
    pub(super) destruction: i64,
    /// Seconds that it may run; 0 for any number.
    pub(super) execution_duration: u64,
    /// Names in upper case, and values.
    pub(super) parameters: Vec<(String, String)>,
    /// The tables that came with it.
    #[serde(default)]
    pub(super) uploads: Vec<JobUpload>,
    pub(super) step: JobStep,
}

/// A table that came with a job. Its file is in the directory of uploads, under a name that nobody can guess.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct JobUpload {
    name: String,
    pub(super) file: String,
    format: UploadFormat,
    bytes: u64,
}

/// The format of a table that came with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UploadFormat {
    Parquet,
    Text,
    VoTable,
    Fits,
    Arrow,
}

impl From<FileFormat> for UploadFormat {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::Parquet => Self::Parquet,
            FileFormat::Text => Self::Text,
            FileFormat::VoTable => Self::VoTable,
            FileFormat::Fits => Self::Fits,
            FileFormat::Arrow => Self::Arrow,
        }
    }
}

impl From<UploadFormat> for FileFormat {
    fn from(format: UploadFormat) -> Self {
        match format {
            UploadFormat::Parquet => Self::Parquet,
            UploadFormat::Text => Self::Text,
            UploadFormat::VoTable => Self::VoTable,
            UploadFormat::Fits => Self::Fits,
            UploadFormat::Arrow => Self::Arrow,
        }
    }
}

impl JobRecord {
    fn num_bytes(&self) -> usize {
        let parameters = self.parameters.iter();
        parameters
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }
}

/// What has become of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum JobStep {
    /// It waits for the client to start it.
    Pending,
    /// It is a query.
    Submitted,
    /// It could not become a query: why.
    Refused(String),
    /// It was ended before it became a query.
    Aborted,
}

/// A phase, as UWS names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Queued,
    Executing,
    Completed,
    Error,
    Aborted,
}

impl Phase {
    pub(super) const ALL: [Self; 6] = [
        Self::Pending,
        Self::Queued,
        Self::Executing,
        Self::Completed,
        Self::Error,
        Self::Aborted,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Queued => "QUEUED",
            Self::Executing => "EXECUTING",
            Self::Completed => "COMPLETED",
            Self::Error => "ERROR",
            Self::Aborted => "ABORTED",
        }
    }

    /// Whether it may still change.
    pub(super) fn is_active(self) -> bool {
        matches!(self, Self::Pending | Self::Queued | Self::Executing)
    }
}

/// A job as it is now.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) record: JobRecord,
    /// Its query, once it is one.
    pub(super) query: Option<QueryInfo>,
    /// What its tables are called.
    uploads: UploadNames,
}

impl Job {
    pub(super) fn phase(&self) -> Phase {
        match (&self.record.step, &self.query) {
            (JobStep::Pending, _) => Phase::Pending,
            (JobStep::Refused(_), _) => Phase::Error,
            (JobStep::Aborted, _) => Phase::Aborted,
            (JobStep::Submitted, Some(query)) => match query.state {
                QueryState::Queued => Phase::Queued,
                QueryState::Executing => Phase::Executing,
                QueryState::Completed => Phase::Completed,
                QueryState::Failed => Phase::Error,
                QueryState::Aborted => Phase::Aborted,
            },
            // Somebody has removed the query.
            (JobStep::Submitted, None) => Phase::Aborted,
        }
    }

    /// Why it has failed.
    pub(super) fn error(&self) -> Option<String> {
        match &self.record.step {
            JobStep::Refused(sentence) => Some(sentence.clone()),
            _ if self.phase() == Phase::Error => {
                let error = self.query.as_ref().and_then(|query| query.error.clone());
                let error = error.unwrap_or_else(|| "the query failed".to_owned());
                let error = in_words_of_jobs(&error, self.record.execution_duration);
                Some(self.uploads.sentence(&error))
            }
            _ => None,
        }
    }

    /// The value of a parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let mut given = self.record.parameters.iter();
        let found = given.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The jobs of a server.
#[derive(Debug)]
pub(crate) struct TapJobs {
    queries: Arc<QueryService>,
    /// `None` where queries cannot be submitted.
    directory: Option<PathBuf>,
    records: Mutex<BTreeMap<u64, JobRecord>>,
    lists: Arc<TableRoom>,
    /// The tables of jobs that are queries, by the job: statements may name them while these are held.
    opened: Mutex<HashMap<u64, Vec<ReceivedFile>>>,
}

impl TapJobs {
    /// Reads the jobs that a former process left.
    pub(crate) fn open(queries: Arc<QueryService>, lists: Arc<TableRoom>) -> Self {
        let directory = queries.directory().map(|it| it.join(DIRECTORY));
        let records = directory.as_deref().map(read_all).unwrap_or_default();
        if let Some(directory) = &directory {
            let age = queries.is_shared().then_some(LEFT);
            remove_left_uploads(directory, &records, age.unwrap_or_default());
        }
        Self {
            queries,
            directory,
            records: Mutex::new(records),
            lists,
            opened: Mutex::default(),
        }
    }

    /// Opens the tables of jobs that a former process has begun, before they go on.
    pub(crate) async fn reopen_uploads(&self) {
        if self.queries.is_shared() {
            // Whoever goes on with a query opens them.
            return;
        }
        let records: Vec<JobRecord> = self.lock().values().cloned().collect();
        for record in records.iter().filter(|record| !record.uploads.is_empty()) {
            let is_active = self.with_query(record.clone()).phase().is_active();
            if is_active && let Err(error) = self.open_uploads(record).await {
                tracing::warn!(
                    job = record.id,
                    error = error.sentence,
                    "a table of a job cannot be read"
                );
            }
        }
    }

    /// Opens the tables of a job that another front end has begun, if the query is one.
    ///
    /// # Errors
    /// The job or a table cannot be read.
    pub(crate) async fn reopen_uploads_of(&self, query: u64) -> Result<(), ClientError> {
        self.look_at(query).await?;
        let record = self.lock().get(&query).cloned();
        match record.filter(|record| !record.uploads.is_empty()) {
            Some(record) => self.open_uploads(&record).await,
            None => Ok(()),
        }
    }

    /// Reads a job again that other front ends may have changed.
    async fn look_at(&self, id: u64) -> Result<(), ClientError> {
        let Some(directory) = self.directory.clone().filter(|_| self.queries.is_shared()) else {
            return Ok(());
        };
        let read = spawn_blocking(move || read_file(&file_of(&directory, id))).await;
        let read = read.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        match read {
            Ok(record) => drop(self.lock().insert(id, record)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.lock().remove(&id);
            }
            Err(error) => {
                let sentence = format!("job {id} cannot be read: {error}");
                return Err(ClientError::new(ErrorCode::STORAGE, sentence));
            }
        }
        Ok(())
    }

    /// Reads the jobs that other front ends have made or may have changed, and forgets those that they have destroyed.
    async fn look_at_all(&self) {
        let Some(directory) = self.directory.clone().filter(|_| self.queries.is_shared()) else {
            return;
        };
        let is_settled = |record: &&JobRecord| record.step != JobStep::Pending;
        let settled: HashSet<u64> = {
            let records = self.lock();
            let settled = records.values().filter(is_settled);
            settled.map(|record| record.id).collect()
        };
        let look = move || {
            let there = ids_in(&directory);
            let unread = there.iter().filter(|id| !settled.contains(*id));
            let read: Vec<JobRecord> = unread
                .filter_map(|id| read_file(&file_of(&directory, *id)).ok())
                .collect();
            (there, read)
        };
        let Ok((there, read)) = spawn_blocking(look).await else {
            return;
        };
        let mut records = self.lock();
        records.retain(|id, _| there.contains(id));
        records.extend(read.into_iter().map(|record| (record.id, record)));
    }

    /// Opens the tables of a job.
    ///
    /// # Errors
    /// One cannot be read.
    pub(super) async fn open_uploads(&self, record: &JobRecord) -> Result<(), ClientError> {
        self.close_uploads();
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let mut opened = Vec::new();
        for upload in &record.uploads {
            let path = directory.join(UPLOADS).join(&upload.file);
            let file = self.lists.reopen(path, upload.format.into()).await;
            opened.push(file.map_err(|error| self.names_of(record).unreadable(error.into()))?);
        }
        let mut all = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if !opened.is_empty() {
            all.insert(record.id, opened);
        }
        Ok(())
    }

    /// Closes the tables of jobs that have ended.
    fn close_uploads(&self) {
        let is_active = |id: u64| {
            let query = self.queries.find(id);
            query.is_ok_and(|query| {
                matches!(query.state, QueryState::Queued | QueryState::Executing)
            })
        };
        let mut all = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|id, _| is_active(*id));
    }

    /// What the tables of a job are called.
    pub(super) fn names_of(&self, record: &JobRecord) -> UploadNames {
        let directory = self.directory.clone().unwrap_or_default().join(UPLOADS);
        let named = |upload: &JobUpload| {
            NamedFile::new(
                &upload.name,
                &directory.join(&upload.file),
                upload.format.into(),
            )
        };
        UploadNames(record.uploads.iter().map(named).collect())
    }

    /// Keeps tables that came with a job.
    ///
    /// # Errors
    /// There is no room for them, or a table of the name came before.
    pub(super) async fn keep_uploads(
        &self,
        record: &mut JobRecord,
        uploads: Uploads,
    ) -> Result<(), Problem> {
        let Some(directory) = self.directory.as_ref().map(|it| it.join(UPLOADS)) else {
            return Ok(());
        };
        for (name, table) in uploads.into_tables() {
            if record
                .uploads
                .iter()
                .any(|known| known.name.eq_ignore_ascii_case(&name))
            {
                return Err(Problem::bad(format!("the job has a table {name} already")));
            }
            let kept: u64 = self
                .lock()
                .values()
                .flat_map(|record| &record.uploads)
                .map(|upload| upload.bytes)
                .sum();
            let (from, to, format) = (table.path(), directory.clone(), table.format().into());
            let copied = spawn_blocking(move || {
                copy_upload(&to, Path::new(&from), MOST_UPLOADED.saturating_sub(kept))
            })
            .await;
            let copied = copied.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            let (file, bytes) = copied.map_err(|error| {
                let sentence = format!("the table {name} cannot be kept with the job: {error}");
                Problem::new(StatusCode::INSUFFICIENT_STORAGE, sentence)
            })?;
            record.uploads.push(JobUpload {
                name,
                file,
                format,
                bytes,
            });
        }
        Ok(())
    }

    /// A panic in another thread leaves the map consistent, because every change is a single operation.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, JobRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a job.
    ///
    /// # Errors
    /// Nothing can be stored here.
    pub(super) async fn create(
        &self,
        owner: String,
        parameters: Vec<(String, String)>,
        uploads: Uploads,
    ) -> Result<Job, Problem> {
        let created = now();
        let mut record = JobRecord {
            id: self.queries.reserve_number(),
            owner,
            created,
            destruction: created.saturating_add(self.longest()),
            execution_duration: 0,
            parameters,
            uploads: Vec::new(),
            step: JobStep::Pending,
        };
        self.destroy_old().await;
        self.keep_uploads(&mut record, uploads).await?;
        self.put(record).await
    }

    /// How long a job is kept at most, in microseconds.
    pub(super) fn longest(&self) -> i64 {
        i64::try_from(self.queries.kept().as_micros()).unwrap_or(i64::MAX)
    }

    /// Writes a job down, instead of what was known of it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) async fn put(&self, record: JobRecord) -> Result<Job, Problem> {
        let Some(directory) = self.directory.clone() else {
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "jobs cannot be stored here: another server of this data directory runs them, or it cannot be written; use /tap/sync",
            ));
        };
        if !self.has_room_for(&record) {
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "there is no room for the job: {MOST_JOBS} jobs with {} MiB of parameters are kept; delete some, or use /tap/sync",
                    MOST_BYTES >> 20
                ),
            ));
        }
        let written = record.clone();
        // It waits for the disk.
        let written = spawn_blocking(move || write(&directory, &written)).await;
        let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.map_err(|error| {
            let sentence = format!("the job cannot be written down: {error}");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, sentence)
        })?;
        self.lock().insert(record.id, record.clone());
        Ok(self.with_query(record))
    }

    fn has_room_for(&self, record: &JobRecord) -> bool {
        let records = self.lock();
        let others = records.values().filter(|other| other.id != record.id);
        let (jobs, bytes) = others.fold((1, record.num_bytes()), |(jobs, bytes), other| {
            (jobs + 1, bytes + other.num_bytes())
        });
        jobs <= MOST_JOBS && bytes <= MOST_BYTES
    }

    fn with_query(&self, mut record: JobRecord) -> Job {
        let query = match record.step {
            // A process that was killed in between may have submitted it without noting so.
            JobStep::Submitted | JobStep::Pending => {
                let query = self.queries.find(record.id).ok();
                // A job is shown to its owner alone.
                query.map(QueryInfo::for_its_user)
            }
            JobStep::Refused(_) | JobStep::Aborted => None,
        };
        if query.is_some() {
            record.step = JobStep::Submitted;
        }
        let uploads = self.names_of(&record);
        Job {
            record,
            query,
            uploads,
        }
    }

    /// A job of an owner.
    ///
    /// # Errors
    /// There is none of the number, or it is another owner's.
    pub(super) async fn find(&self, id: &str, owner: &str) -> Result<Job, Problem> {
        let number: Option<u64> = id.parse().ok();
        if let Some(number) = number {
            self.look_at(number).await?;
            let caught_up = self.queries.catch_up().await;
            caught_up.map_err(ClientError::from)?;
        }
        let found = number.and_then(|id| self.lock().get(&id).cloned());
        let found = found.filter(|record| record.destruction > now());
        let found = found.ok_or_else(|| {
            Problem::not_found(format!(
                "there is no job {id}: it was never made, or is destroyed; /tap/async lists the jobs"
            ))
        })?;
        if found.owner != owner {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("job {id} is another user's"),
            ));
        }
        Ok(self.with_query(found))
    }

    /// The jobs of an owner, the newest first.
    pub(super) async fn list(&self, owner: &str) -> Vec<Job> {
        self.look_at_all().await;
        // Without it the phases of jobs elsewhere are those of a moment ago.
        let _ = self.queries.catch_up().await;
        self.destroy_old().await;
        let records: Vec<JobRecord> = (self.lock().values().rev())
            .filter(|record| record.owner == owner)
            .cloned()
            .collect();
        let jobs = records.into_iter();
        jobs.map(|record| self.with_query(record)).collect()
    }

    /// Forgets a job, and ends its query.
    pub(super) async fn destroy(&self, record: &JobRecord) {
        if record.step == JobStep::Submitted {
            // It may have ended, and be gone already.
            let _ = self.queries.cancel(record.id, &record.owner).await;
            let _ = self.queries.remove(record.id, &record.owner).await;
        }
        self.lock().remove(&record.id);
        self.close_uploads();
        if let Some(directory) = &self.directory {
            // What stays is forgotten when the next process finds its time over.
            let _ = tokio::fs::remove_file(file_of(directory, record.id)).await;
            for upload in &record.uploads {
                let _ = tokio::fs::remove_file(directory.join(UPLOADS).join(&upload.file)).await;
            }
        }
    }

    /// Forgets the jobs whose time is over.
    async fn destroy_old(&self) {
        let now = now();
        let old: Vec<JobRecord> = (self.lock().values())
            .filter(|record| record.destruction <= now)
            .cloned()
            .collect();
        for record in old {
            // Another front end may have put it off.
            let is_old = match self.look_at(record.id).await {
                Ok(()) => {
                    let records = self.lock();
                    let found = records.get(&record.id);
                    found.is_none_or(|found| found.destruction <= now)
                }
                Err(_) => false,
            };
            if is_old {
                self.destroy(&record).await;
            }
        }
    }
}

/// Microseconds since 1970.
pub(super) fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 was never set.
    i64::try_from(elapsed.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn jobs_are_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let record = JobRecord {
            id: 17,
            owner: "ann".to_owned(),
            created: 1,
            destruction: 2,
            execution_duration: 3,
            parameters: vec![("QUERY".to_owned(), "SELECT 1".to_owned())],
            uploads: vec![JobUpload {
                name: "mine".to_owned(),
                file: "x".to_owned(),
                format: UploadFormat::Text,
                bytes: 5,
            }],
            step: JobStep::Refused("no".to_owned()),
        };
        write(directory.path(), &record).unwrap();
        fs::write(directory.path().join("18.json"), "{").unwrap();
        let read = read_all(directory.path());
        assert_eq!(read.into_values().collect::<Vec<_>>(), [record]);
    }
}
