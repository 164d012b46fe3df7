//! Memberships of rows, `(a, b) IN (SELECT x, y ...)`, value by value.
//!
//! The planner is given one value for a row on either side ([`ROW`](crate::functions::ROW)). Here `S` is the set with its columns x
//! and y:
//!
//! ```text
//! (a, b) IN (S)       becomes   EXISTS (S where x = a AND y = b)
//! (a, b) NOT IN (S)   becomes   NOT EXISTS (S where (x = a AND y = b) is not false)
//! ```
//!
//! Where unknown matters, it is unknown whether the row is in the set if it is not, but some row of the set would be it if each NULL of
//! either were the right value. That is asked for each combination of fields that may be NULL, so that all conditions between the two
//! are equalities, for which the engine has joins everywhere:
//!
//! ```text
//! EXISTS (S where x = a AND y = b) OR (NULL AND (b IS NULL AND EXISTS (S where x = a) OR EXISTS (S where x = a AND y IS NULL) OR ...))
//! ```

use std::sync::Arc;

use datafusion::common::{Column, DFSchema, Result, not_impl_err};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, Subquery, lit};

use super::memberships::{from_outside, may_be_null};
use crate::functions::{row, values_of_row};

/// Begins the names of a set's columns: the engine joins by columns alone where a subquery is a value.
const FIELD: &str = "__field_";

/// Combinations of NULLs that are asked for, at most: all of three fields that may be NULL on both sides.
const MOST_COMBINATIONS: usize = 26;

/// A membership of a row.
pub(super) struct RowMember {
    values: Vec<Expr>,
    rows: Arc<LogicalPlan>,
    fields: Vec<Expr>,
    subquery: Subquery,
    negated: bool,
}

impl RowMember {
    /// The membership if it is one of a row; `None` if it is one of a single value.
    pub(super) fn of(member: &InSubquery) -> Result<Option<Self>> {
        let Some(values) = values_of_row(&member.expr) else {
            return Ok(None);
        };
        let LogicalPlan::Projection(projection) = member.subquery.subquery.as_ref() else {
            return Ok(None);
        };
        let [set] = projection.expr.as_slice() else {
            return Ok(None);
        };
        let Some(fields) = values_of_row(set) else {
            return Ok(None);
        };
        let names = (1..=fields.len()).map(|number| format!("{FIELD}{number}"));
        let names: Vec<String> = names.collect();
        let named = fields.iter().cloned().zip(&names);
        let named = named.map(|(field, name)| field.alias(name));
        let rows = Projection::try_new(named.collect(), Arc::clone(&projection.input))?;
        let fields = names.into_iter().map(Column::new_unqualified);
        Ok(Some(Self {
            values: values.to_vec(),
            rows: Arc::new(LogicalPlan::Projection(rows)),
            fields: fields.map(Expr::Column).collect(),
            subquery: member.subquery.clone(),
            negated: member.negated,
        }))
    }

    pub(super) fn negated(mut self) -> Self {
        self.negated = !self.negated;
        self
    }

    /// The same membership with every two values changed that meet: of the row outside and of the set, with the columns of either.
    pub(super) fn with_pairs(
        self,
        schema: &DFSchema,
        change: impl Fn((Expr, &DFSchema), (Expr, &DFSchema)) -> (Expr, Expr),
    ) -> Result<InSubquery> {
        let of_set = self.rows.schema();
        let pairs = self.values.into_iter().zip(self.fields);
        let pairs = pairs.map(|(value, field)| change((value, schema), (field, of_set)));
        let (values, fields): (Vec<_>, Vec<_>) = pairs.unzip();
        let set = Projection::try_new(vec![row().call(fields)], Arc::clone(&self.rows))?;
        Ok(InSubquery {
            expr: Box::new(row().call(values)),
            subquery: self
                .subquery
                .with_plan(Arc::new(LogicalPlan::Projection(set))),
            negated: self.negated,
        })
    }

    /// The membership where NULL is as good as false; `exists` makes a condition of a subquery.
    pub(super) fn as_condition(
        &self,
        schema: &DFSchema,
        exists: fn(&Subquery) -> Result<Expr>,
    ) -> Result<Expr> {
        if !self.negated {
            return exists(&self.equal(schema)?);
        }
        let (values, outer) = self.values_from_outside(schema)?;
        let equal = self.fields.iter().cloned().zip(values);
        let equal = conjunction(equal.map(|(field, value)| field.eq(value)));
        let nullable = self
            .may_be_null(schema)
            .any(|(value, field)| value || field);
        let possible = match equal {
            Some(equal) if nullable => equal.is_not_false(),
            Some(equal) => equal,
            None => lit(true),
        };
        Ok(Expr::Not(Box::new(exists(
            &self.filtered(possible, outer)?,
        )?)))
    }

    /// The membership with its three values.
    ///
    /// # Errors
    /// Too many of its fields may be NULL.
    pub(super) fn as_value(
        &self,
        schema: &DFSchema,
        exists: fn(&Subquery) -> Result<Expr>,
    ) -> Result<Expr> {
        let found = exists(&self.equal(schema)?)?;
        let truth = match self.unknown(schema, exists)? {
            Some(unknown) => {
                found.or(lit(datafusion::common::ScalarValue::Boolean(None)).and(unknown))
            }
            None => found,
        };
        Ok(match self.negated {
            true => Expr::Not(Box::new(truth)),
            false => truth,
        })
    }

    /// That some row of the set would be the row if the NULLs of either, of which there is one at least, were the right values.
    fn unknown(
        &self,
        schema: &DFSchema,
        exists: fn(&Subquery) -> Result<Expr>,
    ) -> Result<Option<Expr>> {
        let nullable: Vec<_> = self.may_be_null(schema).collect();
        let ways = nullable
            .iter()
            .map(|(value, field)| 1 + usize::from(*value) + usize::from(*field));
        let ways = ways.fold(1_usize, usize::saturating_mul);
        if ways - 1 > MOST_COMBINATIONS {
            return not_impl_err!(
                "a row of {} values that may be NULL is asked for below OR or NOT, or as a value: write EXISTS with a condition for each value",
                self.values.len()
            );
        }
        let mut combinations = vec![Combination::default()];
        for (number, (value, field)) in nullable.into_iter().enumerate() {
            combinations = combinations
                .into_iter()
                .flat_map(|before| before.extended(number, value, field))
                .collect();
        }
        let asked = combinations
            .iter()
            .filter(|combination| combination.has_null());
        let asked = asked.map(|combination| self.asked(combination, schema, exists));
        Ok(disjunction(asked.collect::<Result<Vec<_>>>()?))
    }

    fn asked(
        &self,
        combination: &Combination,
        schema: &DFSchema,
        exists: fn(&Subquery) -> Result<Expr>,
    ) -> Result<Expr> {
        let mut outer = self.subquery.outer_ref_columns.clone();
        let mut within = Vec::new();
        for number in &combination.equal {
            let value = from_outside(&self.values[*number], schema, &mut outer)?;
            within.push(self.fields[*number].clone().eq(value));
        }
        let nulls = combination.of_set.iter();
        within.extend(nulls.map(|number| self.fields[*number].clone().is_null()));
        let rows = self.filtered(conjunction(within).unwrap_or_else(|| lit(true)), outer)?;
        let values = combination.outside.iter();
        let values = values.map(|number| self.values[*number].clone().is_null());
        let asked = values.chain([exists(&rows)?]);
        Ok(conjunction(asked).unwrap_or_else(|| lit(true)))
    }

    /// Whether each value may be NULL, and the field of the set that it meets.
    fn may_be_null(&self, schema: &DFSchema) -> impl Iterator<Item = (bool, bool)> {
        let pairs = self.values.iter().zip(&self.fields);
        let of_set = self.rows.schema();
        pairs.map(move |(value, field)| (may_be_null(value, schema), may_be_null(field, of_set)))
    }

    /// The rows of the set that equal the row.
    fn equal(&self, schema: &DFSchema) -> Result<Subquery> {
        let (values, outer) = self.values_from_outside(schema)?;
        let equal = self.fields.iter().cloned().zip(values);
        let equal = conjunction(equal.map(|(field, value)| field.eq(value)));
        self.filtered(equal.unwrap_or_else(|| lit(true)), outer)
    }

    /// The values as the set sees them, and all columns that it then has from outside.
    fn values_from_outside(&self, schema: &DFSchema) -> Result<(Vec<Expr>, Vec<Expr>)> {
        let mut outer = self.subquery.outer_ref_columns.clone();
        let values = self.values.iter();
        let values = values.map(|value| from_outside(value, schema, &mut outer));
        Ok((values.collect::<Result<_>>()?, outer))
    }

    fn filtered(&self, condition: Expr, outer: Vec<Expr>) -> Result<Subquery> {
        let rows = LogicalPlanBuilder::from(Arc::clone(&self.rows));
        let mut found = self
            .subquery
            .with_plan(Arc::new(rows.filter(condition)?.build()?));
        found.outer_ref_columns = outer;
        Ok(found)
    }
}

/// Which fields, by their numbers, are equal, and which are NULL on which side.
#[derive(Clone, Default)]
struct Combination {
    equal: Vec<usize>,
    outside: Vec<usize>,
    of_set: Vec<usize>,
}

impl Combination {
    fn has_null(&self) -> bool {
        !(self.outside.is_empty() && self.of_set.is_empty())
    }

    /// The combination with one more field, in every way that it can be.
    fn extended(self, number: usize, outside: bool, of_set: bool) -> impl Iterator<Item = Self> {
        let with = |change: fn(&mut Self) -> &mut Vec<usize>| {
            let mut more = self.clone();
            change(&mut more).push(number);
            more
        };
        let equal = with(|it| &mut it.equal);
        let outside = outside.then(|| with(|it| &mut it.outside));
        let of_set = of_set.then(|| with(|it| &mut it.of_set));
        [Some(equal), outside, of_set].into_iter().flatten()
    }
}
