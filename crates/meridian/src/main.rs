//! The command line of Meridian: one binary, one subcommand a file, each of them thin.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use heap::CountingAllocator;
use mimalloc::MiMalloc;

mod alert_archive;
mod alert_commands;
mod alert_reseed;
mod alert_sort;
mod aligned;
mod backup_commands;
mod catalog_commands;
mod check;
mod cluster_add;
mod cluster_commands;
mod cluster_credentials;
mod cluster_demo;
mod cluster_init;
mod cluster_load;
mod cluster_progress;
mod cluster_repair;
mod cluster_revoke;
mod cluster_scrub;
mod compact;
mod console;
mod describe;
mod drop;
mod executor;
mod export;
mod failure;
mod home_commands;
mod load;
mod load_progress;
mod output;
mod parent;
mod prompt;
mod query_commands;
mod regions;
mod registry_record;
mod release_command;
mod repartition;
mod serve;
mod server_client;
mod shell_files;
mod sky_commands;
mod sql;
mod statements;
mod synthesize_commands;
mod synthesize_load;
mod synthesize_progress;
mod tables;
mod temporary;
mod upload;
mod user_commands;
mod view_commands;
mod worker;

/// What it gives is counted, for the bound on what statements may take.
#[global_allocator]
static ALLOCATOR: CountingAllocator<MiMalloc> = heap::counting();

/// A massively parallel SQL database for astronomical catalogues.
#[derive(Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sql(sql::SqlArgs),
    Serve(serve::ServeArguments),
    /// Load files into a table.
    Load(Box<load::LoadArguments>),
    /// Export a whole table: as a HATS catalogue for LSDB, or as a file.
    ///
    /// A HATS catalogue is a directory of Parquet files, each with the rows of a cell of the sky. It is made of a director, or of a child,
    /// whose rows have the positions of their director's rows where they have none of their own. The directory gets its name when
    /// all of it is written.
    Export(export::ExportArguments),
    /// Verify that everything that is loaded is whole.
    Check(check::CheckArguments),
    /// Cut the sky of a database anew, with all its partitioned tables.
    ///
    /// Every partitioned table is written again, from its own files, with other stripes, sub-stripes or another overlap.
    /// Queries see the old tables until all of the new ones are complete, and then these, never a mixture; a run that is
    /// stopped or killed leaves the old ones. The disk needs room for both meanwhile.
    Repartition(repartition::RepartitionArguments),
    /// Take a backup: of a moment, whatever is loaded or dropped meanwhile.
    ///
    /// Files of tables never change: a backup into a place that has earlier ones copies what is new. It has the tables, the users and
    /// the alert databases that are kept in files here; neither results of queries nor alert databases in PostgreSQL.
    Backup(backup_commands::BackupArguments),
    /// Restore a backup into a new data directory, and check it.
    Restore(backup_commands::RestoreArguments),
    /// Give chunk files a home in an object store, with a cache of them here.
    ///
    /// Files of tables never change. Once an object has a file, and was verified, the copy here may go; what is not here is read from the
    /// store, block by block. Indexes, overlap files and the catalog stay. The credentials, the region and the endpoint are those of AWS's
    /// tools (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL), whenever files are read there.
    #[command(subcommand)]
    Home(home_commands::HomeCommand),
    /// Choose which database keeps the catalog of a data directory: SQLite, or PostgreSQL for several front ends.
    #[command(subcommand)]
    Catalog(catalog_commands::CatalogCommand),
    /// Merge small parts of tables, beside queries and loads.
    ///
    /// Each append adds a part, and queries open the files of all of them. Parts that follow each other are merged where none is
    /// larger than the others together, so that large parts are left alone until enough has come, and a table has two dozen parts
    /// at most. Tables that an alert database publishes get one part for each month that is over. The rows, their order and their places stay what they are; a part that was merged can no longer be dropped alone.
    /// Queries see the old parts until a merge is complete; a run that is stopped or killed leaves the merges that were complete.
    Compact(compact::CompactArguments),
    /// Drop a table, a database, or one part of a table.
    ///
    /// It is done in one step: queries that run meanwhile finish with what they began with, and the files go when nobody reads
    /// them any more.
    #[command(subcommand)]
    Drop(drop::DropCommand),
    /// Print what databases, tables and columns mean, or change it by a file.
    ///
    /// Descriptions, units, UCDs, utypes and xtypes are kept beside the rows and shown by every protocol: in TAP_SCHEMA, in VOTables, and
    /// as comments to MySQL's clients. They come from the files that are loaded, from a schema in Felis's language, or from what this
    /// command prints, edited. A change is made in one step, and a running server shows it at once; no row and no result changes.
    Describe(describe::DescribeArguments),
    /// Print the record by which the Virtual Observatory's registry knows the service of a data directory.
    ///
    /// It is a VOResource: who runs the service, what it can do, and its tables. docs/tap.md says how it gets into the registry.
    RegistryRecord(Box<registry_record::RegistryRecordArguments>),
    /// List what is loaded.
    Tables(tables::TablesArguments),
    /// Make, list and drop views: queries that are read under a name, as tables are.
    #[command(subcommand)]
    View(view_commands::ViewCommand),
    /// Release some rows of a table to whoever may read it, and the others to whom that is granted.
    Release(release_command::ReleaseArguments),
    /// List, submit, follow and cancel the queries of a running server, and download their results.
    ///
    /// These commands speak HTTP with `meridian serve`. A submitted query runs without a connection, its result is kept for some days,
    /// and a server that ends or is killed goes on with it when it runs again.
    #[command(subcommand)]
    Query(query_commands::QueryCommand),
    /// Upload a file to a server, as a table of one's own or as more rows of one.
    ///
    /// The table is visible with all its rows, or not at all.
    Upload(upload::UploadArguments),
    /// Manage the users of a data directory: who may log in to a server of it, and what they may read.
    ///
    /// While there are none, nobody has to log in. Servers that run see a change with the next statement.
    #[command(subcommand)]
    User(user_commands::UserCommand),
    /// Manage nightly alert databases, into which pipelines store what they find in each exposure.
    #[command(subcommand)]
    Alerts(alert_commands::AlertsCommand),
    /// Run a worker of a cluster, which holds replicas of chunk files and runs pieces of queries.
    ///
    /// It joins the cluster of a server that was started with `meridian serve --cluster`, gets the files that it shall hold, and runs until
    /// Ctrl-C or SIGTERM ends it. What it was running then runs elsewhere.
    Worker(worker::WorkerArguments),
    /// Watch and change the cluster of a running server: its workers, their state, and how far the files are from having their replicas.
    #[command(subcommand)]
    Cluster(cluster_commands::ClusterCommand),
    /// Compute on the sphere: the chunk of a position, the chunks of a region, trixels.
    #[command(subcommand)]
    Sky(sky_commands::SkyCommand),
    /// Make catalogues of any size.
    #[command(subcommand)]
    Synthesize(synthesize_commands::SynthesizeCommand),
    /// Print what a shell needs to complete commands and options.
    ///
    /// For bash: meridian completion bash > ~/.local/share/bash-completion/completions/meridian. For zsh: meridian completion zsh >
    /// a directory of $fpath/_meridian. For fish: meridian completion fish > ~/.config/fish/completions/meridian.fish.
    Completion(shell_files::CompletionArguments),
    /// Print a manual page, or write those of all commands.
    ///
    /// To read one: meridian man load | man -l -. To install them: meridian man --output ~/.local/share/man/man1.
    Man(shell_files::ManArguments),
}

/// An argument that is no option although it begins as one: a statement with a comment before it (`-- ...`).
fn statement_or_option(argument: OsString) -> OsString {
    let after = argument.to_str().and_then(|text| text.strip_prefix("--"));
    if !after.is_some_and(|text| text.starts_with(char::is_whitespace)) {
        return argument;
    }
    let mut statement = OsString::from(" ");
    statement.push(argument);
    statement
}

fn main() -> ExitCode {
    heap::give_back_by(heap::give_back);
    engine::allow_more_open_files();
    let command = Cli::parse_from(std::env::args_os().map(statement_or_option)).command;
    // What reads a file once leaves the cache to what reads it again.
    let is_of_queries = matches!(command, Command::Sql(_) | Command::Serve(_));
    backup::home::read_from_stores(is_of_queries);
    let outcome = match command {
        Command::Sql(args) => sql::run(args),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Load(arguments) => load::run(*arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Repartition(arguments) => repartition::run(arguments),
        Command::Backup(arguments) => backup_commands::back_up(&arguments),
        Command::Restore(arguments) => backup_commands::restore(&arguments),
        Command::Home(command) => home_commands::run(&command),
        Command::Catalog(command) => catalog_commands::run(&command),
        Command::Compact(arguments) => compact::run(arguments),
        Command::Drop(command) => drop::run(command),
        Command::Describe(arguments) => describe::run(arguments),
        Command::RegistryRecord(arguments) => registry_record::run(*arguments),
        Command::Tables(arguments) => tables::run(arguments),
        Command::Query(command) => query_commands::run(command),
        Command::View(command) => view_commands::run(command),
        Command::Release(arguments) => release_command::run(arguments),
        Command::Upload(arguments) => upload::run(arguments),
        Command::User(command) => user_commands::run(command),
        Command::Alerts(command) => alert_commands::run(command),
        Command::Worker(arguments) => worker::run(arguments),
        Command::Cluster(command) => cluster_commands::run(command),
        Command::Sky(command) => sky_commands::run(command),
        Command::Synthesize(command) => synthesize_commands::run(command),
        Command::Completion(arguments) => shell_files::print_completion(Cli::command(), &arguments),
        Command::Man(arguments) => shell_files::print_man(Cli::command(), &arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
