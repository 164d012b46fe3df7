//! `/tap/async`: making, starting, watching and destroying jobs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, FromRequestParts, Path, RawQuery};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode};
use futures::StreamExt;
use queries::{Protocol, Submission};
use sql::Dialect;
use sql::connection::StatementLimits;

use super::form::TapForm;
use super::jobs::{Job, JobRecord, JobStep, Phase};
use super::request::{TapRequest, of_address};
use super::sync::{RESULT, columns};
use super::uploads::Uploads;
use super::{TapError, XML, base_url, document, job_document, see_other};
use crate::ClientError;
use crate::formats::error_document;
use crate::http::HttpState;
use crate::http::limited::{LimitedBatches, write};
use crate::http::parameters::RequestParameters;
use crate::http::problem::{self, Problem};
use crate::http::query_api::Requester;
use crate::http::streaming::{Overflow, streaming_response};
use crate::metrics;

/// The longest time that a request waits for a job's phase to change.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);
/// The same where several front ends share the jobs.
const LOOK_AT_SHARED: Duration = Duration::from_millis(500);
/// Parameters that say what is done with a job, and are none of its own.
const OF_REQUESTS: [&str; 5] = [
    "PHASE",
    "ACTION",
    "DESTRUCTION",
    "EXECUTIONDURATION",
    "WAIT",
];

/// The longest time that a job may be given to run, in seconds: longer than any is kept.
const LONGEST_RUN: u64 = 100 * 366 * 86_400;

/// The seconds of EXECUTIONDURATION, if it is given. Of more than anybody waits there are fewer, as UWS allows.
fn execution_duration(given: &RequestParameters) -> Result<Option<u64>, Problem> {
    let Some(text) = given.value("EXECUTIONDURATION")? else {
        return Ok(None);
    };
    if !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(Problem::bad(format!(
            "EXECUTIONDURATION is {text}: it is a whole number of seconds that is not negative, as in 3600; 0 is no limit"
        )));
    }
    // Of so many digits that they are no number of 64 bits, too.
    let seconds = text.parse().unwrap_or(LONGEST_RUN);
    Ok(Some(seconds.min(LONGEST_RUN)))
}

/// Who asks, and the address under which it knows the service.
pub(super) struct Client {
    state: Arc<HttpState>,
    requester: Requester,
    base: String,
    /// What it is told of a result that is cut off.
    overflow: Overflow,
}

impl FromRequestParts<Arc<HttpState>> for Client {
    type Rejection = TapError;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<HttpState>,
    ) -> Result<Self, TapError> {
        let Extension(address) = Extension::from_request_parts(parts, state)
            .await
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.body_text()))?;
        Ok(Self {
            requester: Requester::of(address, &parts.headers, None)?,
            base: base_url(&parts.headers),
            overflow: Overflow::of(&parts.headers),
            state: Arc::clone(state),
        })
    }
}

impl Client {
    async fn job(&self, id: &str) -> Result<Job, Problem> {
        self.state.jobs.find(id, &self.requester.user).await
    }

    fn to_job(&self, job: &Job) -> Result<Response<Body>, TapError> {
        see_other(&format!("{}/async/{}", self.base, job.record.id))
    }

    fn to_list(&self) -> Result<Response<Body>, TapError> {
        see_other(&format!("{}/async", self.base))
    }

    /// Changes a job as a request says.
    async fn change(&self, job: Job, form: TapForm) -> Result<Job, Problem> {
        let given = &form.parameters;
        let mut record = job.record.clone();
        if !form.uploads.is_empty() {
            only_pending(&job, "UPLOAD")?;
            self.state
                .jobs
                .keep_uploads(&mut record, form.uploads)
                .await?;
        }
        if let Some(seconds) = execution_duration(given)? {
            only_pending(&job, "EXECUTIONDURATION")?;
            record.execution_duration = seconds;
        }
        if let Some(text) = given.value("DESTRUCTION")? {
            let time = job_document::read_time(text).ok_or_else(|| {
                Problem::bad(format!(
                    "DESTRUCTION is {text}: it is a time in UTC, as in 2026-11-25T10:00:00Z"
                ))
            })?;
            let last = record.created.saturating_add(self.state.jobs.longest());
            record.destruction = time.min(last);
        }
        for (name, value) in own_parameters(given) {
            only_pending(&job, &name)?;
            // Of uploads there may be several.
            record
                .parameters
                .retain(|(known, _)| *known != name || name == "UPLOAD");
            record.parameters.push((name, value));
        }
        let job = match record == job.record {
            true => job,
            false => self.state.jobs.put(record).await?,
        };
        match given.value("PHASE")? {
            None => Ok(job),
            Some(phase) if phase.eq_ignore_ascii_case("RUN") => self.start(job).await,
            Some(phase) if phase.eq_ignore_ascii_case("ABORT") => self.abort(job).await,
            Some(other) => Err(Problem::bad(format!(
                "PHASE is {other}: RUN starts a job, ABORT ends it"
            ))),
        }
    }

    /// Makes a query of a job; one that is a query already stays what it is.
    async fn start(&self, job: Job) -> Result<Job, Problem> {
        if job.phase() != Phase::Pending {
            return Ok(job);
        }
        let mut record = job.record;
        record.step = match self.submit(&record).await {
            Ok(()) => JobStep::Submitted,
            // Another request was faster, at this front end or another one.
            Err(_) if self.state.shared.queries.has(record.id) => JobStep::Submitted,
            Err(error) => JobStep::Refused(error.sentence),
        };
        self.state.jobs.put(record).await
    }

    async fn submit(&self, record: &JobRecord) -> Result<(), Problem> {
        let request = TapRequest::read(&RequestParameters::of(record.parameters.clone()))?;
        let as_of = request.as_of()?;
        let shared = &self.state.shared;
        let jobs = &self.state.jobs;
        let statement = jobs.names_of(record).statement(&request.statement)?;
        let limit = record.execution_duration;
        let submission = Submission {
            user: record.owner.clone(),
            database: shared.sessions.only_database().await?,
            protocol: Protocol::Http,
            // One more tells that there are more.
            row_limit: { shared.usage.rows_within(request.max_rows) }
                .map(|most| most.saturating_add(1)),
            time_limit: (limit > 0).then(|| Duration::from_secs(limit)),
            limits: StatementLimits::default(),
            as_of,
            dialect: Dialect::Adql,
            statement,
        };
        jobs.open_uploads(record).await?;
        let (queries, id) = (Arc::clone(&shared.queries), record.id);
        // It is written down whole also if the client hangs up meanwhile.
        let submitted = tokio::spawn(async move { queries.submit_as(id, submission).await });
        let submitted = submitted.await.map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the job was not started, which is a bug of the server: {error}"),
            )
        })?;
        Ok(submitted.map_err(ClientError::from)?)
    }

    async fn abort(&self, job: Job) -> Result<Job, Problem> {
        match job.phase() {
            Phase::Pending => {
                let mut record = job.record;
                record.step = JobStep::Aborted;
                self.state.jobs.put(record).await
            }
            Phase::Queued | Phase::Executing => {
                let (id, owner) = (job.record.id, &job.record.owner);
                // It may have ended in this moment.
                let _ = self.state.shared.queries.cancel(id, owner).await;
                self.job(&id.to_string()).await
            }
            _ => Ok(job),
        }
    }

    /// Waits until the phase of a job changes, if it still can.
    async fn wait(&self, mut job: Job, given: &RequestParameters) -> Result<Job, Problem> {
        let Some(wait) = given.value("WAIT")? else {
            return Ok(job);
        };
        let seconds: i64 = wait.parse().map_err(|_| {
            Problem::bad(format!(
                "WAIT is {wait}: it is a number of seconds, or -1 for as long as the service waits"
            ))
        })?;
        let longest = match u64::try_from(seconds) {
            Ok(seconds) => LONGEST_WAIT.min(Duration::from_secs(seconds)),
            Err(_) => LONGEST_WAIT,
        };
        let (first, begun) = (job.phase(), Instant::now());
        if let Some(phase) = given.value("PHASE")?
            && !phase.eq_ignore_ascii_case(first.name())
        {
            return Ok(job);
        }
        let id = job.record.id.to_string();
        let look = match self.state.shared.queries.is_shared() {
            true => LOOK_AT_SHARED,
            false => LOOK,
        };
        while job.phase() == first && first.is_active() && begun.elapsed() < longest {
            tokio::select! {
                () = tokio::time::sleep(look) => {}
                () = self.state.shared.closing.cancelled() => break,
            }
            job = self.job(&id).await?;
        }
        Ok(job)
    }
}

fn only_pending(job: &Job, name: &str) -> Result<(), Problem> {
    match job.phase() {
        Phase::Pending => Ok(()),
        phase => Err(Problem::bad(format!(
            "{name} cannot be changed: job {} is {}; make another job",
            job.record.id,
            phase.name()
        ))),
    }
}

fn own_parameters(given: &RequestParameters) -> Vec<(String, String)> {
    let all = given.all().iter().cloned();
    all.filter(|(name, _)| !OF_REQUESTS.contains(&name.as_str()))
        .collect()
}

/// The parameters that say what is done with a job.
fn of_requests(given: &RequestParameters) -> RequestParameters {
    let all = given.all().iter().cloned();
    RequestParameters::of(
        all.filter(|(name, _)| OF_REQUESTS.contains(&name.as_str()))
            .collect(),
    )
}

/// `GET /tap/async`: the jobs of the client, of some phases, since a time, or the last ones.
pub(super) async fn list(
    client: Client,
    RawQuery(query): RawQuery,
) -> Result<Response<Body>, TapError> {
    let given = of_address(query.as_deref())?;
    let phases = phases(&given)?;
    let after = given.value("AFTER")?.map(|text| {
        job_document::read_time(text).ok_or_else(|| {
            Problem::bad(format!(
                "AFTER is {text}: it is a time in UTC, as in 2026-11-25T10:00:00"
            ))
        })
    });
    let after = after.transpose()?.unwrap_or(i64::MIN);
    let last = given.count("LAST")?.unwrap_or(u64::MAX);
    let mut jobs = client.state.jobs.list(&client.requester.user).await;
    jobs.retain(|job| job.record.created > after);
    jobs.retain(|job| (phases.as_ref()).is_none_or(|phases| phases.contains(&job.phase())));
    jobs.truncate(usize::try_from(last).unwrap_or(usize::MAX));
    Ok(document(XML, job_document::jobs(&jobs, &client.base)))
}

/// The phases of which jobs are wanted; `None` for all.
fn phases(given: &RequestParameters) -> Result<Option<Vec<Phase>>, Problem> {
    let named = given.all().iter().filter(|(name, _)| name == "PHASE");
    let phase = |(_, value): &(String, String)| {
        let is = |name: &str| name.eq_ignore_ascii_case(value.trim());
        let mut found = Phase::ALL.into_iter().filter(|it| is(it.name()));
        // Phases that jobs here are never in.
        let others = ["HELD", "SUSPENDED", "ARCHIVED", "UNKNOWN"];
        match found.next() {
            Some(phase) => Ok(Some(phase)),
            None if others.into_iter().any(is) => Ok(None),
            None => Err(Problem::bad(format!(
                "PHASE is {value}: it is one of {}",
                Phase::ALL.map(Phase::name).join(", ")
            ))),
        }
    };
    let phases = named.map(phase).collect::<Result<Vec<_>, _>>()?;
    // Of phases in which no job is there are no jobs, and not all.
    Ok((!phases.is_empty()).then(|| phases.into_iter().flatten().collect()))
}

/// `POST /tap/async`: makes a job, and starts it with PHASE=RUN.
pub(super) async fn create(
    client: Client,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, TapError> {
    let form = TapForm::receive(&client.state, query.as_deref(), &headers, body).await?;
    let owner = client.requester.user.clone();
    let own = own_parameters(&form.parameters);
    let job = client.state.jobs.create(owner, own, form.uploads).await?;
    let rest = TapForm {
        parameters: of_requests(&form.parameters),
        uploads: Uploads::default(),
    };
    let job = client.change(job, rest).await?;
    client.to_job(&job)
}

/// `GET /tap/async/{id}`, which waits with WAIT.
pub(super) async fn show(
    client: Client,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response<Body>, TapError> {
    let given = of_address(query.as_deref())?;
    let job = client.wait(client.job(&id).await?, &given).await?;
    Ok(document(XML, job_document::job(&job, &client.base)))
}

/// `POST /tap/async/{id}`.
pub(super) async fn change(
    client: Client,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, TapError> {
    let form = TapForm::receive(&client.state, query.as_deref(), &headers, body).await?;
    let job = client.job(&id).await?;
    match form.parameters.value("ACTION")? {
        Some(action) if action.eq_ignore_ascii_case("DELETE") => {
            client.state.jobs.destroy(&job.record).await;
            client.to_list()
        }
        Some(other) => Err(Problem::bad(format!("ACTION is {other}: it is DELETE")).into()),
        None => client.to_job(&client.change(job, form).await?),
    }
}

/// `DELETE /tap/async/{id}`.
pub(super) async fn delete(
    client: Client,
    Path(id): Path<String>,
) -> Result<Response<Body>, TapError> {
    let job = client.job(&id).await?;
    client.state.jobs.destroy(&job.record).await;
    client.to_list()
}

/// `GET /tap/async/{id}/{part}`.
pub(super) async fn part(
    client: Client,
    Path((id, part)): Path<(String, String)>,
) -> Result<Response<Body>, TapError> {
    let job = client.job(&id).await?;
    let plain = |text: &str| Ok(problem::text(StatusCode::OK, text));
    match part.as_str() {
        "phase" => plain(job.phase().name()),
        "quote" => plain(&job_document::quote(&job).unwrap_or_default()),
        "executionduration" => plain(&job.record.execution_duration.to_string()),
        "destruction" => plain(&job_document::time(job.record.destruction)),
        "owner" => plain(&job.record.owner),
        "parameters" => Ok(document(XML, job_document::parameters(&job))),
        "results" => Ok(document(XML, job_document::results(&job, &client.base))),
        "error" => match job.error() {
            Some(error) => Ok(document(
                "application/x-votable+xml",
                error_document(&error),
            )),
            None => {
                let sentence = format!("job {id} has no error: it is {}", job.phase().name());
                Err(Problem::not_found(sentence).into())
            }
        },
        _ => Err(no_part(&part).into()),
    }
}

fn no_part(part: &str) -> Problem {
    Problem::not_found(format!(
        "a job has no {part}: it has phase, quote, executionduration, destruction, owner, parameters, results and error"
    ))
}

fn only_read(part: &str) -> Problem {
    Problem::bad(format!(
        "the {part} of a job cannot be changed: its phase, parameters, executionduration and destruction can"
    ))
}

/// `POST /tap/async/{id}/{part}`: of `phase`, `parameters`, `destruction`, `executionduration`.
pub(super) async fn change_part(
    client: Client,
    Path((id, part)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, TapError> {
    let form = TapForm::receive(&client.state, query.as_deref(), &headers, body).await?;
    let job = client.job(&id).await?;
    let wanted = match part.as_str() {
        "phase" => "PHASE",
        "destruction" => "DESTRUCTION",
        "executionduration" => "EXECUTIONDURATION",
        "parameters" => "",
        "quote" | "owner" | "results" | "error" => return Err(only_read(&part).into()),
        _ => return Err(no_part(&part).into()),
    };
    if !wanted.is_empty() && form.parameters.value(wanted)?.is_none() {
        return Err(Problem::bad(format!("{wanted} is missing: send it as a form")).into());
    }
    client.to_job(&client.change(job, form).await?)
}

/// `GET /tap/async/{id}/results/result`.
pub(super) async fn result(
    client: Client,
    Path(id): Path<String>,
) -> Result<Response<Body>, TapError> {
    let job = client.job(&id).await?;
    if job.phase() != Phase::Completed {
        let sentence = match job.error() {
            Some(error) => format!("job {id} has no result: {error}"),
            None if job.phase() == Phase::Aborted => {
                format!("job {id} has no result: it was aborted")
            }
            None => format!("job {id} has no result yet: it is {}", job.phase().name()),
        };
        return Err(Problem::not_found(sentence).into());
    }
    let request = TapRequest::read(&RequestParameters::of(job.record.parameters.clone()))?;
    let shared = Arc::clone(&client.state.shared);
    let Requester { user, peer } = client.requester.clone();
    let work = shared.track_for(peer, &user, None, "Result", &id);
    let (number, format) = (job.record.id, request.format);
    let noted = Arc::clone(&client.overflow.is_cut_off);
    let max_rows = shared.usage.rows_within(request.max_rows);
    let results = client
        .state
        .shared
        .query_runtime
        .spawn(move |sender| async move {
            let sending = async {
                let stored = shared.queries.result(number, &user)?;
                let columns = columns(&stored.schema);
                let counter = shared.metrics.rows(metrics::Protocol::Http);
                let batches = (stored.open)().boxed();
                let wanted = LimitedBatches::new(batches, max_rows, counter);
                let mut wanted = wanted.noting(&noted);
                let warnings = &stored.warnings;
                let mut writer = format.writer(RESULT, &columns, &stored.schema, warnings)?;
                write(writer.as_mut(), &mut wanted, &sender).await
            };
            work.run(sending).await
        });
    Ok(streaming_response(format.media_type(), results, (), client.overflow).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_job_is_no_parameter_of_it() {
        let given = RequestParameters::read("PHASE=RUN&QUERY=SELECT+1&LANG=ADQL&WAIT=1").unwrap();
        let own = own_parameters(&given);
        let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["QUERY", "LANG"]);
    }

    /// `EXECUTIONDURATION=soon` was said to be no whole number of rows.
    #[test]
    fn a_job_is_given_whole_seconds() {
        let read = |value: &str| {
            let query = format!("EXECUTIONDURATION={value}");
            let given = RequestParameters::read(&query).unwrap();
            execution_duration(&given).map_err(|problem| problem.sentence)
        };
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("0").unwrap(), Some(0));
        assert_eq!(read("3600").unwrap(), Some(3600));
        assert_eq!(read("18446744073709551616").unwrap(), Some(LONGEST_RUN));
        for wrong in ["soon", "-1", "1.5", "1e3"] {
            let said = read(wrong).unwrap_err();
            let begin = format!("EXECUTIONDURATION is {wrong}: it is a whole number of seconds");
            assert!(said.starts_with(&begin), "{said}");
        }
    }

    #[test]
    fn phases_are_words_of_uws() {
        let read = |query: &str| phases(&RequestParameters::read(query).unwrap());
        let two = read("PHASE=pending&PHASE=ERROR").unwrap();
        assert_eq!(two, Some(vec![Phase::Pending, Phase::Error]));
        assert_eq!(read("LAST=3").unwrap(), None);
        // All jobs were listed.
        for never in ["HELD", "suspended", "ARCHIVED", "%20UNKNOWN%20"] {
            assert_eq!(read(&format!("PHASE={never}")).unwrap(), Some(vec![]));
        }
        let one = read("PHASE=HELD&PHASE=ABORTED").unwrap();
        assert_eq!(one, Some(vec![Phase::Aborted]));
        assert!(read("PHASE=DONE").is_err() && read("PHASE=HELD&PHASE=FOO").is_err());
    }
}
