//! The rows of a query, each beside the rows that a subquery has for it.
//!
//! Begun with the rows outside alone, each of which has something that no other has. The operators of the subquery are then done, from the
//! leaves up, for all rows outside at once:
//!
//! ```text
//!   conditions on rows that do not depend on the row outside   LEFT JOIN of them by the conditions
//!   other conditions                                           a flag beside each row: matched
//!   aggregates, windows, LIMIT                                 for each row outside, of the rows that are matched
//! ```
//!
//! A row outside for which the subquery has no rows stays as one that is not matched, so that its aggregates are those of no rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result, not_impl_err};
use datafusion::functions_aggregate::count::{count, count_udaf};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_fn::when;
use datafusion::logical_expr::logical_plan::{FetchType, SkipType};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprFunctionExt, Filter, Join, Limit, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SortExpr, SubqueryAlias, Window, binary_expr, lit,
};

use super::references::{
    RenamedColumns, has_subquery, outer_columns, outer_columns_of, with_columns,
};

/// The name of the column with the subquery's value, beside the columns of the rows outside.
const VALUE: &str = "__value";

/// See the module.
pub(super) struct OuterRows {
    plan: LogicalPlan,
    /// The table that columns of the rows outside, and those made here, belong to. No other has its name.
    table: String,
    /// The columns of the query outside, and what they are called here.
    outside: Vec<Column>,
    renamed: RenamedColumns,
    /// Columns of the plan that are not of the operator that was done last: those of the rows outside, and of joined tables.
    kept: Vec<Column>,
    /// How many of them are of the rows outside.
    of_row: usize,
    /// The column that is true for rows that the subquery has, and NULL for others; `None` if it has all of them.
    matched: Option<Column>,
    /// How many columns were made here.
    made: usize,
}

impl OuterRows {
    /// The rows of `input`, of which the columns `outside` are wanted. `is_unique` says that these tell all rows apart; else rows are numbered.
    pub fn new(
        input: LogicalPlan,
        outside: Vec<Column>,
        is_unique: bool,
        table: String,
    ) -> Result<Self> {
        let name = |at: usize| Column::new(Some(table.clone()), format!("__c{at}"));
        let mut kept: Vec<Column> = (0..outside.len()).map(name).collect();
        let renamed: RenamedColumns = outside.iter().cloned().zip(kept.iter().cloned()).collect();
        let columns = outside.iter().zip(&kept);
        let columns = columns.map(|(old, new)| named(Expr::Column(old.clone()), new));
        let mut plan = project(input, columns.collect())?;
        if !is_unique {
            let number = name(outside.len());
            plan = LogicalPlanBuilder::from(plan)
                .window([row_number()])?
                .build()?;
            let counted = Column::from(plan.schema().qualified_field(outside.len()));
            let mut columns = columns_of(&kept);
            columns.push(named(Expr::Column(counted), &number));
            plan = project(plan, columns)?;
            kept.push(number);
        }
        Ok(Self {
            plan,
            table,
            outside,
            renamed,
            of_row: kept.len(),
            kept,
            matched: None,
            made: 0,
        })
    }

    /// An expression of the rows outside as it is here.
    pub fn inside(&self, expr: Expr) -> Result<Expr> {
        expr.transform_up(|part| match part {
            Expr::Column(column) if self.renamed.contains_key(&column) => Ok(Transformed::yes(
                Expr::Column(self.renamed[&column].clone()),
            )),
            part => Ok(Transformed::no(part)),
        })
        .data()
    }

    /// The rows outside with the only value that a subquery, which was added, has for each: their columns by their own names, and that of the
    /// value.
    pub fn with_value(mut self, value: &Column) -> Result<(LogicalPlan, Column)> {
        let given = Column::new(Some(self.table.clone()), VALUE);
        let mut found = named(Expr::Column(value.clone()), &given);
        if let Some(matched) = self.matched.take() {
            let first = first_value_udaf().call(vec![Expr::Column(value.clone())]);
            let first = named(of_matched(first, &matched)?, &given);
            self.plan = aggregate(self.plan, columns_of(&self.kept), vec![first])?;
            found = Expr::Column(given.clone());
        }
        let outside = self.outside.iter().zip(&self.kept);
        let outside = outside.map(|(old, new)| named(Expr::Column(new.clone()), old));
        let columns = outside.chain([found]).collect();
        Ok((project(self.plan, columns)?, given))
    }

    /// Adds the number of a subquery's rows for which a condition holds; the column that it is.
    pub fn add_count(&mut self, subquery: &LogicalPlan, condition: Expr) -> Result<Column> {
        let number = self.column("__number");
        self.add(subquery, vec![condition])?;
        let rows = match self.matched.take() {
            Some(matched) => Expr::Column(matched),
            None => lit(true),
        };
        let total = named(count(rows), &number);
        self.plan = aggregate(self.plan.clone(), columns_of(&self.kept), vec![total])?;
        Ok(number)
    }

    /// Adds the rows of a subquery for which all conditions hold, which are of its columns and those that are here.
    ///
    /// # Errors
    /// It has an operator that cannot be done for several rows outside at once.
    pub fn add(&mut self, subquery: &LogicalPlan, conditions: Vec<Expr>) -> Result<()> {
        if !self.depends(subquery)? {
            return self.join(subquery.clone(), conditions);
        }
        match subquery {
            LogicalPlan::Filter(filter) => self.add_filter(filter, conditions),
            LogicalPlan::Projection(projection) => {
                let exprs = self.all_inside(&projection.expr, projection.input.schema())?;
                self.add_columns(exprs, &projection.schema, &projection.input, conditions)
            }
            LogicalPlan::SubqueryAlias(alias) => self.add_alias(alias, conditions),
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
                self.add_inner_join(join, conditions)
            }
            LogicalPlan::Join(join)
                if join.join_type == JoinType::Left && !self.depends(&join.right)? =>
            {
                self.add_left_join(join, conditions)
            }
            LogicalPlan::Aggregate(it) => self.add_aggregate(it, conditions),
            LogicalPlan::Distinct(Distinct::All(input)) => self.add_distinct(input, conditions),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.add(&sort.input, conditions),
            LogicalPlan::Limit(limit) => self.add_limit(limit, conditions),
            LogicalPlan::Window(window) => self.add_windows(window, conditions),
            LogicalPlan::Union(_) => rejected("a UNION"),
            LogicalPlan::Join(_) => rejected("a table that an outer join need not have rows of"),
            _ => rejected("it"),
        }
    }

    /// Whether a subquery is another one for each row outside.
    fn depends(&self, subquery: &LogicalPlan) -> Result<bool> {
        Ok(self.are_outside(&outer_columns(subquery)?))
    }

    fn are_outside(&self, columns: &[Column]) -> bool {
        columns
            .iter()
            .any(|column| self.renamed.contains_key(column))
    }

    fn all_inside(&self, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Expr>> {
        let exprs = exprs.iter().cloned();
        exprs
            .map(|expr| with_columns(expr, schema, &self.renamed))
            .collect()
    }

    /// Joins rows that do not depend on the row outside.
    fn join(&mut self, rows: LogicalPlan, conditions: Vec<Expr>) -> Result<()> {
        let (flagged, mut on) = parted(conditions, has_subquery)?;
        let matched = self.column("__matched");
        let mut columns = columns_of(&rows.schema().columns());
        columns.push(named(lit(true), &matched));
        let rows = project(rows, columns)?;
        on.extend(self.matched.take().map(Expr::Column));
        self.left_join(rows, on)?;
        self.matched = Some(matched);
        self.flag(flagged)
    }

    fn left_join(&mut self, rows: LogicalPlan, on: Vec<Expr>) -> Result<()> {
        let on = conjunction(on).unwrap_or_else(|| lit(true));
        self.plan = LogicalPlanBuilder::from(self.plan.clone())
            .join_on(rows, JoinType::Left, [on])?
            .build()?;
        Ok(())
    }

    /// Takes rows for which a condition does not hold for rows that the subquery does not have.
    fn flag(&mut self, conditions: Vec<Expr>) -> Result<()> {
        let Some(condition) = conjunction(conditions) else {
            return Ok(());
        };
        let columns = self.plan.schema().columns().into_iter();
        let columns: Vec<Column> = columns
            .filter(|column| Some(column) != self.matched.as_ref())
            .collect();
        let condition = match self.matched.take() {
            Some(matched) => Expr::Column(matched).and(condition),
            None => condition,
        };
        let matched = self.column("__matched");
        let mut columns = columns_of(&columns);
        columns.push(named(when(condition, lit(true)).end()?, &matched));
        self.plan = project(self.plan.clone(), columns)?;
        self.matched = Some(matched);
        Ok(())
    }

    fn column(&mut self, name: &str) -> Column {
        self.made += 1;
        Column::new(Some(self.table.clone()), format!("{name}{}", self.made))
    }

    fn add_filter(&mut self, filter: &Filter, mut conditions: Vec<Expr>) -> Result<()> {
        let schema = filter.input.schema();
        let input_depends = self.depends(&filter.input)?;
        let parts = split_conjunction_owned(filter.predicate.clone());
        let (own, outer) = parted(parts, |part| {
            Ok(!input_depends && !self.are_outside(&outer_columns_of(part, schema)?))
        })?;
        conditions.extend(self.all_inside(&outer, schema)?);
        match conjunction(own) {
            None => self.add(&filter.input, conditions),
            Some(own) => {
                let rows = Filter::try_new(own, Arc::clone(&filter.input))?;
                self.join(LogicalPlan::Filter(rows), conditions)
            }
        }
    }

    fn add_alias(&mut self, alias: &SubqueryAlias, conditions: Vec<Expr>) -> Result<()> {
        let exprs = columns_of(&alias.input.schema().columns());
        self.add_columns(exprs, &alias.schema, &alias.input, conditions)
    }

    /// Adds expressions of an input, called as `schema` says. Conditions go to the input where they can.
    fn add_columns(
        &mut self,
        exprs: Vec<Expr>,
        schema: &DFSchema,
        input: &LogicalPlan,
        conditions: Vec<Expr>,
    ) -> Result<()> {
        let (below, above) = parted(conditions, |condition| {
            if has_subquery(condition)? {
                return Ok(false);
            }
            for at in condition
                .column_refs()
                .into_iter()
                .filter_map(|it| place_in(schema, it))
            {
                if exprs[at].is_volatile() || has_subquery(&exprs[at])? {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        let below = below.into_iter().map(|condition| {
            let of_input = condition.transform_up(|part| match &part {
                Expr::Column(column) => Ok(match place_in(schema, column) {
                    Some(at) => Transformed::yes(exprs[at].clone().unalias()),
                    None => Transformed::no(part),
                }),
                _ => Ok(Transformed::no(part)),
            });
            of_input.data()
        });
        let below = below.collect::<Result<_>>()?;
        self.add(input, below)?;
        let mut columns = columns_of(&self.kept);
        columns.extend(self.matched.clone().map(Expr::Column));
        columns.extend(named_as_in(exprs, schema, 0));
        self.plan = project(self.plan.clone(), columns)?;
        self.flag(above)
    }

    fn add_inner_join(&mut self, join: &Join, mut conditions: Vec<Expr>) -> Result<()> {
        conditions.extend(self.conditions_of(join)?);
        let (first, second) = match self.depends(&join.left)? {
            true => (&join.left, &join.right),
            false => (&join.right, &join.left),
        };
        let of_second = second.schema();
        let (early, late) = parted(conditions, |condition| {
            let mut columns = condition.column_refs().into_iter();
            Ok(!has_subquery(condition)?
                && !columns.any(|column| place_in(of_second, column).is_some()))
        })?;
        let kept = self.kept.len();
        self.add(first, early)?;
        self.kept.extend(first.schema().columns());
        self.add(second, late)?;
        self.kept.truncate(kept);
        Ok(())
    }

    fn add_left_join(&mut self, join: &Join, conditions: Vec<Expr>) -> Result<()> {
        let mut on = self.conditions_of(join)?;
        if on
            .iter()
            .map(has_subquery)
            .collect::<Result<Vec<_>>>()?
            .contains(&true)
        {
            return rejected("a subquery in the ON of an outer join");
        }
        self.add(&join.left, vec![])?;
        on.extend(self.matched.clone().map(Expr::Column));
        self.left_join(join.right.as_ref().clone(), on)?;
        self.flag(conditions)
    }

    fn conditions_of(&self, join: &Join) -> Result<Vec<Expr>> {
        let mut found = Vec::new();
        for (left, right) in &join.on {
            let left = with_columns(left.clone(), join.left.schema(), &self.renamed)?;
            let right = with_columns(right.clone(), join.right.schema(), &self.renamed)?;
            found.push(match join.null_equality {
                NullEquality::NullEqualsNothing => left.eq(right),
                NullEquality::NullEqualsNull => {
                    binary_expr(left, Operator::IsNotDistinctFrom, right)
                }
            });
        }
        let parts = join.filter.clone().map(split_conjunction_owned);
        let schema = join.left.schema().join(join.right.schema())?;
        found.extend(self.all_inside(&parts.unwrap_or_default(), &schema)?);
        Ok(found)
    }

    fn add_aggregate(&mut self, it: &Aggregate, conditions: Vec<Expr>) -> Result<()> {
        self.expect_rows_outside_alone()?;
        if it
            .group_expr
            .iter()
            .any(|group| matches!(group, Expr::GroupingSet(_)))
        {
            return rejected("GROUP BY WITH ROLLUP");
        }
        self.add(&it.input, vec![])?;
        let schema = it.input.schema();
        let groups = self.all_inside(&it.group_expr, schema)?;
        let groups = named_as_in(groups, &it.schema, 0);
        let totals = self.all_inside(&it.aggr_expr, schema)?;
        let totals = match &self.matched {
            Some(matched) => totals
                .into_iter()
                .map(|total| of_matched(total, matched))
                .collect::<Result<_>>()?,
            None => totals,
        };
        let totals = named_as_in(totals, &it.schema, it.group_expr.len());
        let is_total = it.group_expr.is_empty();
        let mut by = columns_of(&self.kept);
        if is_total {
            // There is a row, whether there are rows or none.
            self.matched = None;
        }
        by.extend(self.matched.clone().map(Expr::Column));
        by.extend(groups);
        self.plan = aggregate(self.plan.clone(), by, totals.collect())?;
        self.flag(conditions)
    }

    fn add_distinct(&mut self, input: &LogicalPlan, conditions: Vec<Expr>) -> Result<()> {
        self.expect_rows_outside_alone()?;
        self.add(input, conditions)?;
        let by = columns_of(&self.plan.schema().columns());
        self.plan = aggregate(self.plan.clone(), by, vec![])?;
        Ok(())
    }

    /// What is done for each row outside knows that by its columns.
    fn expect_rows_outside_alone(&self) -> Result<()> {
        match self.kept.len() == self.of_row {
            true => Ok(()),
            false => rejected("an aggregate, a window or a LIMIT within a join"),
        }
    }

    fn add_limit(&mut self, limit: &Limit, conditions: Vec<Expr>) -> Result<()> {
        let below = |input: &Arc<LogicalPlan>| {
            Arc::new(LogicalPlan::Limit(Limit {
                input: Arc::clone(input),
                ..limit.clone()
            }))
        };
        // A projection leaves the number of rows and their order.
        let (input, order): (&LogicalPlan, &[SortExpr]) = match limit.input.as_ref() {
            LogicalPlan::Projection(it) => {
                let it = Projection::try_new(it.expr.clone(), below(&it.input))?;
                return self.add_unlimited(&LogicalPlan::Projection(it), conditions);
            }
            LogicalPlan::SubqueryAlias(it) => {
                let it = SubqueryAlias::try_new(below(&it.input), it.alias.clone())?;
                return self.add_unlimited(&LogicalPlan::SubqueryAlias(it), conditions);
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (&sort.input, &sort.expr),
            input => (input, &[]),
        };
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return rejected("a LIMIT that is no constant");
        };
        self.expect_rows_outside_alone()?;
        self.add(input, vec![])?;
        let order = order.iter().map(|key| {
            let expr = with_columns(key.expr.clone(), input.schema(), &self.renamed)?;
            Ok(SortExpr {
                expr,
                ..key.clone()
            })
        });
        let order = order.collect::<Result<Vec<_>>>()?;
        let number = self.column("__number");
        let counted = row_number()
            .partition_by(self.of_each_row())
            .order_by(order)
            .build()?;
        let mut columns = columns_of(&self.plan.schema().columns());
        let width = columns.len();
        let plan = LogicalPlanBuilder::from(self.plan.clone())
            .window([counted])?
            .build()?;
        columns.push(named(
            Expr::Column(Column::from(plan.schema().qualified_field(width))),
            &number,
        ));
        self.plan = project(plan, columns)?;
        let number = Expr::Column(number);
        let mut within = vec![number.clone().gt(lit(skip as u64))];
        within.extend(fetch.map(|fetch| number.lt_eq(lit(skip.saturating_add(fetch) as u64))));
        self.flag(within)?;
        self.flag(conditions)
    }

    /// Adds columns of rows of which only some are taken: which these are no condition above has a say in.
    fn add_unlimited(&mut self, columns: &LogicalPlan, conditions: Vec<Expr>) -> Result<()> {
        self.add(columns, vec![])?;
        self.flag(conditions)
    }

    fn of_each_row(&self) -> Vec<Expr> {
        let mut columns = columns_of(&self.kept);
        columns.extend(self.matched.clone().map(Expr::Column));
        columns
    }

    fn add_windows(&mut self, window: &Window, conditions: Vec<Expr>) -> Result<()> {
        self.expect_rows_outside_alone()?;
        self.add(&window.input, vec![])?;
        let exprs = self.all_inside(&window.window_expr, window.input.schema())?;
        let exprs = exprs.into_iter().map(|expr| {
            expr.transform_up(|part| match part {
                Expr::WindowFunction(mut function) => {
                    function.params.partition_by.extend(self.of_each_row());
                    Ok(Transformed::yes(Expr::WindowFunction(function)))
                }
                part => Ok(Transformed::no(part)),
            })
            .data()
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        let width = window.input.schema().fields().len();
        let exprs = named_as_in(exprs, &window.schema, width);
        let computed = Window::try_new(exprs.collect(), Arc::new(self.plan.clone()))?;
        self.plan = LogicalPlan::Window(computed);
        self.flag(conditions)
    }
}

fn rejected<T>(what: &str) -> Result<T> {
    not_impl_err!(
        "a subquery that names columns of the query around it within {what} is not supported: join the tables, and group by a key of the rows outside"
    )
}

/// Entries for which something is so, and the others.
fn parted(
    exprs: Vec<Expr>,
    is_so: impl Fn(&Expr) -> Result<bool>,
) -> Result<(Vec<Expr>, Vec<Expr>)> {
    let (mut so, mut others) = (Vec::new(), Vec::new());
    for expr in exprs {
        match is_so(&expr)? {
            true => so.push(expr),
            false => others.push(expr),
        }
    }
    Ok((so, others))
}

/// Where a column is in a schema, which has it under the same name.
fn place_in(schema: &DFSchema, column: &Column) -> Option<usize> {
    let mut fields = schema.iter();
    fields.position(|(table, field)| {
        table == column.relation.as_ref() && *field.name() == column.name
    })
}

fn columns_of(columns: &[Column]) -> Vec<Expr> {
    columns.iter().cloned().map(Expr::Column).collect()
}

/// An expression under the name of a column.
fn named(expr: Expr, column: &Column) -> Expr {
    match &expr {
        Expr::Column(own) if own == column => expr,
        _ => expr
            .unalias()
            .alias_qualified(column.relation.clone(), &column.name),
    }
}

/// Expressions under the names that a schema's columns have, from the one of a number on.
fn named_as_in(exprs: Vec<Expr>, schema: &DFSchema, first: usize) -> impl Iterator<Item = Expr> {
    let exprs = exprs.into_iter().enumerate();
    exprs.map(move |(at, expr)| named(expr, &Column::from(schema.qualified_field(first + at))))
}

fn project(input: LogicalPlan, exprs: Vec<Expr>) -> Result<LogicalPlan> {
    let projection = Projection::try_new(exprs, Arc::new(input))?;
    Ok(LogicalPlan::Projection(projection))
}

fn aggregate(input: LogicalPlan, by: Vec<Expr>, of: Vec<Expr>) -> Result<LogicalPlan> {
    let aggregate = Aggregate::try_new(Arc::new(input), by, of)?;
    Ok(LogicalPlan::Aggregate(aggregate))
}

/// An aggregate of the rows that are matched.
fn of_matched(total: Expr, matched: &Column) -> Result<Expr> {
    let matched = Expr::Column(matched.clone());
    match total.unalias() {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let is_literal =
                |arg: &Expr| matches!(arg, Expr::Literal(value, _) if !value.is_null());
            let counts_rows = func == count_udaf()
                && !params.distinct
                && params.filter.is_none()
                && params.args.iter().all(is_literal);
            if counts_rows {
                params.args = vec![matched];
            } else {
                params.filter = Some(Box::new(match params.filter {
                    Some(filter) => matched.and(*filter),
                    None => matched,
                }));
            }
            Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
        }
        _ => rejected("such an aggregate"),
    }
}
