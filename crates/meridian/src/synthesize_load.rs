//! Catalogues that are made, straight into a database: each table by a load of its own, its chunks made while they are
//! loaded.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use catalog::{Catalog, TableKind};
use ingest::{LoadRequest, MadeBatches, RowSource};
use synthesize::{Catalogue, Role, Table};

use crate::failure::Failure;
use crate::load::{load_with_progress, tell_report};

/// Where to load, and how.
pub struct DatabaseOptions {
    pub data: PathBuf,
    pub database: String,
    /// The places of the chunks in the catalogue's list.
    pub chunks: Vec<usize>,
    /// How a new database is cut.
    pub stripes: u32,
    pub sub_stripes: u32,
    pub replace: bool,
    pub memory: Option<u64>,
    pub threads: Option<usize>,
    pub quiet: bool,
}

/// The rows of one table, a part a chunk.
struct TableRows {
    catalogue: Arc<dyn Catalogue>,
    table: usize,
    chunks: Vec<usize>,
}

impl TableRows {
    fn table(&self) -> &Table {
        &self.catalogue.tables()[self.table]
    }
}

impl fmt::Debug for TableRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} chunks", self.table().name, self.chunks.len())
    }
}

impl RowSource for TableRows {
    fn schema(&self) -> SchemaRef {
        self.table().schema.clone()
    }

    fn parts(&self) -> usize {
        self.chunks.len()
    }

    fn part_name(&self, part: usize) -> String {
        let chunk = self.catalogue.chunks()[self.chunks[part]];
        format!("{} of chunk {chunk}", self.table().name)
    }

    fn part_rows(&self, part: usize) -> u64 {
        self.catalogue.rows(self.table, self.chunks[part])
    }

    fn make_part(&self, part: usize) -> MadeBatches {
        let batches = self
            .catalogue
            .clone()
            .batches(self.table, self.chunks[part]);
        Box::new(batches.map(|batch| batch.map_err(|error| error.to_string())))
    }
}

/// Loads every table of the catalogue, the director first, and prints the reports.
pub fn load_tables(catalogue: Arc<dyn Catalogue>, options: DatabaseOptions) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let exists = runtime.block_on(async {
        let catalog = Catalog::open_or_create(&options.data).await?;
        let first = &catalogue.tables()[0].name;
        // What no other table depends on is cut anew.
        let exists = (catalog.tables(&options.database).await?.iter()).any(|table| {
            table.spec.kind != TableKind::Replicated && !table.spec.name.eq_ignore_ascii_case(first)
        });
        catalog.close().await;
        Ok::<_, Failure>(exists)
    })?;
    let mut told = Ok(());
    for table in 0..catalogue.tables().len() {
        let rows = TableRows {
            catalogue: catalogue.clone(),
            table,
            chunks: options.chunks.clone(),
        };
        let first = table == 0;
        let mut request = request(rows, &options);
        if first && !exists {
            request.stripes = Some(options.stripes);
            request.sub_stripes = Some(options.sub_stripes);
        }
        let report = runtime.block_on(load_with_progress(request, options.quiet))?;
        // A report that cannot be written is no reason not to load the other tables.
        told = told.and(tell_report(&report));
    }
    told
}

fn request(rows: TableRows, options: &DatabaseOptions) -> LoadRequest {
    let table = rows.table();
    let mut request = LoadRequest::new(&options.data, &options.database, &table.name);
    let position = match &table.role {
        Role::Director { key, position } => {
            request.key = vec![key.clone()];
            Some(position.clone())
        }
        Role::Child {
            director,
            key,
            own_key,
            order,
            position,
        } => {
            request.directors = vec![director.clone()];
            request.key = vec![key.clone()];
            request.own_key = own_key.clone();
            request.order = order.clone();
            position.clone()
        }
    };
    if let Some([ra, dec]) = position {
        (request.ra, request.dec) = (Some(ra), Some(dec));
    }
    request.replace = options.replace;
    // How many rows there are was said when the catalogue was described.
    request.allow_empty = true;
    request.memory = options.memory;
    request.threads = options.threads;
    request.made = Some(Arc::new(rows));
    request
}
