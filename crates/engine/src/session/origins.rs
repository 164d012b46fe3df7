//! What the columns of a result are: the table's column that a column of a result is, with what is said of that one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use catalog::{ColumnMetadata, Table, View, fold_name};
use datafusion::common::Column;
use datafusion::datasource::{TableProvider, source_as_provider};
use datafusion::logical_expr::{Distinct, Expr, GroupingSet, JoinType, LogicalPlan};
use ingest::FieldDescription;
use sql::functions::{FRACTION_DIGITS, GeometryKind, MOC_TEXT, TIME, is_moc};

use super::views::marked;
use crate::archive::Views;
use crate::barrier::BarrierNode;
use crate::files::FileTable;
use crate::loaded_table::LoadedTable;
use crate::provider::ArchiveTable;
use crate::stored_rows::StoredRowsTable;
use crate::tap_schema;

/// The words in the metadata of a field of a result.
pub const UNIT: &str = "unit";
/// What a column is physically, in words of UCD1+.
pub const UCD: &str = "ucd";
/// How the values of a column are to be read (DALI 1.1).
pub const XTYPE: &str = "xtype";
/// The place of a column in a data model.
pub const UTYPE: &str = "utype";
/// What a column means, in words.
pub const DESCRIPTION: &str = "description";

/// The database of the table whose column it is, as declared.
pub const DATABASE: &str = "database";
/// That table, as declared.
pub const TABLE: &str = "table";
/// The name under which the statement reads the table: its alias or its own.
pub const ALIAS: &str = "alias";
/// The column's name in the table, as declared.
pub const COLUMN: &str = "column";

/// The metadata of the columns of a plan's result: of those that are columns of a table, whatever they are called, which says what these are.
pub(super) fn metadata(plan: &LogicalPlan, views: &Views) -> Vec<HashMap<String, String>> {
    let columns = 0..plan.schema().fields().len();
    columns
        .map(
            |at| match GeometryKind::of(plan.schema().field(at).data_type()) {
                Some(kind) => words_of_geometry(kind),
                None if is_map(plan, at) => [(XTYPE.to_owned(), "moc".to_owned())].into(),
                None if is_time(plan, at) => [(TIME.to_owned(), String::new())].into(),
                None => match fraction_digits(plan, at) {
                    Some(digits) => [(FRACTION_DIGITS.to_owned(), digits)].into(),
                    None => origin(plan, at, views).map(words).unwrap_or_default(),
                },
            },
        )
        .collect()
}

/// Whether a column has times of day, perhaps as their texts.
fn is_time(plan: &LogicalPlan, at: usize) -> bool {
    let field = plan.schema().field(at);
    matches!(field.data_type(), DataType::Duration(_)) || field.metadata().contains_key(TIME)
}

/// How many digits of a second a column of times has, if that is known.
fn fraction_digits(plan: &LogicalPlan, at: usize) -> Option<String> {
    plan.schema()
        .field(at)
        .metadata()
        .get(FRACTION_DIGITS)
        .cloned()
}

/// Whether a column has coverage maps, perhaps as their texts.
fn is_map(plan: &LogicalPlan, at: usize) -> bool {
    fn is_text(expression: &Expr) -> bool {
        match expression {
            Expr::Alias(alias) => is_text(&alias.expr),
            Expr::ScalarFunction(function) => function.name() == MOC_TEXT,
            _ => false,
        }
    }
    let is_made = match plan {
        LogicalPlan::Projection(node) => node.expr.get(at).is_some_and(is_text),
        LogicalPlan::Sort(node) => is_map(&node.input, at),
        _ => false,
    };
    is_made || is_moc(plan.schema().field(at).data_type())
}

fn words_of_geometry(kind: GeometryKind) -> HashMap<String, String> {
    let words = [(XTYPE, kind.xtype()), (UNIT, "deg")];
    words
        .map(|(name, word)| (name.to_owned(), word.to_owned()))
        .into()
}

fn words(origin: Origin) -> HashMap<String, String> {
    let FieldDescription {
        unit,
        ucd,
        xtype,
        utype,
        description,
    } = origin.described;
    let digits = origin.fraction_digits.map(|digits| digits.to_string());
    let words = [
        (UNIT, unit),
        (UCD, ucd),
        (XTYPE, xtype),
        (UTYPE, utype),
        (DESCRIPTION, description),
        (DATABASE, origin.database),
        (TABLE, origin.table),
        (ALIAS, origin.alias),
        (COLUMN, origin.column),
        (FRACTION_DIGITS, digits.unwrap_or_default()),
    ];
    let known = words.into_iter().filter(|(_, word)| !word.is_empty());
    known.map(|(name, word)| (name.to_owned(), word)).collect()
}

/// The unit of a column that a table gives, if it is known.
pub(super) fn unit(scan: &LogicalPlan, at: usize) -> Option<String> {
    let unit = origin(scan, at, &Views::new())?.described.unit;
    (!unit.is_empty()).then_some(unit)
}

/// A column of a table or a view; what is not known is empty.
#[derive(Default)]
pub(crate) struct Origin {
    pub described: FieldDescription,
    database: String,
    table: String,
    alias: String,
    column: String,
    /// Whether it is one of the first to look at, if that is known.
    pub principal: Option<bool>,
    /// The digits of a second with which a column of times is declared.
    fraction_digits: Option<u8>,
    /// The table that it is read from, through whatever views, and its folded name there.
    pub stored: Option<(Arc<LoadedTable>, String)>,
}

impl Origin {
    /// The same where a statement gives the table a name.
    fn named(self, alias: &str) -> Self {
        let is_its_own = fold_name(&self.table) == alias;
        let alias = match is_its_own {
            true => self.table.clone(),
            false => alias.to_owned(),
        };
        Self { alias, ..self }
    }

    /// The same as a column of a view, from which nobody learns what the view is made of. What is said of the view's column comes first.
    fn of_view(self, view: &View, at: usize) -> Self {
        let column = view.query.columns.get(at).cloned().unwrap_or_default();
        let (mut described, mut principal) = (self.described, self.principal);
        if let Some(said) = view.metadata.column(&column) {
            principal = said.principal.or(principal);
            let words = [
                (&mut described.unit, &said.unit),
                (&mut described.ucd, &said.ucd),
                (&mut described.xtype, &said.xtype),
                (&mut described.utype, &said.utype),
                (&mut described.description, &said.description),
            ];
            for (word, said) in words {
                if let Some(said) = said {
                    word.clone_from(said);
                }
            }
        }
        Self {
            described,
            database: view.database.clone(),
            table: view.name.clone(),
            alias: view.name.clone(),
            column,
            principal,
            fraction_digits: self.fraction_digits,
            stored: self.stored,
        }
    }
}

/// What a column of a plan's result is, if it is a column of a table.
pub(super) fn origin(plan: &LogicalPlan, at: usize, views: &Views) -> Option<Origin> {
    match plan {
        LogicalPlan::Projection(node) => of_expression(node.expr.get(at)?, &node.input, views),
        LogicalPlan::SubqueryAlias(node) => match marked(&node.alias) {
            Some(names) => {
                let inner = origin(&node.input, at, views).unwrap_or_default();
                Some(inner.of_view(views.get(&names)?, at))
            }
            None => Some(origin(&node.input, at, views)?.named(node.alias.table())),
        },
        LogicalPlan::Filter(node) => origin(&node.input, at, views),
        LogicalPlan::Extension(_) => origin(BarrierNode::of(plan)?.input(), at, views),
        LogicalPlan::Sort(node) => origin(&node.input, at, views),
        LogicalPlan::Limit(node) => origin(&node.input, at, views),
        LogicalPlan::Distinct(Distinct::All(input)) => origin(input, at, views),
        LogicalPlan::Aggregate(node) => match node.group_expr.first() {
            Some(Expr::GroupingSet(
                GroupingSet::Rollup(_) | GroupingSet::Cube(_) | GroupingSet::GroupingSets(_),
            )) => None,
            _ => of_expression(node.group_expr.get(at)?, &node.input, views),
        },
        LogicalPlan::Window(node) => match at < node.input.schema().fields().len() {
            true => origin(&node.input, at, views),
            false => None,
        },
        LogicalPlan::Join(node) => {
            let left = node.left.schema().fields().len();
            match node.join_type {
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                    origin(&node.right, at, views)
                }
                _ if at < left => origin(&node.left, at, views),
                JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => None,
                _ => origin(&node.right, at - left, views),
            }
        }
        LogicalPlan::TableScan(node) => {
            let name = node.projected_schema.fields().get(at)?.name();
            let provider = source_as_provider(&node.source).ok()?;
            Some(described(provider.as_ref(), name)?.named(node.table_name.table()))
        }
        _ => None,
    }
}

fn of_expression(expression: &Expr, input: &LogicalPlan, views: &Views) -> Option<Origin> {
    match expression {
        Expr::Alias(alias) => of_expression(&alias.expr, input, views),
        Expr::Column(column) => origin(input, index_of(input, column)?, views),
        _ => None,
    }
}

fn index_of(plan: &LogicalPlan, column: &Column) -> Option<usize> {
    plan.schema().maybe_index_of_column(column)
}

/// What a column of a table is, by its folded name.
fn described(table: &dyn TableProvider, name: &str) -> Option<Origin> {
    if let Some(result) = table.downcast_ref::<StoredRowsTable>() {
        return result.schema().field_with_name(name).ok().map(of_stored);
    }
    let Some(table) = table.downcast_ref::<ArchiveTable>() else {
        let file = table.downcast_ref::<FileTable>()?;
        return Some(Origin {
            described: file.described(name)?,
            ..Origin::default()
        });
    };
    let stored = Some((Arc::clone(&table.table), name.to_owned()));
    let table = &table.table.table;
    let columns = &mut table.spec.columns.iter();
    let column = columns.find(|column| fold_name(&column.name) == name);
    let said = tap_schema::described(table, name);
    Some(Origin {
        principal: said.principal,
        described: words_of(said),
        database: table.database.name.clone(),
        table: table.spec.name.clone(),
        alias: String::new(),
        fraction_digits: column.and_then(declared_digits),
        column: column.map_or(name, |column| &column.name).to_owned(),
        stored,
    })
}

/// What a column of a stored result is: as when the result was stored.
fn of_stored(field: &Field) -> Origin {
    let said = |word: &str| field.metadata().get(word).cloned().unwrap_or_default();
    Origin {
        described: FieldDescription {
            unit: said(UNIT),
            ucd: said(UCD),
            xtype: said(XTYPE),
            utype: said(UTYPE),
            description: said(DESCRIPTION),
        },
        database: said(DATABASE),
        table: said(TABLE),
        alias: String::new(),
        principal: None,
        fraction_digits: said(FRACTION_DIGITS).parse().ok(),
        column: said(COLUMN),
        stored: None,
    }
}

/// The digits of a second that the declaration of a column of times has: none if it does not say, as in MySQL.
fn declared_digits(column: &catalog::Column) -> Option<u8> {
    let declared = column
        .declared
        .as_deref()?
        .trim_start()
        .to_ascii_lowercase();
    let rest = { ["datetime", "timestamp"].iter() }.find_map(|word| declared.strip_prefix(word))?;
    match rest.trim_start().strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.0.trim().parse().ok(),
        None => Some(0),
    }
}

fn words_of(said: ColumnMetadata) -> FieldDescription {
    FieldDescription {
        unit: said.unit.unwrap_or_default(),
        ucd: said.ucd.unwrap_or_default(),
        xtype: said.xtype.unwrap_or_default(),
        utype: said.utype.unwrap_or_default(),
        description: said.description.unwrap_or_default(),
    }
}

/// The same as the metadata of a field of a result.
pub(crate) fn column_metadata(table: &Table, column: &str) -> HashMap<String, String> {
    words(Origin {
        described: words_of(tap_schema::described(table, column)),
        ..Origin::default()
    })
}
