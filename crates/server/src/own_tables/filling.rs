//! How tables get their rows: made of a query, of a stored result or with columns, and INSERT.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::Field;
use catalog::Column;
use ingest::{IngestError, SmallAppends};
use sql::Interrupt;
use sql::mysql::TablePartition;

use super::groups::{MOST_ROWS, StoreOutcome};
use super::layout::TypedColumn;
use super::rows::{write_no_rows, write_stored};
use super::{
    ATTEMPTS, Change, Filling, Layout, ROWS, RowSource, names_of, of_file, of_load, quoted,
};
use crate::ClientError;

impl Change {
    /// Fills the table. Returns the number of rows.
    pub(crate) async fn run(self) -> Result<u64, ClientError> {
        let change = Arc::new(self);
        match &change.filling {
            Filling::More(given) => Box::pin(change.insert(given)).await,
            _ => Box::pin(change.make()).await,
        }
    }

    /// Makes a table. Returns the number of its rows.
    async fn make(&self) -> Result<u64, ClientError> {
        let directory = tempfile::tempdir().map_err(of_file)?;
        let path = directory.path().join(ROWS);
        let mut filling = self.filling.clone();
        let layouts = match (&self.filling, &self.rows) {
            (Filling::Declared(columns, partition), RowSource::Query(query)) => {
                let partition = partition.as_ref();
                let (columns, layouts) =
                    Box::pin(self.write_with_columns(query, &path, columns, partition)).await?;
                filling = Filling::Declared(columns, None);
                layouts
            }
            (Filling::Declared(columns, partition), _) => {
                self.check_defaults(columns).await?;
                write_no_rows(&path, columns)?;
                vec![self.layout_declared(columns, partition.as_ref()).await?]
            }
            (Filling::New(partition), RowSource::Query(query)) => {
                let fields = self.write(query, &path, None, false).await?.0;
                self.layouts(&fields, partition.as_ref()).await?
            }
            (Filling::New(partition), RowSource::Stored(rows)) => {
                let fields = write_stored(rows, &path).await?;
                self.layouts(&fields, partition.as_ref()).await?
            }
            // Of rows alone a table is made.
            (_, _) => vec![],
        };
        self.check_room_for(&path, 0).await?;
        self.table.check_still_own().await?;
        let last = layouts.len().saturating_sub(1);
        for (at, layout) in layouts.into_iter().enumerate() {
            let filling = filling.clone();
            match self.load(directory.path(), filling, layout).await {
                // The rows cannot be spread so: nothing has said that they can.
                Err(IngestError::TooManyRejected { .. } | IngestError::AllRejected { .. })
                    if at < last => {}
                loaded => {
                    let rows = loaded.map_err(of_load)?;
                    self.table.set_default_expiry().await;
                    return Ok(rows);
                }
            }
        }
        Err(of_load(IngestError::Internal))
    }

    /// Adds rows to a table. Returns their number.
    async fn insert(self: &Arc<Self>, given: &[String]) -> Result<u64, ClientError> {
        for _ in 0..ATTEMPTS {
            Box::pin(self.place_anew()).await?;
            let table = self.table.find().await?;
            let columns = &table.spec().columns;
            let insertion = self.insertion(columns, given).await?;
            if let RowSource::Values(rows) = &self.rows
                && rows.len() <= MOST_ROWS
                && SmallAppends::suits(&table.table)
            {
                let stored = self.stored_values(rows, &insertion).await?;
                self.table.check_still_own().await?;
                let groups = Arc::clone(&self.turns.groups);
                match groups
                    .store(Arc::clone(self), columns.clone(), stored)
                    .await?
                {
                    StoreOutcome::Done => return Ok(rows.len() as u64),
                    StoreOutcome::Changed => continue,
                    StoreOutcome::Rejected(error) => return Err(error),
                }
            }
            let directory = tempfile::tempdir().map_err(of_file)?;
            let path = directory.path().join(ROWS);
            match &self.rows {
                RowSource::Query(query) => self.write_inserted(query, &path, &insertion).await?,
                RowSource::Values(rows) => self.write_values(rows, &path, &insertion).await?,
                RowSource::File(file) => {
                    self.write_file(file, directory.path(), &insertion).await?;
                }
                // Of a stored result a table is made.
                RowSource::Stored(_) => break,
            }
            self.check_room_for(&path, 0).await?;
            self.table.check_still_own().await?;
            match self.append(directory.path(), columns).await {
                // One computation has one query.
                Err(error) if error.is_change() && !matches!(self.rows, RowSource::Query(_)) => {}
                Err(error) if error.is_change() => break,
                loaded => {
                    self.turns.groups.compact_if_needed(&self.table).await;
                    return loaded.map_err(of_load);
                }
            }
        }
        Err(self.table.is_busy())
    }

    /// Loads the rows of a file as one more part of a table, if it still has these columns. Returns their number.
    pub(super) async fn append(
        &self,
        directory: &Path,
        columns: &[Column],
    ) -> Result<u64, IngestError> {
        let filling = Filling::Appended(columns.to_vec());
        self.load(directory, filling, Layout::whole(&[])).await
    }

    /// The layout that a statement says of a table with these columns.
    pub(crate) async fn layout_of(
        &self,
        columns: &[Column],
        partition: &TablePartition,
    ) -> Result<Layout, ClientError> {
        self.layout_declared(columns, Some(partition)).await
    }

    /// The layouts that rows with these columns may have, the best first.
    async fn layouts(
        &self,
        fields: &[Field],
        partition: Option<&TablePartition>,
    ) -> Result<Vec<Layout>, ClientError> {
        match partition {
            Some(partition) => {
                let columns: Vec<TypedColumn> = fields.iter().map(TypedColumn::of_field).collect();
                Ok(vec![self.layout_said(partition, &columns).await?])
            }
            None => self.layouts_of_rows(fields).await,
        }
    }

    /// The layout of a table that has no rows.
    async fn layout_declared(
        &self,
        columns: &[Column],
        partition: Option<&TablePartition>,
    ) -> Result<Layout, ClientError> {
        match partition {
            Some(partition) => {
                let columns: Vec<TypedColumn> =
                    columns.iter().map(TypedColumn::of_column).collect();
                self.layout_said(partition, &columns).await
            }
            None => Ok(Layout::whole(&names_of(columns))),
        }
    }

    /// Places the rows of a table as its director places them now, if that is another than it was.
    async fn place_anew(&self) -> Result<(), ClientError> {
        for _ in 0..ATTEMPTS {
            let found = self.table.find().await?;
            let spec = found.spec();
            if !self.is_placed_by_another(&found.table).await? {
                return Ok(());
            }
            let layout = self.layout_anew(&self.table, spec).await?;
            let columns = spec.columns.clone();
            let selected: Vec<String> = columns.iter().map(|it| quoted(&it.name)).collect();
            let query = format!(
                "SELECT {} FROM {}",
                selected.join(", "),
                self.table.quoted()
            );
            // The end of a query ends what it belongs to: the statement goes on.
            let writing = Box::pin(self.written(&query, &columns, false));
            let (directory, _) = Interrupt::new().scope(writing).await?;
            let filling = Filling::Instead {
                columns,
                made_of: found.table.part_numbers(),
            };
            match self.load(directory.path(), filling, layout).await {
                Err(error) if !error.is_change() => return Err(of_load(error)),
                _ => {}
            }
        }
        Err(self.table.is_busy())
    }
}
