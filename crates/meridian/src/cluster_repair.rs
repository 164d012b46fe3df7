//! `meridian cluster repair` and `rebalance`: begin at once what would come by itself, and wait until it is done.

use std::time::Duration;

use clap::Args;
use cluster::Operator;
use cluster::messages::ClusterStatus;
use ingest::{grouped, size};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::cluster_commands::{FrontEndArguments, check};
use crate::cluster_progress::ClusterProgress;
use crate::console::tell;
use crate::failure::Failure;

const POLL: Duration = Duration::from_millis(500);

/// Which cluster, and whether to wait.
#[derive(Args)]
pub struct RepairArguments {
    /// Begin it, and do not wait until it is done.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    front_end: FrontEndArguments,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Each file has as many copies as it shall have.
    Repair,
    /// Each file is where it shall be, and nowhere else.
    Rebalance,
}

/// Replicas that are waited for, with their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    replicas: u64,
    bytes: u64,
}

/// Begins it, and waits.
pub fn run(wait: Wait, arguments: RepairArguments) -> Result<(), Failure> {
    let operator = arguments.front_end.operator()?;
    Runtime::new()?.block_on(wait.run(&operator, arguments.no_wait))
}

impl Wait {
    async fn run(self, operator: &Operator, no_wait: bool) -> Result<(), Failure> {
        let mut status = match self {
            Self::Repair => operator.repair().await?,
            Self::Rebalance => operator.rebalance().await?,
        };
        let (first, surplus) = (self.left(&status), self.surplus(&status));
        if first.replicas == 0 && surplus == 0 {
            tell(self.nothing())?;
            return self.end(&status);
        }
        tell(&self.begins(first, surplus))?;
        if no_wait {
            return tell("`meridian cluster status` tells how far it is\n");
        }
        let mut progress = ClusterProgress::new(self.title());
        let (mut most, mut warned) = (first.bytes, Vec::new());
        while self.left(&status).replicas > 0 || self.surplus(&status) > 0 {
            let left = self.left(&status);
            // More may have come to be done meanwhile.
            most = most.max(left.bytes);
            let text = self.in_words(left, &status);
            progress.show(most - left.bytes, most, &text);
            for warning in status.warnings.iter().filter(|it| !warned.contains(*it)) {
                progress.say(&format!("warning: {warning}"));
            }
            warned.clone_from(&status.warnings);
            sleep(POLL).await;
            status = operator.status_of_leader().await?;
        }
        drop(progress);
        self.end(&status)
    }

    /// Says what there is now; fails if replicas lack that do not come.
    fn end(self, status: &ClusterStatus) -> Result<(), Failure> {
        let has_copies = status.short_replicas == 0 && status.lost_files == 0;
        if self == Self::Rebalance || !has_copies || status.missing_replicas == 0 {
            return check(status);
        }
        tell(&format!(
            "each of {} chunk files has {} copies, and {} replicas ({}) move: `meridian cluster rebalance` waits for these\n",
            grouped(status.files),
            status.replicas,
            grouped(status.coming_replicas),
            size(status.coming_bytes)
        ))
    }

    fn title(self) -> &'static str {
        match self {
            Self::Repair => "repairing",
            Self::Rebalance => "rebalancing",
        }
    }

    fn nothing(self) -> &'static str {
        match self {
            Self::Repair => "nothing is to be repaired\n",
            Self::Rebalance => "nothing is to be moved\n",
        }
    }

    /// What is to be done at first, in words.
    fn begins(self, left: Left, surplus: u64) -> String {
        let (replicas, bytes) = (grouped(left.replicas), size(left.bytes));
        match self {
            Self::Repair => {
                format!("{replicas} replicas ({bytes}) are to be made that files have too few\n")
            }
            Self::Rebalance => format!(
                "{replicas} replicas ({bytes}) are to be copied, and {} to be given up\n",
                grouped(surplus)
            ),
        }
    }

    /// What is still to be done, in words.
    fn in_words(self, left: Left, status: &ClusterStatus) -> String {
        let (replicas, bytes) = (grouped(left.replicas), size(left.bytes));
        let rate: u64 = status.workers.iter().map(|it| it.copy_rate).sum();
        let rate = match rate {
            0 => String::new(),
            rate => format!(", {}/s", size(rate)),
        };
        let surplus = match self.surplus(status) {
            0 => String::new(),
            surplus => format!(", {} to be given up", grouped(surplus)),
        };
        format!("{replicas} replicas ({bytes}) to get{surplus}{rate}")
    }

    fn left(self, status: &ClusterStatus) -> Left {
        match self {
            Self::Repair => Left {
                replicas: status.repairable_replicas,
                bytes: status.repairable_bytes,
            },
            Self::Rebalance => Left {
                replicas: status.coming_replicas,
                bytes: status.coming_bytes,
            },
        }
    }

    /// Replicas that are to be given up, if that is waited for.
    fn surplus(self, status: &ClusterStatus) -> u64 {
        match self {
            Self::Repair => 0,
            Self::Rebalance => status.surplus_replicas,
        }
    }
}
