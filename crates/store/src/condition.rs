//! What the caller of a scan knows of the rows that it wants: conditions on rows, and hints for zone maps.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef as ArrowArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::Fields;
use vortex::array::VortexSessionExecute;
use vortex::array::arrays::Struct;
use vortex::array::arrays::struct_::StructArrayExt;
use vortex::arrow::ArrowSessionExt;
use vortex::expr::{Expression, lit};

use crate::session::session;

/// A condition on rows that the scan's caller evaluates.
///
/// The scan reads its columns first, and the others only for the rows that meet it.
pub trait RowCondition: Debug + Send + Sync {
    /// The columns that it looks at, as numbers within the file, each once.
    fn columns(&self) -> &[usize];

    /// Their fields, whose Arrow types are those in which it wants them.
    fn fields(&self) -> &Fields;

    /// For each of `rows` rows whether it is kept: where the answer is true. The arrays are those of [`Self::columns`].
    ///
    /// # Errors
    /// Whatever keeps it from telling; it ends the scan.
    fn keep(
        &self,
        columns: &[ArrowArrayRef],
        rows: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>>;

    /// Whether it may keep rows in which the columns from this number on are NULL, as they are in a file that lacks them. Where it says that
    /// it does not, the file is not read.
    fn may_keep_without(&self, from: usize) -> bool {
        let _ = from;
        true
    }
}

/// A constant with which a column of a value's type is compared in a filter: the only value of an array. `None` if files have no such type.
pub fn constant(value: &ArrowArrayRef) -> Option<Expression> {
    let columns = [("value", Arc::clone(value), false)];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).ok()?;
    let (session, schema) = (session(), batch.schema());
    let rows = session
        .arrow()
        .from_arrow_record_batch(batch, &schema)
        .ok()?;
    let rows = rows.as_opt::<Struct>()?;
    let column = rows.iter_unmasked_fields().next()?;
    let mut context = session.create_execution_ctx();
    column.execute_scalar(0, &mut context).ok().map(lit)
}

/// What every wanted row meets, to be shared by the scans of a query.
///
/// Zone maps are asked whether they exclude blocks. That takes time of its own, so a hint that has excluded nothing in the first files is
/// not requested in the others.
#[derive(Debug)]
pub struct Hint {
    pub(crate) expression: Expression,
    /// The greatest number of a column that it names.
    last_column: usize,
    asked: AtomicUsize,
    useful: AtomicUsize,
}

impl Hint {
    /// Times that a hint is requested before it is judged.
    const TRIALS: usize = 6;
    /// It goes on being requested if it was useful once in so many times.
    const USEFUL_ENOUGH: usize = 16;

    /// A condition on the file's columns, of which `last_column` is the greatest number. A file that lacks that is not requested it.
    pub fn new(expression: Expression, last_column: usize) -> Arc<Self> {
        Arc::new(Self {
            expression,
            last_column,
            asked: AtomicUsize::new(0),
            useful: AtomicUsize::new(0),
        })
    }

    /// How often zone maps have been requested it.
    pub fn times_asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether a file with so many columns has those that it names.
    pub(crate) fn fits(&self, columns: usize) -> bool {
        self.last_column < columns
    }

    pub(crate) fn is_worth_asking(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked < Self::TRIALS || self.useful.load(Ordering::Relaxed) * Self::USEFUL_ENOUGH >= asked
    }

    pub(crate) fn was_asked(&self, excluded_some: bool) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.useful
            .fetch_add(usize::from(excluded_some), Ordering::Relaxed);
    }
}
