//! `meridian cluster`: the state of a running cluster, and what an operator changes of it.

use std::fmt::Write;

use clap::{Args, Subcommand, ValueEnum};
use cluster::messages::{ClusterStatus, FrontEndStatus};
use cluster::{CredentialFiles, Operator};
use ingest::{grouped, size};
use tokio::runtime::Runtime;

use crate::aligned::aligned;
use crate::cluster_add::{self, AddArguments};
use crate::cluster_credentials::CredentialArguments;
use crate::cluster_demo::{self, DemoArguments};
use crate::cluster_init::{self, InitArguments};
use crate::cluster_repair::{self, RepairArguments, Wait};
use crate::cluster_revoke::{self, RevokeArguments};
use crate::cluster_scrub::{self, ScrubArguments};
use crate::console::tell;
use crate::failure::Failure;
use crate::worker::member_address;

/// Exit status for a cluster that lacks replicas, or has damaged ones.
pub const LACKS_REPLICAS: u8 = 3;

/// What to do.
#[derive(Subcommand)]
pub enum ClusterCommand {
    /// List the workers, and tell which replicas lack.
    Status(StatusArguments),
    /// Succeed if every chunk file has its replicas on live workers and no file of the front end is known to be damaged, and say what lacks otherwise (exit status 3).
    Check(FrontEndArguments),
    /// Say what is to be run for another worker, and make its certificate.
    Add(AddArguments),
    /// Have a worker give its replicas to others, so that it can be ended: `status` says when it is drained.
    Drain(WorkerArguments),
    /// Have a worker that was drained take its share again.
    Undrain(WorkerArguments),
    /// Forget a worker that was ended.
    Remove(RemoveArguments),
    /// Make replicas that lack, also those of workers that are silent and not yet lost, and wait until files have as many as they shall.
    Repair(RepairArguments),
    /// Wait until each file is at the workers where it shall be, and at no others.
    Rebalance(RepairArguments),
    /// Have workers read their replicas through, and the front end its own files, and verify all checksums; fail if any is damaged (exit status 3).
    Scrub(ScrubArguments),
    /// Make a certificate authority, and the certificates of members, which then speak TLS.
    Init(InitArguments),
    /// Revoke the certificates of members whose keys are lost or stolen: all others refuse them once they have the list.
    Revoke(RevokeArguments),
    /// Try a cluster on this machine: a front end and three workers of a data directory, until Ctrl-C.
    Demo(DemoArguments),
}

/// Which cluster.
#[derive(Args)]
pub struct FrontEndArguments {
    /// Where a front end of the cluster listens for members: what `meridian serve --cluster` was given.
    #[arg(
        long,
        value_name = "ADDR",
        env = "MERIDIAN_CLUSTER",
        value_parser = member_address
    )]
    cluster: String,
    #[command(flatten)]
    credentials: CredentialArguments,
}

/// Which cluster, and in which form.
#[derive(Args)]
pub struct StatusArguments {
    #[command(flatten)]
    front_end: FrontEndArguments,
    /// The form: a table for people, or JSON for programs.
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: StatusFormat,
}

/// Which worker of which cluster.
#[derive(Args)]
pub struct WorkerArguments {
    /// The worker's name, as `meridian cluster status` lists it.
    name: String,
    #[command(flatten)]
    front_end: FrontEndArguments,
}

/// Which worker is forgotten, and in which case.
#[derive(Args)]
pub struct RemoveArguments {
    #[command(flatten)]
    worker: WorkerArguments,
    /// Remove it though it has the last copies of files: their rows are lost.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusFormat {
    Table,
    Json,
}

/// Does it.
pub fn run(command: ClusterCommand) -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    match command {
        ClusterCommand::Demo(arguments) => cluster_demo::run(&arguments),
        ClusterCommand::Init(arguments) => cluster_init::run(&arguments),
        ClusterCommand::Revoke(arguments) => cluster_revoke::run(&arguments),
        ClusterCommand::Status(arguments) => {
            let status = runtime.block_on(arguments.front_end.operator()?.status())?;
            match arguments.format {
                StatusFormat::Table => tell(&in_words(&status)),
                StatusFormat::Json => {
                    tell(&format!("{}\n", serde_json::to_string_pretty(&status)?))
                }
            }
        }
        ClusterCommand::Check(front_end) => {
            check(&runtime.block_on(front_end.operator()?.status())?)
        }
        ClusterCommand::Add(arguments) => cluster_add::run(arguments),
        ClusterCommand::Repair(arguments) => cluster_repair::run(Wait::Repair, arguments),
        ClusterCommand::Rebalance(arguments) => cluster_repair::run(Wait::Rebalance, arguments),
        ClusterCommand::Scrub(arguments) => cluster_scrub::run(arguments),
        ClusterCommand::Drain(worker) => {
            let operator = worker.front_end.operator()?;
            tell(&in_words(&runtime.block_on(operator.drain(&worker.name))?))
        }
        ClusterCommand::Undrain(worker) => {
            let operator = worker.front_end.operator()?;
            tell(&in_words(
                &runtime.block_on(operator.take_back(&worker.name))?,
            ))
        }
        ClusterCommand::Remove(RemoveArguments { worker, force }) => {
            let operator = worker.front_end.operator()?;
            let removed = operator.remove(&worker.name, force);
            tell(&in_words(&runtime.block_on(removed)?))
        }
    }
}

impl FrontEndArguments {
    /// Where the front end listens.
    pub fn address(&self) -> &str {
        &self.cluster
    }

    /// An operator who asks it.
    pub fn operator(self) -> Result<Operator, Failure> {
        Ok(self.operator_and_files()?.0)
    }

    /// The same, and what makes him one.
    pub fn operator_and_files(self) -> Result<(Operator, CredentialFiles), Failure> {
        let files = self.credentials.files()?;
        Ok((Operator::new(self.cluster, &files)?, files))
    }
}

/// Fails if replicas lack, or files of the front end are damaged.
pub fn check(status: &ClusterStatus) -> Result<(), Failure> {
    if status.missing_replicas == 0 && status.lost_files == 0 && status.damaged_files == 0 {
        return tell(&replicas_in_words(status));
    }
    let text = replicas_in_words(status);
    Err(Failure::with_status(text.trim_end(), LACKS_REPLICAS))
}

fn in_words(status: &ClusterStatus) -> String {
    let mut text = String::new();
    match status.workers.is_empty() {
        true => text.push_str(
            "there are no workers: `meridian worker` starts one, and queries run at the front end meanwhile\n",
        ),
        false => text.push_str(&workers(status)),
    }
    text.push_str(&front_ends(status));
    text.push_str(&replicas_in_words(status));
    text
}

/// The front ends, if there can be several.
fn front_ends(status: &ClusterStatus) -> String {
    let named = |front_end: &FrontEndStatus| match front_end.leads {
        true => format!("{} (leads)", front_end.address),
        false => front_end.address.clone(),
    };
    let named: Vec<String> = status.front_ends.iter().map(named).collect();
    match named.len() {
        0 => String::new(),
        1 => format!("1 front end: {}\n", named.join("")),
        count => format!("{count} front ends: {}\n", named.join(", ")),
    }
}

fn workers(status: &ClusterStatus) -> String {
    let headings = [
        "worker",
        "address",
        "state",
        "silent",
        "threads",
        "files",
        "to get",
        "time left",
        "disk",
        "free",
        "pieces",
    ];
    let mut headings = headings.map(str::to_owned).to_vec();
    let have_user_disks = status.workers.iter().any(|it| it.user_disks.is_some());
    if have_user_disks {
        headings.extend(["users' disk", "users' free"].map(str::to_owned));
    }
    let mut rows = vec![headings];
    rows.extend(status.workers.iter().map(|worker| {
        let mut row = vec![
            worker.name.clone(),
            worker.address.clone(),
            worker.state.clone(),
            format!("{:.1} s", worker.silent_seconds),
            worker.threads.to_string(),
            grouped(worker.files),
            size(worker.missing_bytes),
            worker.seconds_left.map_or_else(|| "-".to_owned(), duration),
            size(worker.disk_bytes),
            size(worker.free_bytes),
            grouped(worker.pieces),
        ];
        if have_user_disks {
            let size_of = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), size);
            row.push(size_of(worker.user_disks.map(|it| it.bytes)));
            row.push(size_of(worker.user_disks.map(|it| it.free)));
        }
        row
    }));
    aligned(&rows, |column| column >= 3)
}

/// Seconds, to two digits or so.
fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

fn replicas_in_words(status: &ClusterStatus) -> String {
    let mut text = String::new();
    let files = grouped(status.files);
    let _ = match status.missing_replicas {
        0 => writeln!(
            text,
            "each of {files} chunk files ({}) has its {} replica{}",
            size(status.bytes),
            status.replicas,
            if status.replicas == 1 { "" } else { "s" }
        ),
        missing => writeln!(
            text,
            "of {files} chunk files ({}), which shall have {} replicas each, {} replicas lack ({}); {} files are at the front end alone",
            size(status.bytes),
            status.replicas,
            grouped(missing),
            size(status.missing_bytes),
            grouped(status.files_without_replica)
        ),
    };
    let _ = match status.away_files {
        0 => writeln!(
            text,
            "the front end has all files; the replicas at workers have {}",
            size(status.worker_bytes)
        ),
        away => writeln!(
            text,
            "the front end has {}; {} files ({}) are at workers alone, {} of them at one worker only, {} at none; the replicas at workers have {}",
            size(status.front_end_bytes),
            grouped(away),
            size(status.away_bytes),
            grouped(status.single_copy_files),
            grouped(status.lost_files),
            size(status.worker_bytes)
        ),
    };
    for warning in &status.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}
