//! `meridian backup` and `meridian restore`.

use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backup::{BackupError, Extra, Place, Snapshot, SnapshotList};
use clap::Args;
use ingest::{grouped, size};
use remote_files::{Client, Settings, is_url};

use crate::check::{self, CheckArguments};
use crate::console::{remark, tell};
use crate::failure::Failure;

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// Of what a backup is taken, and where it goes.
#[derive(Args)]
pub struct BackupArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// Keep so many backups in the place, and remove the oldest ones. All are kept by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
    /// Where backups are: a directory that is new, or that has earlier ones; or s3://BUCKET/PREFIX, with the credentials, the region and the
    /// endpoint of AWS's tools (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL).
    #[arg(value_name = "PLACE")]
    place: PathBuf,
}

/// Which backup is restored, and where.
#[derive(Args)]
pub struct RestoreArguments {
    /// The data directory that is made: a new one.
    #[arg(
        long,
        value_name = "DIR",
        env = "MERIDIAN_DATA",
        required_unless_present_any = ["list", "verify"]
    )]
    data: Option<PathBuf>,
    /// Which backup, by its name; the newest by default.
    #[arg(long, value_name = "NAME", conflicts_with = "list")]
    at: Option<String>,
    /// List the backups, and restore none.
    #[arg(long)]
    list: bool,
    /// Read all files of the backups, or of that of `--at`, compare them with their checksums, and restore none. The exit status is 1 if a file
    /// is damaged or missing.
    #[arg(long, conflicts_with_all = ["list", "no_check"])]
    verify: bool,
    /// Do not check all rows of what was restored. Every file is compared with its checksum all the same.
    #[arg(long)]
    no_check: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
    /// Where the backups are: a directory, or s3://BUCKET/PREFIX.
    #[arg(value_name = "PLACE")]
    place: PathBuf,
}

/// Takes a backup.
pub fn back_up(arguments: &BackupArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let extras = extras(&arguments.data)?;
    let mut progress = ProgressLine::new(arguments.quiet);
    let keep = arguments.keep.map(|keep| keep as usize);
    let taken = runtime.block_on(async {
        let place = place_of(&arguments.place)?;
        let taking = backup::take(&arguments.data, &place, &extras, keep, |told| {
            progress.show(told.files, told.of, told.bytes)
        });
        Ok::<_, Failure>(taking.await?)
    });
    progress.end();
    let taken = taken?;
    let snapshot = &taken.snapshot;
    let files = snapshot.parts.len() as u64;
    let mut text = format!(
        "backup {} of {}\n  {} tables with {} rows, {} in {} files\n  {} files with {} were copied, {} were there\n",
        snapshot.name(),
        arguments.data.display(),
        grouped(snapshot.tables),
        grouped(snapshot.rows),
        size(snapshot.bytes()),
        grouped(files),
        grouped(taken.copied_files),
        size(taken.copied_bytes),
        grouped(files - taken.copied_files),
    );
    if !taken.removed.is_empty() {
        text.push_str(&format!("  removed: {}\n", taken.removed.join(", ")));
    }
    for damaged in &taken.damaged {
        remark(&format!(
            "backup {} cannot be read, and stays, with all files of the place that it may have: {}. Remove it from {} if it is not wanted",
            damaged.name,
            damaged.error,
            arguments.place.join("snapshots").display()
        ));
    }
    tell(&text).map_err(|error| error.when_reporting("the backup is taken"))
}

/// Restores a backup, and checks it.
pub fn restore(arguments: &RestoreArguments) -> Result<(), Failure> {
    if arguments.verify {
        return verify(arguments);
    }
    let Some(data) = arguments.data.as_ref().filter(|_| !arguments.list) else {
        return list(&arguments.place);
    };
    let mut progress = ProgressLine::new(arguments.quiet);
    let runtime = tokio::runtime::Runtime::new()?;
    let restored = runtime.block_on(async {
        let place = place_of(&arguments.place)?;
        let name = arguments.at.as_deref();
        let restoring = backup::restore(&place, name, data, |told| {
            progress.show(told.files, told.of, told.bytes)
        });
        Ok::<_, Failure>(restoring.await?)
    });
    progress.end();
    let restored = restored?;
    let snapshot = &restored.snapshot;
    let told = tell(&format!(
        "{} is as it was at {}: {} tables with {} rows, {}\n",
        data.display(),
        snapshot.taken_at,
        grouped(snapshot.tables),
        grouped(snapshot.rows),
        size(snapshot.bytes()),
    ));
    match arguments.no_check {
        true => told,
        false => check::run(CheckArguments::of(data.clone())).and(told),
    }
}

/// Reads backups through.
fn verify(arguments: &RestoreArguments) -> Result<(), Failure> {
    let mut progress = ProgressLine::new(arguments.quiet);
    let runtime = tokio::runtime::Runtime::new()?;
    let verified = runtime.block_on(async {
        let place = place_of(&arguments.place)?;
        let verifying = backup::verify(&place, arguments.at.as_deref(), |told| {
            progress.show(told.files, told.of, told.bytes)
        });
        Ok::<_, Failure>(verifying.await?)
    });
    progress.end();
    let verified = verified?;
    for backup in &verified.unreadable {
        remark(&format!(
            "backup {} cannot be read: {}",
            backup.name, backup.error
        ));
    }
    for file in &verified.damaged {
        remark(&format!(
            "{} is damaged or missing: it is not what was backed up, in {}",
            file.path.display(),
            file.backups.join(", ")
        ));
    }
    let read = format!(
        "{} files with {} of {} backups",
        grouped(verified.files),
        size(verified.bytes),
        grouped(verified.backups.len() as u64)
    );
    match verified.damaged.len() as u64 {
        0 if !verified.unreadable.is_empty() => Err(Failure::new(format!(
            "{read} are as they were written, and of {} backups it cannot be read which files they have",
            grouped(verified.unreadable.len() as u64)
        ))),
        0 => tell(&format!("{read} are as they were written\n")),
        damaged => Err(Failure::new(format!(
            "of {read}, {} are damaged or missing: take a new backup into another place as long as the data directory is whole",
            grouped(damaged)
        ))),
    }
}

/// Where backups are: in a directory, or in a bucket.
fn place_of(place: &Path) -> Result<Place, Failure> {
    match place.to_str().filter(|text| is_url(text)) {
        Some(url) => {
            let client = Client::new(Settings::of_environment(false)?);
            Ok(Place::at_url(client, url)?)
        }
        None => Ok(Place::Directory(place.to_owned())),
    }
}

fn list(place: &Path) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let SnapshotList {
        readable: snapshots,
        damaged,
    } = runtime.block_on(place_of(place)?.snapshots())?;
    if snapshots.is_empty() {
        let first = damaged.into_iter().next().map(|it| it.error);
        let place = place.to_owned();
        return Err(first.unwrap_or(BackupError::Empty { place }).into());
    }
    for backup in &damaged {
        remark(&format!(
            "backup {} cannot be read: {}",
            backup.name, backup.error
        ));
    }
    let line = |snapshot: &Snapshot| {
        format!(
            "{:<18}  {:>8}  {:>18}  {:>10}\n",
            snapshot.name(),
            grouped(snapshot.tables),
            grouped(snapshot.rows),
            size(snapshot.bytes())
        )
    };
    let lines: String = snapshots.iter().map(line).collect();
    let heading = format!(
        "{:<18}  {:>8}  {:>18}  {:>10}\n",
        "backup", "tables", "rows", "size"
    );
    tell(&(heading + &lines))
}

/// What belongs to a backup besides tables: the users, and the alert databases.
fn extras(data: &Path) -> Result<Vec<Extra>, Failure> {
    let mut extras = Vec::new();
    if data.join("users.sqlite").exists() {
        extras.push(Extra {
            path: "users.sqlite".into(),
            is_database: true,
        });
    }
    let alerts = Path::new("alerts");
    let databases = match std::fs::read_dir(data.join(alerts)) {
        Ok(databases) => databases,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(extras),
        Err(error) => return Err(error.into()),
    };
    for database in databases {
        let database = database?;
        for file in std::fs::read_dir(database.path())? {
            let name = file?.file_name();
            let text = name.to_string_lossy();
            // Neither locks nor what SQLite keeps beside a database.
            let is_database = text.ends_with(".sqlite");
            if is_database
                || [".json", ".yaml", ".yml"]
                    .iter()
                    .any(|it| text.ends_with(it))
            {
                extras.push(Extra {
                    path: alerts.join(database.file_name()).join(&name),
                    is_database,
                });
            }
        }
    }
    Ok(extras)
}

/// A line on the terminal that tells how far it is.
pub(crate) struct ProgressLine {
    is_shown: bool,
    last: Option<Instant>,
}

impl ProgressLine {
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self {
            is_shown: !is_quiet && stderr().is_terminal(),
            last: None,
        }
    }

    pub(crate) fn show(&mut self, files: u64, of: u64, bytes: u64) {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= SHOWN_EVERY);
        if self.is_shown && is_due {
            self.last = Some(Instant::now());
            let _ = write!(
                stderr(),
                "\r{} of {} files, {} copied\x1b[K",
                grouped(files),
                grouped(of),
                size(bytes)
            );
        }
    }

    pub(crate) fn end(&self) {
        if self.is_shown && self.last.is_some() {
            remark("\r\x1b[K");
        }
    }
}
