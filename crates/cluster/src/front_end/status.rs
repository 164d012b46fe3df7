//! The state of a cluster, for operators.

use std::time::Instant;

use super::several::Several;
use super::{FrontEnd, Member, lock};
use crate::messages::{ClusterStatus, DiskSpace, WorkerStatus};
use crate::tls::ending;

impl FrontEnd {
    /// The workers, and how far the files are from having their replicas.
    pub fn status(&self) -> ClusterStatus {
        // What has changed a moment ago counts, too.
        self.assign();
        let draining = self.settings.draining();
        let members = self.members.all();
        let workers: Vec<WorkerStatus> = members
            .iter()
            .map(|(name, member)| self.worker_status(name, member, draining.contains(name)))
            .collect();
        let assigned = lock(&self.assigned);
        let latest = &assigned.latest;
        let mut warnings = Vec::new();
        if latest.unplaced_replicas > 0 {
            let takers = workers.iter().filter(|it| takes_files(it)).count();
            warnings.push(match takers < self.options.replicas {
                true => format!(
                    "{} replicas have no place: there shall be {} of each file, and {takers} workers take files",
                    latest.unplaced_replicas, self.options.replicas
                ),
                false => format!(
                    "{} replicas have no place: {}",
                    latest.unplaced_replicas,
                    full_disks(&workers)
                ),
            });
        }
        if latest.lost_files > 0 {
            warnings.push(format!(
                "{} files are nowhere that can be reached, as {}: statements that read them fail; start the workers that had them",
                latest.lost_files,
                latest.lost.join(", ")
            ));
        }
        if latest.single_files > 0 {
            warnings.push(format!(
                "of {} files there is one copy alone, at one worker",
                latest.single_files
            ));
        }
        let (damaged_files, damage) = self.damage();
        warnings.extend(damage);
        let troubled = workers.iter().filter_map(|it| {
            let trouble = it.trouble.as_ref()?;
            Some(format!("{}: {trouble}", it.name))
        });
        warnings.extend(troubled);
        let own = ending(self.client.credentials().ends());
        warnings.extend(own.map(|ends| format!("the certificate of this front end {ends}")));
        warnings.extend(workers.iter().filter_map(|it| {
            let ends = ending(it.certificate_ends)?;
            Some(format!("the certificate of the worker {} {ends}", it.name))
        }));
        ClusterStatus {
            archive: self.settings.archive().to_owned(),
            replicas: self.options.replicas,
            front_ends: self
                .several
                .as_ref()
                .map_or_else(Vec::new, Several::front_ends),
            leads: self.leadership.epoch().is_some(),
            remote_pieces: self.dispatcher.num_pieces(),
            files: latest.files,
            bytes: latest.bytes,
            missing_replicas: latest.missing_replicas,
            missing_bytes: latest.missing_bytes,
            short_replicas: latest.short_replicas,
            repairable_replicas: latest.repairable_replicas,
            repairable_bytes: latest.repairable_bytes,
            coming_replicas: latest.coming_replicas,
            coming_bytes: latest.coming_bytes,
            surplus_replicas: latest.surplus_replicas,
            files_without_replica: latest.unheld_files,
            front_end_bytes: latest.local_bytes,
            worker_bytes: latest.replica_bytes,
            away_files: latest.away_files,
            away_bytes: latest.away_bytes,
            single_copy_files: latest.single_files,
            lost_files: latest.lost_files,
            damaged_files,
            workers,
            warnings,
        }
    }

    fn worker_status(&self, name: &str, member: &Member, is_draining: bool) -> WorkerStatus {
        let now = Instant::now();
        let silent = now.duration_since(member.heard);
        let report = &member.report;
        let state = match is_draining {
            _ if self.is_lost(name, member, now) => "lost",
            _ if !member.is_live(now) => "silent",
            true if member.holds_chunks() => "draining",
            true => "drained",
            false => "live",
        };
        WorkerStatus {
            name: name.to_owned(),
            address: report.address.clone(),
            state: state.to_owned(),
            silent_seconds: silent.as_secs_f64(),
            threads: report.threads,
            files: member
                .holdings
                .values()
                .map(|files| files.len() as u64)
                .sum(),
            missing_bytes: report.missing_bytes,
            copy_rate: report.copy_rate,
            seconds_left: seconds_left(report.missing_bytes, report.copy_rate),
            disk_bytes: report.disk_bytes,
            free_bytes: report.free_bytes,
            user_disks: report.user_disks,
            disk_limit: report.disk_limit,
            pieces: report.pieces,
            shares: report.shares,
            plans_decoded: report.plans_decoded,
            damaged: report.damaged,
            trouble: report.trouble.clone(),
            certificate_ends: report.certificate_ends,
        }
    }
}

fn takes_files(worker: &WorkerStatus) -> bool {
    worker.state == "live" || worker.state == "silent"
}

/// Which workers take no more files, and what to do.
fn full_disks(workers: &[WorkerStatus]) -> String {
    const NAMED: usize = 3;
    let takers = workers.iter().filter(|it| takes_files(it));
    let all_disks = takers.flat_map(|it| {
        let disks = DiskSpace {
            bytes: it.disk_bytes,
            free: it.free_bytes,
        };
        let of_users = it.user_disks.map(|disks| (it, " for users' tables", disks));
        std::iter::once((it, "", disks)).chain(of_users)
    });
    let full = all_disks.filter_map(|(it, which, disks)| {
        let why = fullness(disks, it.disk_limit)?;
        Some(format!("{}{which}: {why}", it.name))
    });
    let full: Vec<String> = full.collect();
    let mut named = full[..full.len().min(NAMED)].join("; ");
    if full.len() > NAMED {
        named += &format!("; and so on for {} more", full.len() - NAMED);
    }
    let disks = match full.is_empty() {
        true => "the disks of the workers have no room for them".to_owned(),
        false => format!("disks of workers are as full as they may be ({named})"),
    };
    format!("{disks}; free some room, add workers, or start workers with a higher --disk-limit")
}

/// Why disks of which so many percent may be in use take no more files; `None` if they do.
fn fullness(disks: DiskSpace, limit: u8) -> Option<String> {
    let used = u128::from(disks.bytes.saturating_sub(disks.free));
    match (used * 100).checked_div(u128::from(disks.bytes)) {
        // All of them are set aside.
        None => Some("no disk that can be written".to_owned()),
        Some(percent) => {
            (percent >= u128::from(limit)).then(|| format!("{percent} % in use, {limit} % allowed"))
        }
    }
}

/// How long bytes take at a rate.
fn seconds_left(bytes: u64, rate: u64) -> Option<u64> {
    (bytes > 0 && rate > 0).then(|| bytes.div_ceil(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_disks_take_no_more_files_is_told() {
        let why = |bytes, free| fullness(DiskSpace { bytes, free }, 80);
        assert_eq!(why(1000, 201), None);
        assert_eq!(why(1000, 200).as_deref(), Some("80 % in use, 80 % allowed"));
        assert_eq!(why(0, 0).as_deref(), Some("no disk that can be written"));
    }
}
