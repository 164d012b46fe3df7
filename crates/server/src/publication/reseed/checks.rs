//! What a release has to be, and what it has to be beside the rows that stay. Whatever is wrong is told with a few examples.

use std::collections::BTreeSet;

use alerts::{AlertTable, names};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};

use super::super::PublicationError;
use super::ReseedReport;
use super::files::Scratch;

/// Examples that are told.
const MOST: usize = 10;

/// What is wrong if a statement has rows.
struct Check {
    statement: String,
    wrong: &'static str,
}

fn keys(scratch: &Scratch) -> [Check; 4] {
    let [objects, sources, forced] = AlertTable::ALL.map(|table| scratch.table(table.name()));
    let twice = |table: &str, keys: &str| {
        format!("SELECT {keys} FROM {table} GROUP BY {keys} HAVING COUNT(*) > 1 LIMIT {MOST}")
    };
    let (object, start, end) = (
        names::DIA_OBJECT,
        names::VALIDITY_START,
        names::VALIDITY_END,
    );
    let versions = format!(
        "SELECT {object}, {start} AS begins, {end} AS ends, LEAD({start}) OVER (PARTITION BY {object} ORDER BY {start}) AS next_begins FROM {objects}"
    );
    [
        Check {
            statement: twice(&objects, &format!("{object}, {start}")),
            wrong: "there are several versions of a time of these DiaObjects",
        },
        Check {
            statement: format!(
                "SELECT {object} FROM ({versions}) AS v WHERE ends <= begins OR ends > next_begins LIMIT {MOST}"
            ),
            wrong: "versions of these DiaObjects are valid at the same time",
        },
        Check {
            statement: twice(&sources, names::DIA_SOURCE),
            wrong: "these DiaSources come twice",
        },
        Check {
            statement: twice(
                &forced,
                &format!("{object}, {}, {}", names::VISIT, names::DETECTOR),
            ),
            wrong: "DiaForcedSources of these DiaObjects come twice, by object, visit and detector",
        },
    ]
}

/// Checks a release by itself.
pub(super) async fn release(scratch: &Scratch, cut: f64) -> Result<(), PublicationError> {
    let of = "the release cannot be used";
    for check in keys(scratch) {
        check.run(scratch, of).await?;
    }
    let (object, start, end) = (
        names::DIA_OBJECT,
        names::VALIDITY_START,
        names::VALIDITY_END,
    );
    let objects = scratch.table(AlertTable::DiaObject.name());
    let open = Check {
        statement: format!(
            "SELECT {object} FROM (SELECT {object}, {end} AS ends, LEAD({start}) OVER (PARTITION BY {object} ORDER BY {start}) AS next_begins \
             FROM {objects}) AS v WHERE ends IS NULL AND next_begins < {cut:e} LIMIT {MOST}"
        ),
        wrong: "versions of these DiaObjects have no end, and are not the last ones",
    };
    open.run(scratch, of).await?;
    for (table, wrong) in [
        (
            AlertTable::DiaSource,
            "it has DiaSources of these DiaObjects, and not the objects",
        ),
        (
            AlertTable::DiaForcedSource,
            "it has DiaForcedSources of these DiaObjects, and not the objects",
        ),
    ] {
        let statement = format!(
            "SELECT s.{object} {} LIMIT {MOST}",
            without_object(scratch, table)
        );
        Check { statement, wrong }.run(scratch, of).await?;
    }
    Ok(())
}

/// Checks a release together with the rows that stay, and counts those whose objects do not.
pub(super) async fn together(
    scratch: &Scratch,
    cut: f64,
    report: &mut ReseedReport,
) -> Result<(), PublicationError> {
    for check in keys(scratch) {
        check
            .run(
                scratch,
                "the release does not fit to the rows that stay, which are from the cut on",
            )
            .await?;
    }
    let tables = [AlertTable::DiaSource, AlertTable::DiaForcedSource];
    for (count, table) in report.without_object.iter_mut().zip(tables) {
        let statement = format!(
            "SELECT COUNT(*) AS n {} AND s.{} >= {cut:e}",
            without_object(scratch, table),
            names::MIDPOINT
        );
        let found = numbers(&scratch.all(&statement).await?);
        *count = found.first().map_or(0, |it| it.cast_unsigned());
    }
    Ok(())
}

/// The rows of a table that are of an object which is not there.
fn without_object(scratch: &Scratch, table: AlertTable) -> String {
    let object = names::DIA_OBJECT;
    format!(
        "FROM {} AS s LEFT JOIN (SELECT DISTINCT {object} FROM {}) AS o ON s.{object} = o.{object} \
         WHERE s.{object} IS NOT NULL AND o.{object} IS NULL",
        scratch.table(table.name()),
        scratch.table(AlertTable::DiaObject.name())
    )
}

impl Check {
    async fn run(&self, scratch: &Scratch, of: &str) -> Result<(), PublicationError> {
        let found = numbers(&scratch.all(&self.statement).await?);
        if found.is_empty() {
            return Ok(());
        }
        let shown: BTreeSet<i64> = found.iter().copied().collect();
        let shown: Vec<String> = shown.iter().map(i64::to_string).collect();
        let more = match found.len() < MOST {
            true => "",
            false => ", and perhaps others",
        };
        Err(PublicationError::Release(format!(
            "{of}: {}: {}{more}; nothing was changed",
            self.wrong,
            shown.join(", ")
        )))
    }
}

/// The numbers of a first column.
fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
    let column = |batch: &RecordBatch| {
        let cast = cast(batch.column(0), &DataType::Int64).ok()?;
        Some(cast.as_primitive::<Int64Type>().clone())
    };
    let columns: Vec<_> = batches.iter().filter_map(column).collect();
    columns.iter().flat_map(|it| it.iter().flatten()).collect()
}
