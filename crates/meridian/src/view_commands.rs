//! `meridian view`: makes, lists and drops views.

use std::path::PathBuf;

use catalog::Catalog;
use clap::{Args, Subcommand};
use engine::{Archive, NewView};

use crate::aligned::aligned;
use crate::console::tell;
use crate::failure::Failure;

/// What to do with views.
#[derive(Subcommand)]
pub enum ViewCommand {
    /// Make a view of a query.
    ///
    /// Its columns are settled now: what a table gets later is not shown by SELECT *. Whoever may read the view need not be able to read the
    /// tables that it is made of.
    Create(CreateArguments),
    /// List the views, and what they are made of.
    List(ListArguments),
    /// Drop a view. Its tables stay.
    Drop(DropArguments),
}

/// Where a view is.
#[derive(Args)]
pub struct ViewName {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database of the view, and of the tables that its query names without one.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// The view.
    #[arg(long, value_name = "NAME")]
    name: String,
}

/// What a view is made of.
#[derive(Args)]
pub struct CreateArguments {
    #[command(flatten)]
    view: ViewName,
    /// Take the place of the view of this name, if there is one.
    #[arg(long)]
    replace: bool,
    /// The names of its columns, in the order of the query's; by default what the query calls them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// What the view has, in words.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// The query, in MySQL's dialect.
    #[arg(value_name = "SQL")]
    query: String,
}

/// Of which data directory.
#[derive(Args)]
pub struct ListArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
}

/// Which view.
#[derive(Args)]
pub struct DropArguments {
    #[command(flatten)]
    view: ViewName,
}

/// Does it and tells what has changed.
pub fn run(command: ViewCommand) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    match command {
        ViewCommand::Create(arguments) => {
            let made = runtime.block_on(create(arguments))?;
            tell(&format!("the view {made} is made\n"))
                .map_err(|lost| lost.when_reporting("the view is made"))
        }
        ViewCommand::List(arguments) => tell(&runtime.block_on(list(arguments))?),
        ViewCommand::Drop(arguments) => {
            let ViewName { data, db, name } = arguments.view;
            runtime.block_on(async {
                let archive = Archive::open(&data).await?;
                let dropped = engine::drop_view(&archive, &db, &name).await;
                archive.catalog().close().await;
                dropped
            })?;
            tell(&format!("the view {db}.{name} is dropped\n"))
                .map_err(|lost| lost.when_reporting("the view is dropped"))
        }
    }
}

async fn create(arguments: CreateArguments) -> Result<String, Failure> {
    let ViewName { data, db, name } = arguments.view;
    let archive = Archive::open(&data).await?;
    let new = NewView {
        default_database: Some(db.clone()),
        database: db,
        name,
        definition: arguments.query,
        columns: arguments.columns,
        description: arguments.description,
        replace: arguments.replace,
    };
    let made = engine::create_view(&archive, new).await;
    archive.catalog().close().await;
    Ok(made?)
}

async fn list(arguments: ListArguments) -> Result<String, Failure> {
    let catalog = Catalog::open(&arguments.data).await?;
    let views = catalog.views().await;
    catalog.close().await;
    let views = views?;
    if views.is_empty() {
        return Ok("There are no views here.\n".to_owned());
    }
    let headings = ["database", "view", "columns", "made", "query"].map(str::to_owned);
    let rows = views.into_iter().map(|view| {
        let words: Vec<&str> = view.query.definition.split_whitespace().collect();
        vec![
            view.database,
            view.name,
            view.query.columns.len().to_string(),
            view.created_at,
            words.join(" "),
        ]
    });
    let rows: Vec<Vec<String>> = [headings.to_vec()].into_iter().chain(rows).collect();
    Ok(aligned(&rows, |column| column == 2))
}
