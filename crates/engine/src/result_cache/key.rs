//! By what a result is known.

use std::fmt::Write;
use std::sync::Arc;

use catalog::LoadId;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use sql::Dialect;
use xxhash_rust::xxh3::xxh3_128;

use crate::provider::ArchiveTable;

/// What decides a result. Texts and parts are compared, the plan as it is shown by its digest: it tells apart what the text does not say, such as
/// the types of columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResultKey {
    dialect: Dialect,
    /// The folded name of the default database.
    database: String,
    /// The statement as it was read: names folded, without comments, with the limit that its connection sets.
    statement: String,
    tables: Vec<TableState>,
    plan: u128,
}

/// A table at a moment: the loads that published its parts, which have numbers that no other load has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TableState {
    database: String,
    table: String,
    parts: Vec<LoadId>,
}

impl ResultKey {
    /// The key of a statement's result; `None` if its tables cannot be told.
    pub(crate) fn of(
        (dialect, database, statement): (Dialect, &str, &str),
        logical: &LogicalPlan,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Option<Self> {
        Some(Self {
            dialect,
            database: database.to_owned(),
            statement: statement.to_owned(),
            tables: tables(logical).ok()?,
            plan: digest_of_plans(logical, plan),
        })
    }

    pub(super) fn statement(&self) -> &str {
        &self.statement
    }

    pub(super) fn num_bytes(&self) -> u64 {
        let of_table = |table: &TableState| {
            table.database.len() + table.table.len() + size_of_val(table.parts.as_slice())
        };
        let tables: usize = self.tables.iter().map(of_table).sum();
        (self.database.len() + self.statement.len() + tables) as u64
    }
}

/// A digest of a statement's plans as they are shown, with the columns that they give: the first has the definitions of views in it, with the
/// types of their constants. The encoded plan would tell more apart, plans of one statement included: filters that are filled while a plan
/// runs have numbers of their own.
fn digest_of_plans(logical: &LogicalPlan, plan: &Arc<dyn ExecutionPlan>) -> u128 {
    let mut text = displayable(plan.as_ref()).indent(true).to_string();
    // A text takes whatever is written.
    let _ = writeln!(text, "{}", logical.display_indent_schema());
    for field in plan.schema().fields() {
        let (name, data_type, nullable) = (field.name(), field.data_type(), field.is_nullable());
        // A text takes whatever is written.
        let _ = writeln!(text, "{name} {data_type} {nullable}");
    }
    xxh3_128(text.as_bytes())
}

/// The tables of a plan in the order in which it names them.
fn tables(logical: &LogicalPlan) -> Result<Vec<TableState>> {
    let mut tables = Vec::new();
    logical.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(it) = provider.downcast_ref::<ArchiveTable>()
        {
            let stored = &it.table.stored;
            tables.push(TableState {
                database: stored.database.clone(),
                table: stored.name.clone(),
                parts: stored.parts.iter().map(|part| part.load).collect(),
            });
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables)
}
