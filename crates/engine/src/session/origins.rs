//! What the columns of a result are: the unit, the UCD and the xtype of the table's column that a column of a result is.

use std::collections::HashMap;

use datafusion::common::Column;
use datafusion::datasource::{TableProvider, source_as_provider};
use datafusion::logical_expr::{Distinct, Expr, GroupingSet, JoinType, LogicalPlan};
use ingest::FieldDescription;

use crate::files::FileTable;
use crate::provider::ArchiveTable;
use crate::tap_schema::unit_and_ucd;

/// The words in the metadata of a field of a result.
pub const UNIT: &str = "unit";
/// What a column is physically, in words of UCD1+.
pub const UCD: &str = "ucd";
/// How the values of a column are to be read (DALI 1.1).
pub const XTYPE: &str = "xtype";

/// The metadata of the columns of a plan's result: of those that are columns of a table, whatever they are called, which says what these are.
pub(super) fn metadata(plan: &LogicalPlan) -> Vec<HashMap<String, String>> {
    let columns = 0..plan.schema().fields().len();
    columns
        .map(|at| origin(plan, at).map(words).unwrap_or_default())
        .collect()
}

fn words(described: FieldDescription) -> HashMap<String, String> {
    let FieldDescription { unit, ucd, xtype } = described;
    let words = [(UNIT, unit), (UCD, ucd), (XTYPE, xtype)];
    let known = words.into_iter().filter(|(_, word)| !word.is_empty());
    known.map(|(name, word)| (name.to_owned(), word)).collect()
}

/// What a column of a plan's result is, if it is a column of a table.
fn origin(plan: &LogicalPlan, at: usize) -> Option<FieldDescription> {
    match plan {
        LogicalPlan::Projection(node) => of_expression(node.expr.get(at)?, &node.input),
        LogicalPlan::SubqueryAlias(node) => origin(&node.input, at),
        LogicalPlan::Filter(node) => origin(&node.input, at),
        LogicalPlan::Sort(node) => origin(&node.input, at),
        LogicalPlan::Limit(node) => origin(&node.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => origin(input, at),
        LogicalPlan::Aggregate(node) => match node.group_expr.first() {
            Some(Expr::GroupingSet(
                GroupingSet::Rollup(_) | GroupingSet::Cube(_) | GroupingSet::GroupingSets(_),
            )) => None,
            _ => of_expression(node.group_expr.get(at)?, &node.input),
        },
        LogicalPlan::Window(node) => match at < node.input.schema().fields().len() {
            true => origin(&node.input, at),
            false => None,
        },
        LogicalPlan::Join(node) => {
            let left = node.left.schema().fields().len();
            match node.join_type {
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    origin(&node.right, at)
                }
                _ if at < left => origin(&node.left, at),
                JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => None,
                _ => origin(&node.right, at - left),
            }
        }
        LogicalPlan::TableScan(node) => {
            let name = node.projected_schema.fields().get(at)?.name();
            described(source_as_provider(&node.source).ok()?.as_ref(), name)
        }
        _ => None,
    }
}

fn of_expression(expression: &Expr, input: &LogicalPlan) -> Option<FieldDescription> {
    match expression {
        Expr::Alias(alias) => of_expression(&alias.expr, input),
        Expr::Column(column) => origin(input, index_of(input, column)?),
        _ => None,
    }
}

fn index_of(plan: &LogicalPlan, column: &Column) -> Option<usize> {
    plan.schema().maybe_index_of_column(column)
}

/// What a column of a table is, by its folded name.
fn described(table: &dyn TableProvider, name: &str) -> Option<FieldDescription> {
    if let Some(table) = table.downcast_ref::<ArchiveTable>() {
        let (unit, ucd) = unit_and_ucd(table.table.spec(), name);
        return Some(FieldDescription {
            unit: unit.unwrap_or_default().to_owned(),
            ucd: ucd.unwrap_or_default().to_owned(),
            xtype: String::new(),
        });
    }
    table.downcast_ref::<FileTable>()?.described(name)
}
