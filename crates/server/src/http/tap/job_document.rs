//! Jobs as UWS writes them.

use std::io;

use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::temporal_conversions::timestamp_us_to_datetime;
use engine::QueryInfo;
use quick_xml::events::BytesText;

use super::jobs::{Job, Phase};
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

/// When the job was expected to end, if that was estimated.
pub(super) fn quote(job: &Job) -> Option<String> {
    let query = job.query.as_ref()?;
    let milliseconds = i64::try_from(query.estimate?).ok()?;
    Some(time(
        query
            .submitted
            .saturating_add(milliseconds.saturating_mul(1000)),
    ))
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
    let percent = match job.phase() {
        Phase::Completed => 100,
        _ => (100 * query.pieces_done / query.pieces.max(1)).min(100),
    };
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
