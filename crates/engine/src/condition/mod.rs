//! The conditions that a scan tests row by row, decided where that is possible without computing what they say.
//!
//! ```text
//!   fluxToAbMag(zFlux) > 25                       zFlux in [1.4e-45, 3.6e-30]            (Within)
//!   fluxToAbMag(iFlux) - fluxToAbMag(zFlux) > 2   zFlux > 6.3 iFlux, but near the bound  (Ratio)
//!                                                 as it is written
//!   anything else                                 as it is written                       (Exact)
//! ```
//!
//! Invariant: whatever decides, a row is kept exactly if every condition as it is written is true for it, computed as
//! everywhere else.

mod bits;
mod chain;
mod equality;
mod exact;
mod ratio;
mod within;
mod zone_hint;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, BooleanArray, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{FieldRef, Fields, Schema};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use sql::interrupt::check;
use store::{Hint, RowCondition};

pub(crate) use equality::equal_to_column;
use exact::Exact;
pub(crate) use exact::renumber;
use ratio::Ratio;
use within::Within;

/// All conditions of one scan: a row is kept if each of them is true.
#[derive(Debug)]
pub(crate) struct ScanCondition {
    /// Numbers of the file's columns that are looked at.
    columns: Vec<usize>,
    fields: Fields,
    /// Cheapest first.
    conditions: Vec<Condition>,
    /// The names of `columns` in the files.
    names: Vec<String>,
    /// Shared by all pieces; made for the first that requests them.
    hints: OnceLock<Vec<Arc<Hint>>>,
}

/// One of the conditions.
#[derive(Debug)]
struct Condition {
    decision: Decision,
    /// Numbers of the file's columns that it looks at.
    columns: Vec<usize>,
    /// Whether it says the same of the same values, however often.
    is_stable: bool,
}

#[derive(Debug)]
enum Decision {
    Within(Within),
    Ratio(Ratio),
    Exact(Exact),
}

impl ScanCondition {
    /// The conditions `predicates`, whose columns are numbered as in `schema`, which has the files' names for them; `None` if there are
    /// none.
    pub fn try_new(
        predicates: &[Arc<dyn PhysicalExpr>],
        schema: &Schema,
    ) -> Result<Option<Arc<Self>>> {
        if predicates.is_empty() {
            return Ok(None);
        }
        let mut columns: Vec<usize> = predicates
            .iter()
            .flat_map(collect_columns)
            .map(|column| column.index())
            .collect();
        columns.sort_unstable();
        columns.dedup();
        let fields: Fields = columns
            .iter()
            .map(|at| Arc::clone(&schema.fields()[*at]))
            .collect();
        let names = fields.iter().map(|field| field.name().clone()).collect();
        let own_schema = Schema::new(fields.clone());
        let mut conditions = predicates
            .iter()
            .map(|predicate| {
                let own = collect_columns(predicate).into_iter();
                Ok(Condition {
                    decision: Decision::of(&renumber(predicate, &columns)?, &own_schema)?,
                    columns: own.map(|column| column.index()).collect(),
                    is_stable: !is_volatile(predicate),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        conditions.sort_by_key(|condition| condition.decision.cost());
        Ok(Some(Arc::new(Self {
            hints: OnceLock::new(),
            names,
            columns,
            fields,
            conditions,
        })))
    }

    /// What every row that is kept meets, as far as minima and maxima of columns can tell.
    pub fn hints(&self) -> &[Arc<Hint>] {
        self.hints.get_or_init(|| self.make_hints())
    }

    /// The words of the file's scan for the conditions, as far as it has any.
    fn make_hints(&self) -> Vec<Arc<Hint>> {
        let hint = |condition: &Condition| {
            let hint = match &condition.decision {
                Decision::Within(within) => Some(within.hint(&self.names[within.column])),
                Decision::Ratio(_) => None,
                Decision::Exact(exact) => exact.hint(&|column| self.names[column].clone()),
            };
            let last = condition.columns.iter().copied().max().unwrap_or_default();
            hint.map(|hint| Hint::new(hint, last))
        };
        self.conditions.iter().filter_map(hint).collect()
    }
}

impl Condition {
    /// Whether it may be true of rows in which its columns are NULL, all of them.
    fn may_be_true_of_nulls(&self, nulls: &[ArrayRef]) -> bool {
        if !self.is_stable {
            return true;
        }
        match self.decision.keep(nulls, BooleanBuffer::new_set(1)) {
            Ok(kept) => kept.count_set_bits() > 0,
            // It fails with the rows.
            Err(_) => true,
        }
    }
}

impl Decision {
    fn of(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Self> {
        if let Some(within) = Within::of(predicate, schema)? {
            return Ok(Self::Within(within));
        }
        if let Some(ratio) = Ratio::of(predicate, schema)? {
            return Ok(Self::Ratio(ratio));
        }
        Exact::of(predicate, schema).map(Self::Exact)
    }

    fn cost(&self) -> usize {
        match self {
            Self::Within(_) => 0,
            Self::Ratio(_) => 1,
            Self::Exact(_) => 2,
        }
    }

    /// Those of the rows in `alive` for which the condition is true.
    fn keep(&self, columns: &[ArrayRef], alive: BooleanBuffer) -> Result<BooleanBuffer> {
        match self {
            Self::Within(within) => within.keep(columns, alive),
            Self::Ratio(ratio) => ratio.keep(columns, alive),
            Self::Exact(exact) => exact.keep(columns, alive),
        }
    }
}

impl RowCondition for ScanCondition {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    fn keep(
        &self,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<BooleanArray, Arc<dyn Error + Send + Sync>> {
        // A scan goes over any number of rows that nothing keeps, before it gives one.
        check().map_err(|error| Arc::new(error) as Arc<dyn Error + Send + Sync>)?;
        let mut alive = BooleanBuffer::new_set(rows);
        for condition in &self.conditions {
            alive = condition
                .decision
                .keep(columns, alive)
                .map_err(|error| Arc::new(error) as Arc<dyn Error + Send + Sync>)?;
            if alive.count_set_bits() == 0 {
                break;
            }
        }
        Ok(BooleanArray::new(alive, None))
    }

    fn may_keep_without(&self, from: usize) -> bool {
        let null = |field: &FieldRef| new_null_array(field.data_type(), 1);
        let nulls: Vec<ArrayRef> = self.fields.iter().map(null).collect();
        let is_missing = |condition: &&Condition| {
            let columns = &condition.columns;
            !columns.is_empty() && columns.iter().all(|column| *column >= from)
        };
        let mut missing = self.conditions.iter().filter(is_missing);
        missing.all(|condition| condition.may_be_true_of_nulls(&nulls))
    }
}
