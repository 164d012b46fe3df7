//! Jobs as UWS writes them.

use std::io;
use std::time::Duration;

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::temporal_conversions::timestamp_us_to_datetime;
use engine::{QueryInfo, QueryState};
use queries::given_time;
use quick_xml::events::BytesText;

use super::jobs::{Job, Phase, now};
use super::xml::{self, Xml, text};

const NAMESPACES: [(&str, &str); 3] = [
    ("xmlns:uws", "http://www.ivoa.net/xml/UWS/v1.0"),
    ("xmlns:xlink", "http://www.w3.org/1999/xlink"),
    ("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance"),
];
/// A time as UWS has it, in UTC to the second.
pub(super) fn time(microseconds: i64) -> String {
    let time = timestamp_us_to_datetime(microseconds);
    time.map(|time| time.format("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

/// When the job is expected to end, or was before it ended, if that is known.
pub(super) fn quote(job: &Job) -> Option<String> {
    let query = job.query.as_ref()?;
    let expected = ExpectedEnd {
        state: query.state,
        submitted: query.submitted,
        estimate: query.estimate,
        seconds_left: query.seconds_left,
    };
    expected.at(now()).map(time)
}

/// What is known of when a query ends.
struct ExpectedEnd {
    state: QueryState,
    submitted: i64,
    /// How long it was expected to take, in milliseconds.
    estimate: Option<u64>,
    /// How long it will still take, judged by its pieces.
    seconds_left: Option<u64>,
}

impl ExpectedEnd {
    /// The end, in microseconds since 1970, of which `now` is one, in whole seconds. There is none of a query that goes on behind it.
    fn at(&self, now: i64) -> Option<i64> {
        const SECOND: i64 = 1_000_000;
        let is_active = matches!(self.state, QueryState::Queued | QueryState::Executing);
        let microseconds = |number: u64, unit: i64| i64::try_from(number).ok()?.checked_mul(unit);
        let end = match self.seconds_left {
            // Its pieces are done, and what is above them is not counted.
            None | Some(0) => self
                .submitted
                .checked_add(microseconds(self.estimate?, 1000)?)?,
            Some(left) => now.checked_add(microseconds(left, SECOND)?)?,
        };
        if is_active && end <= now {
            return None;
        }
        // It is not told to have ended in the second in which it began.
        Some(end.checked_add(SECOND - 1)?.div_euclid(SECOND) * SECOND)
    }
}

/// A job.
pub(super) fn job(job: &Job, base: &str) -> Vec<u8> {
    xml::document(|xml| {
        xml.create_element("uws:job")
            .with_attributes(NAMESPACES)
            .with_attribute(("version", "1.1"))
            .write_inner_content(|xml| content(xml, job, base))?;
        Ok(())
    })
}

fn content(xml: &mut Xml, job: &Job, base: &str) -> io::Result<()> {
    let record = &job.record;
    text(xml, "uws:jobId", &record.id.to_string())?;
    if let Some(run) = job.parameter("RUNID") {
        text(xml, "uws:runId", run)?;
    }
    text(xml, "uws:ownerId", &record.owner)?;
    text(xml, "uws:phase", job.phase().name())?;
    or_nil(xml, "uws:quote", quote(job))?;
    text(xml, "uws:creationTime", &time(record.created))?;
    let query = job.query.as_ref();
    let started = query.and_then(|query| query.started);
    let ended = query.and_then(|query| query.ended);
    or_nil(xml, "uws:startTime", started.map(time))?;
    or_nil(xml, "uws:endTime", ended.map(time))?;
    text(
        xml,
        "uws:executionDuration",
        &record.execution_duration.to_string(),
    )?;
    text(xml, "uws:destruction", &time(record.destruction))?;
    parameters_element(xml, job, &[])?;
    results_element(xml, job, base, &[])?;
    if let Some(error) = job.error() {
        xml.create_element("uws:errorSummary")
            .with_attributes([("type", "fatal"), ("hasDetail", "true")])
            .write_inner_content(|xml| text(xml, "uws:message", &error))?;
    }
    progress(xml, job)
}

/// How far the query has come, in the elements that Rubin's service uses.
fn progress(xml: &mut Xml, job: &Job) -> io::Result<()> {
    let told = |query: &&QueryInfo| query.pieces > 0 || query.warnings > 0;
    let Some(query) = job.query.as_ref().filter(told) else {
        return Ok(());
    };
    let percent = percent(job.phase(), query.pieces_done, query.pieces);
    xml.create_element("uws:jobInfo")
        .write_inner_content(|xml| {
            xml.create_element("tapQueryInfo")
                .write_inner_content(|xml| {
                    text(xml, "pct_complete", &percent.to_string())?;
                    text(xml, "chunks_processed", &query.pieces_done.to_string())?;
                    text(xml, "total_chunks", &query.pieces.to_string())?;
                    // Their texts are in a result that is a VOTable.
                    text(xml, "warnings", &query.warnings.to_string())
                })?;
            Ok(())
        })?;
    Ok(())
}

/// How much of a job is done, in percent, by its pieces. What is above them comes behind the last one, and only a job that is complete is
/// done as a whole.
fn percent(phase: Phase, pieces_done: u64, pieces: u64) -> u64 {
    match phase {
        Phase::Completed => 100,
        _ => (pieces_done.saturating_mul(100) / pieces.max(1)).min(99),
    }
}

fn or_nil(xml: &mut Xml, name: &str, value: Option<String>) -> io::Result<()> {
    match value {
        Some(value) => text(xml, name, &value),
        None => {
            xml.create_element(name)
                .with_attribute(("xsi:nil", "true"))
                .write_empty()?;
            Ok(())
        }
    }
}

/// The error of a job that was given so many seconds, with the name that its client knows for these.
pub(super) fn in_words_of_jobs(error: &str, seconds: u64) -> String {
    let theirs = given_time(Duration::from_secs(seconds));
    error.replace(&theirs, &format!("its EXECUTIONDURATION of {seconds} s"))
}

/// The parameters alone.
pub(super) fn parameters(job: &Job) -> Vec<u8> {
    xml::document(|xml| parameters_element(xml, job, &NAMESPACES))
}

fn parameters_element(xml: &mut Xml, job: &Job, attributes: &[(&str, &str)]) -> io::Result<()> {
    xml.create_element("uws:parameters")
        .with_attributes(attributes.iter().copied())
        .write_inner_content(|xml| {
            for (name, value) in &job.record.parameters {
                let (name, value) = (xml::readable(name), xml::readable(value));
                xml.create_element("uws:parameter")
                    .with_attribute(("id", name.as_str()))
                    .write_text_content(BytesText::new(&value))?;
            }
            Ok(())
        })?;
    Ok(())
}

/// The results alone.
pub(super) fn results(job: &Job, base: &str) -> Vec<u8> {
    xml::document(|xml| results_element(xml, job, base, &NAMESPACES))
}

fn results_element(
    xml: &mut Xml,
    job: &Job,
    base: &str,
    attributes: &[(&str, &str)],
) -> io::Result<()> {
    xml.create_element("uws:results")
        .with_attributes(attributes.iter().copied())
        .write_inner_content(|xml| {
            if job.phase() == Phase::Completed {
                let address = format!("{base}/async/{}/results/result", job.record.id);
                xml.create_element("uws:result")
                    .with_attributes([("id", "result"), ("xlink:href", address.as_str())])
                    .write_empty()?;
            }
            Ok(())
        })?;
    Ok(())
}

/// A list of jobs.
pub(super) fn jobs(jobs: &[Job], base: &str) -> Vec<u8> {
    xml::document(|xml| {
        xml.create_element("uws:jobs")
            .with_attributes(NAMESPACES)
            .with_attribute(("version", "1.1"))
            .write_inner_content(|xml| {
                for job in jobs {
                    let id = job.record.id.to_string();
                    let address = format!("{base}/async/{id}");
                    xml.create_element("uws:jobref")
                        .with_attributes([("id", id.as_str()), ("xlink:href", address.as_str())])
                        .write_inner_content(|xml| {
                            text(xml, "uws:phase", job.phase().name())?;
                            if let Some(run) = job.parameter("RUNID") {
                                text(xml, "uws:runId", run)?;
                            }
                            text(xml, "uws:ownerId", &job.record.owner)?;
                            text(xml, "uws:creationTime", &time(job.record.created))
                        })?;
                }
                Ok(())
            })?;
        Ok(())
    })
}

/// Microseconds of a time as clients write it: `2026-11-25T10:00:00`, with or without a fraction and a Z.
pub(super) fn read_time(text: &str) -> Option<i64> {
    let plain = text.trim().trim_end_matches('Z').replace(' ', "T");
    let with_time = match plain.contains('T') {
        true => plain,
        false => format!("{plain}T00:00:00"),
    };
    // In nanoseconds there would be none after the year 2262.
    let utc: Tz = "+00:00".parse().ok()?;
    let time = string_to_datetime(&utc, &with_time);
    time.ok().map(|time| time.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was said to have taken longer than `max_execution_time`, in milliseconds, which no client of jobs knows.
    #[test]
    fn a_job_that_took_too_long_is_told_in_the_words_of_jobs() {
        let error = |seconds| {
            let given = given_time(Duration::from_secs(seconds));
            format!("the query took longer than {given}; it waited")
        };
        assert_eq!(
            in_words_of_jobs(&error(2), 2),
            "the query took longer than its EXECUTIONDURATION of 2 s; it waited"
        );
        let other = "there is no column max_execution_time";
        assert_eq!(in_words_of_jobs(other, 0), other);
    }

    /// A join whose pieces were done was said to be complete while it ran on.
    #[test]
    fn only_a_job_that_is_complete_is_done() {
        assert_eq!(percent(Phase::Executing, 0, 0), 0);
        assert_eq!(percent(Phase::Executing, 1, 3), 33);
        for phase in [Phase::Queued, Phase::Executing, Phase::Aborted] {
            assert_eq!(percent(phase, 3, 3), 99);
        }
        assert_eq!(percent(Phase::Completed, 3, 3), 100);
        assert_eq!(percent(Phase::Completed, 0, 0), 100);
    }

    /// It was expected to end in the second in which it had begun, for as long as it ran.
    #[test]
    fn what_runs_ends_in_the_future_or_at_no_time_that_is_known() {
        use QueryState::*;
        let (submitted, now) = (5_000_000, 9_500_000);
        let end = |state, estimate, seconds_left| {
            let expected = ExpectedEnd {
                state,
                submitted,
                estimate,
                seconds_left,
            };
            expected.at(now)
        };
        assert_eq!(end(Executing, Some(7_200), None), Some(13_000_000));
        assert_eq!(end(Queued, Some(4_600), None), Some(10_000_000));
        for left in [None, Some(0)] {
            assert_eq!(end(Executing, Some(3), left), None);
            assert_eq!(end(Executing, Some(4_500), left), None);
            assert_eq!(end(Executing, None, left), None);
        }
        // What its pieces have taken tells more than what was estimated.
        assert_eq!(end(Executing, Some(3), Some(8)), Some(18_000_000));
        assert_eq!(end(Executing, None, Some(8)), Some(18_000_000));
        assert_eq!(end(Completed, Some(3), None), Some(6_000_000));
        assert_eq!(end(Executing, Some(u64::MAX), None), None);
    }

    #[test]
    fn times_are_written_and_read() {
        // `3000-01-01` was said to be no time.
        let far = ["3000-01-01T00:00:00Z", "1600-02-29T12:00:00Z"];
        for text in [far, ["2026-11-25T10:00:00Z", "1999-12-31T23:59:59Z"]].concat() {
            assert_eq!(time(read_time(text).unwrap()), text);
        }
        assert_eq!(
            read_time("2026-11-25T10:00:00.5"),
            Some(1_795_600_800_500_000)
        );
        assert_eq!(
            time(read_time("2026-11-25").unwrap()),
            "2026-11-25T00:00:00Z"
        );
        for wrong in ["", "tomorrow", "2026-13-01T00:00:00"] {
            assert_eq!(read_time(wrong), None, "{wrong}");
        }
    }
}
