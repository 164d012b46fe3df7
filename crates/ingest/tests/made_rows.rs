//! Rows that are made while they are loaded: the same table as from files, rejections that name the part, failures that leave
//! nothing.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use catalog::Catalog;
use common::{Sky, load, load_error};
use meridian_ingest::{LoadRequest, MadeBatches, RowSource};

const ROWS: i64 = 20_000;

/// Parts of 20,000 stars each, the numbers of which go on from part to part.
#[derive(Debug)]
struct Stars {
    parts: usize,
    /// A part with a key that another one has, too.
    duplicate_in: Option<usize>,
    /// A part that cannot be made.
    fails_in: Option<usize>,
}

impl Stars {
    fn batch(&self, part: usize) -> RecordBatch {
        let first = part as i64 * ROWS;
        let mut keys: Vec<i64> = (first..first + ROWS).collect();
        if self.duplicate_in == Some(part) {
            keys[10] = 5;
        }
        let ra = keys.iter().map(|key| (key * 37 % 36_000) as f64 / 100.0);
        let dec = keys
            .iter()
            .map(|key| (key * 13 % 16_000) as f64 / 100.0 - 80.0);
        let (ra, dec) = (
            Float64Array::from_iter_values(ra),
            Float64Array::from_iter_values(dec),
        );
        let columns: Vec<arrow::array::ArrayRef> = vec![
            Arc::new(Int64Array::from(keys)),
            Arc::new(ra),
            Arc::new(dec),
        ];
        RecordBatch::try_new(self.schema(), columns).unwrap()
    }
}

impl RowSource for Stars {
    fn schema(&self) -> SchemaRef {
        let double = |name| Field::new(name, DataType::Float64, false);
        let key = Field::new("id", DataType::Int64, false);
        Arc::new(Schema::new(vec![key, double("ra"), double("dec")]))
    }

    fn parts(&self) -> usize {
        self.parts
    }

    fn part_name(&self, part: usize) -> String {
        format!("stars of part {part}")
    }

    fn part_rows(&self, _part: usize) -> u64 {
        ROWS as u64
    }

    fn make_part(&self, part: usize) -> MadeBatches {
        if self.fails_in == Some(part) {
            return Box::new(std::iter::once(Err(
                "the stars are behind clouds".to_owned()
            )));
        }
        Box::new(std::iter::once(Ok(self.batch(part))))
    }
}

fn request(sky: &Sky, duplicate_in: Option<usize>, fails_in: Option<usize>) -> LoadRequest {
    let mut request = LoadRequest::new(sky.data(), "made", "Star");
    (request.key, request.ra, request.dec) =
        (vec!["id".into()], Some("ra".into()), Some("dec".into()));
    request.made = Some(Arc::new(Stars {
        parts: 3,
        duplicate_in,
        fails_in,
    }));
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn made_rows_are_loaded_with_a_partitioning_of_their_own() {
    let sky = Sky::new();
    let report = load(request(&sky, None, None)).await.unwrap();
    assert_eq!(report.rows_loaded, 60_000);
    assert!(report.partitioning.chosen);
    let catalog = Catalog::open_or_create(&sky.data()).await.unwrap();
    let table = catalog.table("made", "Star").await.unwrap().unwrap();
    assert_eq!(table.rows(), 60_000);
    assert!(table.spec.columns.iter().all(|column| !column.nullable));
}

#[tokio::test(flavor = "multi_thread")]
async fn rejections_name_the_part_and_failures_leave_nothing() {
    let sky = Sky::new();
    let said = load_error(request(&sky, Some(1), None)).await;
    assert!(
        said.contains("stars of part 1:11: the key 5 occurs before, at stars of part 0:6"),
        "{said}"
    );
    let said = load_error(request(&sky, None, Some(2))).await;
    assert!(said.contains("behind clouds; nothing was loaded"), "{said}");
    let catalog = Catalog::open_or_create(&sky.data()).await.unwrap();
    assert!(catalog.table("made", "Star").await.unwrap().is_none());
}
