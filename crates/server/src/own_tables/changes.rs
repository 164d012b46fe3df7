//! Changes of the rows and columns of tables of users' own: UPDATE, DELETE, TRUNCATE and ALTER TABLE.
//!
//! Files never change: the statement becomes a query whose rows are the table as it is to be, and these replace the table in one
//! transaction. If somebody else has changed the table meanwhile, nothing is replaced, and the statement starts anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use catalog::{Column, ColumnType, LoadId, TableSpec, fold_name};
use sql::ErrorCode;
use sql::mysql::{ColumnAssignment, ColumnChange, TablePartition, TargetTable};

use super::updates::{Update, row_condition, stored};
use super::{
    ATTEMPTS, Change, Filling, InsertGroups, OwnTable, ROWS, RowSource, TableStatements,
    WrittenRows, declared_column, names_of, of_load, quoted,
};
use crate::ClientError;

/// What becomes of a table.
#[derive(Debug, Clone)]
pub(super) enum TableChange {
    /// Rows get other values.
    Update {
        /// The statement, for what is said of mistakes.
        statement: String,
        alias: Option<String>,
        assigned: Vec<ColumnAssignment>,
        condition: Option<String>,
        /// Whether rows count that have the values already.
        counts_matched: bool,
    },
    /// Rows go.
    Delete {
        /// The statement, for what is said of mistakes.
        statement: String,
        alias: Option<String>,
        condition: Option<String>,
    },
    /// All of them go, and nobody counts them.
    Truncate,
    /// Columns come, go and get other names.
    Alter(Vec<ColumnChange>),
    /// The rows go elsewhere.
    Partition(TablePartition),
}

/// A table as it is to be.
#[derive(Debug)]
struct NewTable {
    /// The rows; behind the table's columns those that say whether a row matches and whether it changes, if there are such.
    query: String,
    columns: Vec<Column>,
    /// Of each column the name that it had before, if it was there.
    before: Vec<Option<String>>,
    marks: bool,
}

/// A table as it is.
struct State {
    spec: TableSpec,
    parts: Vec<LoadId>,
    rows: u64,
    bytes: u64,
}

/// A change of a table that is there.
#[derive(Debug)]
struct TableRewrite {
    table: OwnTable,
    change: TableChange,
    /// What the query runs with.
    template: Change,
}

/// Changes of one table follow each other: each reads what the one before has left. (Other servers of the data directory, and inserts, make
/// a change start anew.)
#[derive(Debug, Default)]
pub(crate) struct TableTurns {
    tables: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// INSERTs that are stored together.
    pub(crate) groups: Arc<InsertGroups>,
}

impl TableTurns {
    pub(crate) fn of(&self, table: &str) -> Arc<tokio::sync::Mutex<()>> {
        // A panic in another thread leaves the map consistent, because every change is a single operation.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = tables.get(table).and_then(Weak::upgrade) {
            return turn;
        }
        tables.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        tables.insert(table.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

impl TableStatements {
    /// Changes the rows or columns of a table. Returns the number of rows that are concerned.
    pub(super) async fn rewrite(
        &self,
        table: TargetTable,
        change: TableChange,
    ) -> Result<u64, ClientError> {
        let table = self.table(table)?;
        let turn = self.shared.table_turns.of(&fold_name(&table.shown()));
        let _turn = turn.lock().await;
        for _ in 0..ATTEMPTS {
            let rewriting = TableRewrite {
                template: self.filling(table.clone(), RowSource::NONE, Filling::New(None)),
                table: table.clone(),
                change: change.clone(),
            };
            // One computation has one query.
            let mut computed = self.shared.query_runtime.compute(rewriting.run());
            if let Some(rows) = computed.recv_one().await? {
                return Ok(rows);
            }
        }
        Err(table.is_busy())
    }
}

impl TableRewrite {
    /// Executes the change. Returns the number of rows that it concerns; `None` if others have changed the table meanwhile.
    async fn run(self) -> Result<Option<u64>, ClientError> {
        let State {
            spec,
            parts,
            rows,
            bytes,
        } = self.state().await?;
        if let TableChange::Update { statement, .. } | TableChange::Delete { statement, .. } =
            &self.change
        {
            let from = self.table.quoted();
            let checking = self.template.check_expressions(statement, &from, &spec);
            Box::pin(checking).await?;
        }
        let layout = self.template.layout_anew(&self.table, &spec).await?;
        let new = self.change.new_table(&spec, &self.table)?;
        let layout = match &self.change {
            TableChange::Partition(partition) => {
                self.template.layout_of(&new.columns, partition).await?
            }
            _ => layout.renamed(&names_of(&new.columns), |name| new.name_now(name)),
        };
        if let TableChange::Alter(_) = self.change {
            let is_new = |column: &&Column| spec.column(&column.name).is_none();
            let added: Vec<Column> = new.columns.iter().filter(is_new).cloned().collect();
            self.template.check_defaults(&added).await?;
        }
        let (directory, written) = self
            .template
            .written(&new.query, &new.columns, new.marks)
            .await?;
        // What was read is what is replaced.
        if self.state().await?.parts != parts {
            return Ok(None);
        }
        let concerned = self.change.concerned(&written, rows);
        let changes = match self.change {
            TableChange::Update { .. } => written.changed > 0,
            TableChange::Delete { .. } => concerned > 0,
            TableChange::Truncate | TableChange::Alter(_) | TableChange::Partition(_) => true,
        };
        if !changes {
            return Ok(Some(concerned));
        }
        if let TableChange::Update { .. } | TableChange::Alter(_) = self.change {
            let path = directory.path().join(ROWS);
            self.template.check_room_for(&path, bytes).await?;
        }
        self.table.check_still_own().await?;
        let filling = Filling::Instead {
            columns: new.columns,
            made_of: parts,
        };
        match self.template.load(directory.path(), filling, layout).await {
            Ok(_) => Ok(Some(concerned)),
            Err(error) if error.is_change() => Ok(None),
            Err(error) => Err(of_load(error)),
        }
    }

    async fn state(&self) -> Result<State, ClientError> {
        let found = self.table.find().await?;
        let table = &found.table;
        Ok(State {
            parts: table.parts.iter().map(|part| part.load).collect(),
            spec: table.spec.clone(),
            rows: table.rows(),
            bytes: table.bytes(),
        })
    }
}

impl TableChange {
    /// How many rows the change concerns.
    fn concerned(&self, written: &WrittenRows, before: u64) -> u64 {
        match self {
            Self::Update {
                counts_matched: true,
                ..
            } => written.matched,
            Self::Update { .. } => written.changed,
            Self::Delete { .. } => before.saturating_sub(written.rows),
            Self::Truncate | Self::Alter(_) | Self::Partition(_) => 0,
        }
    }

    fn new_table(&self, spec: &TableSpec, table: &OwnTable) -> Result<NewTable, ClientError> {
        let from = table.quoted();
        let names: Vec<String> = spec.columns.iter().map(|it| quoted(&it.name)).collect();
        let same = |query: String, marks| NewTable {
            query,
            columns: spec.columns.clone(),
            before: { spec.columns.iter() }
                .map(|it| Some(it.name.clone()))
                .collect(),
            marks,
        };
        match self {
            Self::Update {
                alias,
                assigned,
                condition,
                ..
            } => {
                let update = Update {
                    spec,
                    from,
                    alias: alias.as_deref(),
                    assigned,
                    condition: condition.as_deref(),
                };
                Ok(same(update.query()?, true))
            }
            Self::Delete {
                alias,
                condition: Some(condition),
                ..
            } => {
                let condition = row_condition(condition, spec, alias.as_deref())?;
                let alias = quoted(alias.as_deref().unwrap_or(&spec.name));
                let mark = quoted(&unused("#matched", spec));
                Ok(same(
                    format!(
                        "SELECT {} FROM (SELECT *, CASE WHEN ({condition}) THEN 1 ELSE 0 END AS {mark} FROM {from} AS {alias}) AS {alias} WHERE {mark} = 0",
                        names.join(", ")
                    ),
                    false,
                ))
            }
            Self::Delete {
                condition: None, ..
            }
            | Self::Truncate => Ok(same(
                format!("SELECT {} FROM {from} WHERE 1 = 0", names.join(", ")),
                false,
            )),
            Self::Alter(changes) => altered(spec, &from, changes),
            Self::Partition(_) => Ok(same(
                format!("SELECT {} FROM {from}", names.join(", ")),
                false,
            )),
        }
    }
}

impl NewTable {
    /// The name of a column that was there; `None` if it is gone.
    fn name_now(&self, before: &str) -> Option<String> {
        let is = |it: &Option<String>| it.as_deref().map(fold_name) == Some(fold_name(before));
        let at = self.before.iter().position(is)?;
        Some(self.columns[at].name.clone())
    }
}

/// A column of a table that is altered: as it is to be, the expression of its values, and the name that it had.
type ChangedColumn = (Column, String, Option<String>);

/// The query of an ALTER TABLE, and the columns that there are then.
fn altered(
    spec: &TableSpec,
    from: &str,
    changes: &[ColumnChange],
) -> Result<NewTable, ClientError> {
    let mut columns: Vec<ChangedColumn> = { spec.columns.iter() }
        .map(|column| {
            (
                column.clone(),
                quoted(&column.name),
                Some(column.name.clone()),
            )
        })
        .collect();
    let find = |columns: &[ChangedColumn], name: &str| {
        { columns.iter() }.position(|(it, ..)| fold_name(&it.name) == fold_name(name))
    };
    for change in changes {
        match change {
            ColumnChange::Add(column) => {
                if find(&columns, &column.name).is_some() {
                    return Err(there_is_one(spec, &column.name));
                }
                let declared = declared_column(column)?;
                let value = stored(&value_of_old_rows(&declared), "1", &declared);
                columns.push((declared, value, None));
            }
            ColumnChange::Drop(name) => match find(&columns, name) {
                Some(at) => drop(columns.remove(at)),
                None => {
                    let sentence = format!("{} has no column {name} to be dropped", spec.name);
                    return Err(ClientError::new(ErrorCode::NO_COLUMN_TO_DROP, sentence));
                }
            },
            ColumnChange::Rename { from, to } => {
                let at = find(&columns, from).ok_or_else(|| no_column(spec, from))?;
                if find(&columns, to).is_some_and(|other| other != at) {
                    return Err(there_is_one(spec, to));
                }
                columns[at].0.name.clone_from(to);
            }
        }
    }
    if columns.is_empty() {
        let sentence = "a table has at least one column: DROP TABLE removes it";
        return Err(ClientError::new(ErrorCode::NO_COLUMNS_LEFT, sentence));
    }
    let selected = columns.iter();
    let selected =
        selected.map(|(column, value, _)| format!("{value} AS {}", quoted(&column.name)));
    let selected: Vec<String> = selected.collect();
    Ok(NewTable {
        query: format!("SELECT {} FROM {from}", selected.join(", ")),
        before: columns.iter().map(|(.., before)| before.clone()).collect(),
        columns: columns.into_iter().map(|(column, ..)| column).collect(),
        marks: false,
    })
}

/// The expression whose value a new column has in the rows that there are: its default, or without one what MySQL takes for it.
fn value_of_old_rows(column: &Column) -> String {
    match (column.default_expression(), column.ty) {
        (Some(default), _) => default.to_owned(),
        (None, _) if column.nullable => "NULL".to_owned(),
        (None, ColumnType::Text | ColumnType::Binary) => "''".to_owned(),
        // The date of zeros, which there is not.
        (None, ColumnType::Date | ColumnType::Timestamp) => "NULL".to_owned(),
        (None, _) => "0".to_owned(),
    }
}

pub(super) fn no_column(spec: &TableSpec, name: &str) -> ClientError {
    let sentence = format!("{} has no column {name}", spec.name);
    ClientError::new(ErrorCode::NO_COLUMN, sentence)
}

fn there_is_one(spec: &TableSpec, name: &str) -> ClientError {
    let sentence = format!("{} has a column {name} already", spec.name);
    ClientError::new(ErrorCode::COLUMN_TWICE, sentence)
}

/// A name that no column has.
pub(super) fn unused(name: &str, spec: &TableSpec) -> String {
    let mut name = name.to_owned();
    while spec.columns.iter().any(|it| fold_name(&it.name) == name) {
        name.push('_');
    }
    name
}
