//! `meridian alerts`: the nightly alert databases of a data directory.

use std::fs::read_to_string;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alerts::{
    AlertDatabase, AlertSchema, AlertTable, AlertsError, EditionTable, Extent, Follows, StoreKind,
};
use catalog::{Catalog, fold_name};
use clap::{Args, Subcommand};
use engine::Archive;
use server::{PublicationError, PublicationStatus};
use tokio::runtime::Runtime;

use crate::alert_archive::{self, ArchiveArguments};
use crate::alert_reseed::{self, ReseedArguments};
use crate::alert_sort::{self, SortArguments};
use crate::console::tell;
use crate::failure::Failure;
use crate::regions::{self, RegionArguments, RegionsArguments};

/// What to do.
#[derive(Subcommand)]
pub enum AlertsCommand {
    /// Make an alert database, which `meridian serve` then serves below /alerts/NAME.
    Create(CreateArguments),
    /// List the alert databases, and what is published of them.
    List(ListArguments),
    /// Publish what is closed of an alert database, so that users see it.
    ///
    /// A server does so by itself, within a minute; this is for data directories that none serves.
    Publish(PublishArguments),
    /// Make an alert database that follows another one, of the field's own kind, so that users read here what pipelines store there.
    ///
    /// That one has to keep replica chunks. It is only read. A server of the data directory follows it by itself.
    Attach(AttachArguments),
    /// Read what is new in the database that an attached one follows.
    ///
    /// A server does so by itself, within ten minutes; this is for data directories that none serves.
    Follow(FollowArguments),
    /// End that an alert database follows another one. What was read stays; nothing can be stored into it.
    Detach(PublishArguments),
    /// Write what is published of an alert database into Parquet files with a manifest, for bulk download.
    Archive(ArchiveArguments),
    /// Write the positions of objects and chosen columns into files by chunks of the sky, which pipelines read without a server.
    ///
    /// It takes any table whose rows have positions. The readers are `meridian alerts region`, meridian_apdb.region_files for Python and
    /// the crate region-files for Rust; docs/region-files.md describes the format.
    Regions(RegionsArguments),
    /// Read the rows of a region in the files that `meridian alerts regions` has written.
    Region(RegionArguments),
    /// Put a release in the place of everything that is published from before its cut, beside a server that stores.
    ///
    /// Users and pipelines see it as a whole from one moment to the next. What was published from before the cut is removed: archive it first.
    Reseed(ReseedArguments),
    /// Make one part of the parts of each month that is over, in each published table of an alert database.
    ///
    /// Its rows are sorted within each chunk by sub-chunk and object, so that a light curve or a cone reads one run of rows of the month, and
    /// are not written anew any more. A server does so by itself, beside queries and stores; queries see the old parts until the new one is
    /// complete, and no answer changes.
    Sort(SortArguments),
}

/// A new alert database.
#[derive(Args)]
pub struct CreateArguments {
    /// The name: ASCII letters, digits and underscores. A user of the same name may store into it.
    name: String,
    /// The data directory, which is made if it is not there.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The schema, in Felis's language (YAML), with the tables DiaObject, DiaSource and DiaForcedSource.
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// Keep replica chunks, by which copies of the database follow it.
    #[arg(long)]
    replica: bool,
    /// Seconds of a replica chunk.
    #[arg(long, value_name = "N", default_value = "600", requires = "replica")]
    replica_seconds: NonZeroU32,
    /// Nights for which rows that are published stay in the store; later they are read from the archive, which has them alone.
    #[arg(long, value_name = "N", default_value = "30", requires = "replica")]
    keep_nights: u32,
    #[command(flatten)]
    store: StoreArguments,
}

/// Where the rows of a new alert database are kept.
#[derive(Args)]
pub struct StoreArguments {
    /// Keep the rows in this PostgreSQL database instead of a file: postgres://USER:PASSWORD@HOST:PORT/DATABASE.
    #[arg(
        long,
        value_name = "URL",
        env = "MERIDIAN_ALERTS_POSTGRES",
        hide_env_values = true
    )]
    postgres: Option<String>,
}

/// A new alert database that follows another one.
#[derive(Args)]
pub struct AttachArguments {
    /// The name: ASCII letters, digits and underscores.
    name: String,
    /// The data directory, which is made if it is not there.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database to follow: sqlite:///PATH or postgres://USER@HOST:PORT/DATABASE. A password is better given by the environment
    /// variable, which has the whole URL, or in the file ~/.pgpass of whoever runs the server.
    #[arg(
        long,
        value_name = "URL",
        env = "MERIDIAN_ALERTS_FROM",
        hide_env_values = true
    )]
    from: String,
    /// The schema of the PostgreSQL database to follow in which its tables are.
    #[arg(long, value_name = "NAME")]
    schema_name: Option<String>,
    /// The schema, in Felis's language (YAML), with the tables DiaObject, DiaSource and DiaForcedSource.
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// Seconds of a replica chunk of the database to follow.
    #[arg(long, value_name = "N", default_value = "600")]
    replica_seconds: NonZeroU32,
    #[command(flatten)]
    store: StoreArguments,
}

/// Which alert database, and what to read.
#[derive(Args)]
pub struct FollowArguments {
    /// The name.
    name: String,
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// Read all rows, whatever was read before.
    #[arg(long)]
    all: bool,
}

/// Which data directory.
#[derive(Args)]
pub struct ListArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
}

/// Which alert database.
#[derive(Args)]
pub struct PublishArguments {
    /// The name.
    name: String,
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
}

/// Does it.
pub fn run(command: AlertsCommand) -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    match command {
        AlertsCommand::Create(arguments) => runtime.block_on(create(arguments)),
        AlertsCommand::List(arguments) => runtime.block_on(list(arguments)),
        AlertsCommand::Publish(arguments) => runtime.block_on(publish(arguments)),
        AlertsCommand::Attach(arguments) => runtime.block_on(attach(arguments)),
        AlertsCommand::Follow(arguments) => runtime.block_on(follow(arguments)),
        AlertsCommand::Detach(arguments) => detach(&arguments),
        AlertsCommand::Reseed(arguments) => {
            let outcome = runtime.block_on(alert_reseed::run(arguments));
            runtime.shutdown_background();
            outcome
        }
        AlertsCommand::Archive(arguments) => {
            let outcome = runtime.block_on(alert_archive::run(arguments));
            // Without waiting for what other threads still compute of a cancelled query.
            runtime.shutdown_background();
            outcome
        }
        AlertsCommand::Regions(arguments) => {
            let outcome = runtime.block_on(regions::write(arguments));
            runtime.shutdown_background();
            outcome
        }
        AlertsCommand::Sort(arguments) => runtime.block_on(alert_sort::run(arguments)),
        AlertsCommand::Region(arguments) => regions::read(&arguments),
    }
}

fn read_schema(path: &Path) -> Result<AlertSchema, Failure> {
    let text = read_to_string(path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    AlertSchema::parse(&text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

fn store_kind(postgres: Option<String>) -> StoreKind {
    match postgres {
        Some(url) => StoreKind::Postgres { url },
        None => StoreKind::Sqlite,
    }
}

async fn attach(arguments: AttachArguments) -> Result<(), Failure> {
    let schema = read_schema(&arguments.schema)?;
    let follows = Follows {
        url: arguments.from,
        schema: arguments.schema_name,
    };
    let shown = follows.shown();
    let differences = alerts::check_followed(&follows, &schema).await?;
    Catalog::open_or_create(&arguments.data).await?;
    alerts::create(
        &arguments.data,
        &arguments.name,
        &store_kind(arguments.store.postgres),
        &schema,
        Some(i64::from(arguments.replica_seconds.get())),
        None,
        Some(follows),
    )
    .await?;
    for difference in differences {
        tell(&format!("{difference}\n"))?;
    }
    tell(&format!(
        "the alert database {} is made, and follows {shown}\nserve it with: meridian serve --data {}\n",
        arguments.name,
        arguments.data.display()
    ))
}

async fn follow(arguments: FollowArguments) -> Result<(), Failure> {
    let name = &arguments.name;
    let database = AlertDatabase::open(&arguments.data, name).await?;
    let extent = match arguments.all {
        true => Extent::All,
        false => Extent::New,
    };
    let read = match database.follow(extent).await {
        Err(AlertsError::InUse { .. }) => {
            return Err(Failure::new(format!(
                "a server follows for {name}, within ten minutes; POST /alerts/{name}/follow has it do so at once, and with ?all=true read all rows anew"
            )));
        }
        outcome => outcome?,
    };
    tell(&format!(
        "{} new rows, of {} replica chunks that are new or have changed\n",
        read.rows, read.chunks
    ))
}

fn detach(arguments: &PublishArguments) -> Result<(), Failure> {
    let name = &arguments.name;
    let follows = alerts::detach(&arguments.data, name)?;
    tell(&format!(
        "the alert database {name} does not follow {} any more; what was read of it stays\n",
        follows.shown()
    ))
}

async fn create(arguments: CreateArguments) -> Result<(), Failure> {
    let schema = read_schema(&arguments.schema)?;
    Catalog::open_or_create(&arguments.data).await?;
    let kind = store_kind(arguments.store.postgres);
    let seconds = arguments
        .replica
        .then(|| i64::from(arguments.replica_seconds.get()));
    let nights = arguments.replica.then_some(arguments.keep_nights);
    alerts::create(
        &arguments.data,
        &arguments.name,
        &kind,
        &schema,
        seconds,
        nights,
        None,
    )
    .await?;
    let columns = AlertTable::ALL
        .map(|table| format!("{} {}", table.name(), schema.table(table).columns.len()));
    tell(&format!(
        "the alert database {} is made, with schema {} (columns: {}), in {}\nserve it with: meridian serve --data {}\n",
        arguments.name,
        schema.version(),
        columns.join(", "),
        kind.name(),
        arguments.data.display()
    ))
}

/// Sees that nothing is dropped that an alert database has nowhere else.
///
/// # Errors
/// It is one of its published tables, or the database of them.
pub async fn check_may_drop(
    data: &Path,
    database: &str,
    table: Option<&str>,
) -> Result<(), Failure> {
    let is_published = |table: &str| {
        { EditionTable::ALL.iter().map(|it| it.name()) }
            .chain([server::RELEASES])
            .any(|name| fold_name(name) == fold_name(table))
    };
    let names = alerts::list(data)?;
    let named = names
        .iter()
        .find(|name| fold_name(name) == fold_name(database));
    let Some(name) = named.filter(|_| table.is_none_or(is_published)) else {
        return Ok(());
    };
    match AlertDatabase::open(data, name).await?.emptied().await? {
        None => Ok(()),
        Some(emptied) => Err(Failure::new(format!(
            "the alert database {name} has the rows of its editions through {} here alone: nothing of them can be dropped or replaced",
            emptied.edition
        ))),
    }
}

async fn list(arguments: ListArguments) -> Result<(), Failure> {
    let catalog = Catalog::open(&arguments.data).await?;
    let names = alerts::list(&arguments.data)?;
    if names.is_empty() {
        return tell("there are no alert databases: `meridian alerts create` makes one\n");
    }
    for name in names {
        let database = AlertDatabase::open(&arguments.data, &name).await?;
        let replica = database.replica_seconds().map_or_else(
            || "no replica chunks".to_owned(),
            |seconds| format!("replica chunks of {seconds} s"),
        );
        tell(&format!(
            "{name}  {}  schema {}  {replica}{}\n",
            database.kind().name(),
            database.schema().version(),
            published(&catalog, &database).await?
        ))?;
        if database.is_follower() {
            tell(&following(&database).await?)?;
        }
    }
    Ok(())
}

/// What a database follows, and how that goes, in lines.
async fn following(database: &AlertDatabase) -> Result<String, Failure> {
    let Some(follows) = database.follows()? else {
        return Ok("    detached: it follows no database any more\n".to_owned());
    };
    let chunks = database.followed_chunks().await?;
    let last = match chunks.keys().max() {
        None => "no replica chunk is read".to_owned(),
        Some(last) => format!("{} replica chunks are read, up to {last}", chunks.len()),
    };
    let mut lines = vec![format!("follows {}; {last}", follows.shown())];
    let status = database.follow_status().unwrap_or_default();
    if let Some(error) = status.error {
        lines.push(format!("it does not work: {error}"));
    }
    lines.extend(status.differences);
    let lines: Vec<String> = lines.iter().map(|line| format!("    {line}\n")).collect();
    Ok(lines.concat())
}

/// What is published of a database and what waits, in words.
async fn published(catalog: &Catalog, database: &AlertDatabase) -> Result<String, Failure> {
    if database.replica_seconds().is_none() {
        return Ok(String::new());
    }
    let status = PublicationStatus::of(catalog, database).await?;
    let published = match status.published {
        0 => "nothing is published".to_owned(),
        last => format!("published up to edition {last}"),
    };
    Ok(format!(
        "  {published}, waiting: {} closed editions, {} closed and {} open replica chunks",
        status.waiting,
        status.over,
        status.open - status.over
    ))
}

async fn publish(arguments: PublishArguments) -> Result<(), Failure> {
    let archive = Archive::open(&arguments.data).await?;
    let database = Arc::new(AlertDatabase::open(&arguments.data, &arguments.name).await?);
    let editions = match server::publish(&archive, &database).await {
        Ok(editions) => editions,
        Err(PublicationError::Alerts(AlertsError::InUse { .. })) => {
            return Err(Failure::new(format!(
                "a server stores into {0}, and publishes it by itself within a minute; POST /alerts/{0}/publish has it do so at once",
                arguments.name
            )));
        }
        Err(error) => return Err(error.into()),
    };
    if editions.is_empty() {
        tell(
            "nothing is to be published: no replica chunk is over that is not published already\n",
        )?;
    }
    for edition in editions {
        tell(&format!(
            "edition {}: {} rows of the replica chunks {}\n",
            edition.number, edition.rows, edition.chunks
        ))?;
    }
    match server::empty_store(archive.catalog(), &database).await {
        // A server that stores into it does that as well.
        Ok(()) | Err(PublicationError::Alerts(AlertsError::InUse { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
