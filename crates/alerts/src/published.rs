//! Rows that only the archive has: what is published and old is removed from the store, and read where it was published.
//!
//! The store remembers up to which edition it was emptied. Whatever it still has of these editions has changed since, and counts instead
//! of the row that was published: a read takes the rows of the store, and those of the archive, as of that edition, whose keys the store
//! does not have. An operation on rows that only the archive has brings them back first, as rows that were stored in the edition in which
//! they became what they are.

use std::collections::BTreeSet;
use std::fmt;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use sky::Region;

use crate::error::Result;
use crate::operation::Operation;
use crate::schema::{AlertTable, TableSchema};

/// The archive in which an alert database is published.
#[async_trait]
pub trait PublishedRows: Send + Sync + fmt::Debug {
    /// The rows of a table as they were when an edition was published: in the columns of the schema, with
    /// [`PUBLISHED`](crate::PUBLISHED), the time of the edition in which each became what it is, behind them.
    ///
    /// # Errors
    /// The archive does not have the edition, or cannot be read.
    async fn rows(&self, request: PublishedRequest<'_>) -> Result<Vec<RecordBatch>>;
}

/// Which rows of the archive are wanted.
#[derive(Debug, Clone, Copy)]
pub struct PublishedRequest<'a> {
    /// The alert database.
    pub database: &'a str,
    /// The table, [`AlertTable::DiaSource`] or [`AlertTable::DiaForcedSource`].
    pub table: AlertTable,
    /// Its columns.
    pub columns: &'a TableSchema,
    /// As of which edition.
    pub through: Through,
    /// Which rows.
    pub selection: PublishedSelection<'a>,
    /// Since which time, as MJD (TAI).
    pub since: Option<f64>,
}

/// Rows of the archive.
#[derive(Debug, Clone, Copy)]
pub enum PublishedSelection<'a> {
    /// Those in a region; others may be among them.
    In(&'a Region),
    /// Those of these objects.
    Of(&'a [i64]),
    /// Sources of these numbers, which are in one of these circles, if that is known.
    Sources(&'a [i64], Option<&'a [Region]>),
}

/// An edition, up to which rows are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Through {
    /// Its number.
    pub edition: i64,
    /// When it was closed, in microseconds since 1970 (UTC).
    pub closed_us: i64,
    /// How many releases took the place of what was published before. An archive that has had another number of them has other rows.
    pub release: i64,
}

/// Rows that an operation needs and that only the archive may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeededRows {
    /// Sources by their numbers.
    pub(crate) sources: BTreeSet<i64>,
    /// All sources of objects.
    pub(crate) objects: BTreeSet<i64>,
    /// Forced sources by object, visit and detector.
    pub(crate) forced: BTreeSet<(i64, i64, i64)>,
}

impl NeededRows {
    pub(crate) fn extend(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.objects.extend(other.objects);
        self.forced.extend(other.forced);
    }
}

/// What the archive has of the rows that an operation needs.
#[derive(Debug)]
pub(crate) struct RecalledRows {
    /// As of which edition it was read.
    pub(crate) through: Through,
    pub(crate) needed: NeededRows,
    pub(crate) sources: Vec<RecordBatch>,
    pub(crate) forced: Vec<RecordBatch>,
}

/// A part of the store that can be emptied by itself, so that stores wait for little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyStep {
    /// Sources that were stored in a chunk.
    Sources(i64),
    /// Forced sources that were stored in a chunk.
    Forced(i64),
    /// Versions of objects before those that were stored in a chunk.
    Versions(i64),
}

impl EmptyStep {
    /// The operation, of what is published through an edition.
    pub const fn operation(self, through: i64) -> Operation {
        Operation::Empty {
            through,
            step: Some(self),
        }
    }
}
