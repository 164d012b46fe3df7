//! `meridian catalog`: which database keeps the catalog of a data directory.

use std::path::PathBuf;

use backup::home::Home;
use catalog::{COPIED_FILE, Catalog, PostgresAddress, catalog_place};
use clap::{Args, Subcommand};
use tokio::runtime::Runtime;

use crate::console::tell;
use crate::failure::Failure;

/// The word for SQLite where a database is named.
const SQLITE: &str = "sqlite";

/// What to do.
#[derive(Subcommand)]
pub enum CatalogCommand {
    /// Make a new data directory whose catalog is in PostgreSQL, so that several front ends can serve it.
    ///
    /// The directory gets a file that names the database, and every command finds the catalog by it. Without this command the first load
    /// makes a catalog in SQLite.
    Init(InitArguments),
    /// Take the catalog of a data directory to another database: from SQLite into PostgreSQL, or back.
    ///
    /// Nobody may have the data directory open meanwhile. The copy is compared with the original and with its checksums before it
    /// counts; a run that is killed leaves the original.
    Copy(CopyArguments),
    /// Tell where the catalog of a data directory is.
    Show(ShowArguments),
}

/// A new data directory.
#[derive(Args)]
pub struct InitArguments {
    /// The data directory, which is made if it is not there.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database, as in postgres://user@host/database, without a password.
    #[arg(long, value_name = "URL", env = "MERIDIAN_CATALOG")]
    catalog: String,
    #[command(flatten)]
    place: SchemaArguments,
}

/// Where in a database.
#[derive(Args)]
pub struct SchemaArguments {
    /// The schema that is made for the catalog: one for each data directory.
    #[arg(long, value_name = "NAME", default_value = catalog::DEFAULT_SCHEMA)]
    schema: String,
    /// Read the password from this file, now and whenever the data directory is opened. Without it, PGPASSWORD and ~/.pgpass are looked at.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// Whose catalog, and where to.
#[derive(Args)]
pub struct CopyArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database, as in postgres://user@host/database, without a password; or `sqlite`.
    #[arg(long, value_name = "URL")]
    to: String,
    #[command(flatten)]
    place: SchemaArguments,
}

/// Whose catalog.
#[derive(Args)]
pub struct ShowArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
}

impl SchemaArguments {
    fn at(&self, url: &str) -> Result<PostgresAddress, Failure> {
        let file = self.password_file.as_deref();
        Ok(PostgresAddress::new(url, Some(&self.schema), file)?)
    }
}

/// Does it.
pub fn run(command: &CatalogCommand) -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    match command {
        CatalogCommand::Init(arguments) => runtime.block_on(init(arguments)),
        CatalogCommand::Copy(arguments) => runtime.block_on(copy(arguments)),
        CatalogCommand::Show(arguments) => tell(&format!("{}\n", catalog_place(&arguments.data)?)),
    }
}

async fn init(arguments: &InitArguments) -> Result<(), Failure> {
    let InitArguments {
        data,
        catalog,
        place,
    } = arguments;
    let address = place.at(catalog)?;
    Catalog::create_in_postgres(data, &address).await?;
    tell(&format!(
        "the catalog of {} is at {address}\nload tables with: meridian load --data {}\n",
        data.display(),
        data.display()
    ))
    .map_err(|lost| lost.when_reporting("the catalog is made"))
}

async fn copy(arguments: &CopyArguments) -> Result<(), Failure> {
    let CopyArguments { data, to, place } = arguments;
    let before = catalog_place(data)?;
    if let Some(home) = Home::read(data)?.filter(|_| to != SQLITE) {
        return Err(Failure::new(format!(
            "the chunk files of {} have their home at {}, which is not for data directories with their catalog in PostgreSQL: bring the \
             files back first with `meridian home unset --data {}`",
            data.display(),
            home.url,
            data.display()
        )));
    }
    let (rows, left) = match to.as_str() {
        SQLITE => {
            // Nobody reads the file while the catalog is where it is.
            queries::copy_to_file(data).await?;
            (
                catalog::copy_to_sqlite(data).await?,
                format!("{before} is as it was: drop the schema when you need it no more"),
            )
        }
        url => (
            catalog::copy_to_postgres(data, &place.at(url)?).await?,
            format!("the file is {COPIED_FILE} now: remove it when you need it no more"),
        ),
    };
    tell(&format!(
        "the catalog is at {} ({rows} rows, compared with the original)\n{left}\n",
        catalog_place(data)?
    ))
    .map_err(|lost| lost.when_reporting("the catalog is copied"))
}
