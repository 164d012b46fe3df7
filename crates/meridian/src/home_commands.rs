//! `meridian home`: chunk files whose home is an object store.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use backup::home::{self, CacheSize, Files, Home, HomeStatus, PushOptions, PushReport};
use clap::{Args, Subcommand, ValueEnum};
use ingest::{grouped, size};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::backup_commands::ProgressLine;
use crate::compact::{Rate, parse_rate};
use crate::console::{remark, tell};
use crate::failure::Failure;

/// The exit status of `push --no-wait` where another process copies already.
pub const BUSY: u8 = 3;

/// What to do.
#[derive(Subcommand)]
pub enum HomeCommand {
    /// Say where chunk files have their home, or change the size of the cache.
    ///
    /// Nothing is copied by this: `meridian home push` does it, and so does a server.
    Set(SetArguments),
    /// Tell where the chunk files are, and whether the store can be used.
    Status(StatusArguments),
    /// Copy the files to their home that are not there, and give up copies here beyond the cache's size.
    ///
    /// Each file is verified before and after it is copied; then copies go that were read least recently. Objects of tables and parts
    /// that were dropped or merged are removed. A run that is killed leaves what it has copied, for the next one.
    Push(PushArguments),
    /// Bring all files back, and forget the home.
    ///
    /// Each file is verified. The objects stay, unless --delete-objects is given. A run that is killed leaves what came; the same command
    /// goes on, and `meridian home set` with the same URL ends it.
    Unset(UnsetArguments),
}

/// Of which directory, and where.
#[derive(Args)]
pub struct SetArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// Bytes of copies that are kept here, such as 500G, or 0; all keeps all. All are kept at first; later what was said last counts.
    #[arg(long, value_name = "SIZE", value_parser = parse_cache)]
    cache: Option<CacheSize>,
    /// The directory was moved to another disk since its home was set, and is no copy: there is no other one that uses these objects.
    #[arg(long)]
    moved: bool,
    /// Where: s3://BUCKET/PREFIX. Each data directory has its own objects below it.
    #[arg(value_name = "URL")]
    url: String,
}

/// Of which directory.
#[derive(Args)]
pub struct StatusArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Of which directory, and how fast.
#[derive(Args)]
pub struct PushArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// Bytes to copy each second, such as 50M; `none` for as fast as it goes.
    #[arg(long, value_name = "SIZE", default_value = "none", value_parser = parse_rate)]
    rate: Rate,
    /// Do not look for objects of parts that are gone.
    #[arg(long, hide = true)]
    no_clean_up: bool,
    /// Do nothing if another process copies already.
    #[arg(long, hide = true)]
    no_wait: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

/// Of which directory, and what becomes of the objects.
#[derive(Args)]
pub struct UnsetArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// Remove the objects when all files are here. They stay by default.
    #[arg(long)]
    delete_objects: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

/// A size, or `all`.
fn parse_cache(text: &str) -> Result<CacheSize, String> {
    match text {
        "all" => Ok(CacheSize::All),
        "0" => Ok(CacheSize::Bytes(0)),
        _ => ingest::parse_size(text)
            .map(CacheSize::Bytes)
            .map_err(|sentence| format!("{sentence}; all keeps all copies")),
    }
}

/// Does it.
pub fn run(command: &HomeCommand) -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    match command {
        HomeCommand::Set(arguments) => runtime.block_on(set(arguments)),
        HomeCommand::Status(arguments) => runtime.block_on(status(arguments)),
        HomeCommand::Push(arguments) => runtime.block_on(push(arguments)),
        HomeCommand::Unset(arguments) => runtime.block_on(unset(arguments)),
    }
}

async fn set(arguments: &SetArguments) -> Result<(), Failure> {
    let SetArguments {
        data,
        cache,
        moved,
        url,
    } = arguments;
    let home = Box::pin(home::set(data, url, *cache, *moved)).await?;
    tell(&format!(
        "the home of the chunk files of {} is {}; {}\ncopy them with: meridian home push --data {}\n",
        data.display(),
        home.url,
        cache_in_words(home.cache),
        data.display()
    ))
    .map_err(|lost| lost.when_reporting("the home is set"))
}

fn cache_in_words(cache: Option<u64>) -> String {
    match cache {
        None => "all copies stay here".to_owned(),
        Some(bytes) => format!("copies of {} stay here", size(bytes)),
    }
}

async fn status(arguments: &StatusArguments) -> Result<(), Failure> {
    let status = Box::pin(home::status(&arguments.data)).await?;
    match arguments.format {
        Format::Json => tell(&(serde_json::to_string_pretty(&status)? + "\n")),
        Format::Text => tell(&in_words(&status, &arguments.data)),
    }
}

fn in_words(status: &HomeStatus, data: &Path) -> String {
    let files = |it: Files| format!("{} files, {}", grouped(it.files), size(it.bytes));
    let Some(url) = &status.url else {
        return format!(
            "the chunk files of {} have no home: they are here ({})\n",
            data.display(),
            files(status.here)
        );
    };
    let mut text = format!("home          {url}\n");
    let store = match &status.store_problem {
        None => "can be used".to_owned(),
        Some(problem) => format!("cannot be used: {problem}"),
    };
    let limit = match status.cache_bytes {
        None => "no limit".to_owned(),
        Some(bytes) => size(bytes),
    };
    for (name, what) in [
        ("store", store),
        ("at home", files(status.at_home)),
        ("not at home", files(status.not_at_home)),
        ("here", files(status.here)),
        ("cache", format!("{} of {limit}", files(status.cached))),
    ] {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{name:<13} {what}");
    }
    if status.is_ending {
        text.push_str("The files are coming back: `meridian home unset` goes on with that.\n");
    }
    text
}

async fn push(arguments: &PushArguments) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    crate::parent::end_with_parent(&stop);
    let options = PushOptions {
        rate: arguments.rate.0,
        cleans_up: !arguments.no_clean_up,
        waits: !arguments.no_wait,
    };
    let mut progress = ProgressLine::new(arguments.quiet);
    let pushing = Box::pin(home::push(&arguments.data, options, |told| {
        progress.show(told.files, told.of, told.bytes);
    }));
    let pushed = tokio::select! {
        pushed = pushing => pushed,
        () = stop.cancelled() => return Err(Failure::new("the server has ended; what was copied is at home")),
    };
    progress.end();
    let report = pushed?;
    if report.is_busy {
        let busy = "another process copies files home already";
        return Err(Failure::with_status(busy, BUSY));
    }
    tell(&report_in_words(&report)).map_err(|lost| lost.when_reporting("the files are at home"))
}

fn report_in_words(report: &PushReport) -> String {
    let mut text = format!(
        "{} files with {} were copied home\n",
        grouped(report.copied_files),
        size(report.copied_bytes)
    );
    if report.given_up_files > 0 {
        let files = grouped(report.given_up_files);
        let bytes = size(report.given_up_bytes);
        let _ = writeln!(text, "{files} copies here, {bytes}, were given up");
    }
    if report.removed_objects > 0 {
        let objects = grouped(report.removed_objects);
        let _ = writeln!(
            text,
            "{objects} objects of parts that are gone were removed"
        );
    }
    text
}

async fn unset(arguments: &UnsetArguments) -> Result<(), Failure> {
    let data = &arguments.data;
    if Home::read(data)?.is_some() && !arguments.quiet {
        remark(
            "all files come back; a server that is copying ends with the file that it copies now",
        );
    }
    let mut progress = ProgressLine::new(arguments.quiet);
    let unset = Box::pin(home::unset(data, arguments.delete_objects, |told| {
        progress.show(told.files, told.of, told.bytes);
    }));
    let unset = unset.await;
    progress.end();
    let report = unset?;
    let objects = match arguments.delete_objects {
        true => format!("{} objects were removed", grouped(report.removed_objects)),
        false => format!("the objects at {} are left there", report.url),
    };
    tell(&format!(
        "{} files with {} came back: all chunk files of {} are here; {objects}\n",
        grouped(report.fetched_files),
        size(report.fetched_bytes),
        data.display()
    ))
    .map_err(|lost| lost.when_reporting("the files are back"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_a_size_or_all() {
        assert_eq!(parse_cache("all"), Ok(CacheSize::All));
        assert_eq!(parse_cache("0"), Ok(CacheSize::Bytes(0)));
        assert_eq!(parse_cache("2G"), Ok(CacheSize::Bytes(2 << 30)));
        assert!(
            parse_cache("none")
                .unwrap_err()
                .ends_with("all keeps all copies")
        );
    }
}
