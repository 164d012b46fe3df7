//! The process that publishes a load in shares: it holds the locks, knows what there is, and puts together what the shares have written.

use std::path::PathBuf;
use std::time::Instant;

use catalog::{
    Append, Catalog, Chunk, LoadId, LoadLock, NewDatabase, PartContents, Table, TableKind,
    TableSpec,
};
use store::{DirectorIndex, LoadDir, PartManifest, PartPartitioning};

use super::conflicts::{Rule, ShareConflicts, find_conflicts};
use super::division::share_sizes;
use super::report::{contents, first_examples};
use super::{InputPlan, PlanRequest, RUN_FILE, ShareReport, ShareRequest};
use crate::append::{as_this_table, same_placements};
use crate::directors::{Directors, Family, largest_key, open_parts};
use crate::error::{IngestError, Rejection};
use crate::fault;
use crate::format::generated_key::files_behind;
use crate::leftovers::clean_up;
use crate::load::{Transaction, blocking, check_existing};
use crate::load_locks::wait_for_lock;
use crate::partitioning::{Cut, settled_cut};
use crate::pipeline::SPILL_DIR;
use crate::plan::check_options_of_kind;
use crate::report::{LoadReport, Partitioning};
use crate::request::LoadRequest;
use crate::text_keys::KeyNames;

/// A load whose shares other processes write. Nothing of it is visible before [`Self::publish`] has returned, and what is left of one that
/// is dropped is removed by the next load of the table.
#[derive(Debug)]
pub struct SharedLoad {
    pub(super) catalog: Catalog,
    pub(super) request: LoadRequest,
    pub(super) started: Instant,
    _lock: LoadLock,
    /// Held until the table is visible, so that nobody else places keys.
    pub(super) family: Family,
    pub(super) directors: Directors,
    pub(super) appended_to: Option<Table>,
    /// The runs of the keys that the table has already.
    older: Vec<LoadDir>,
    /// How many files count as coming before those of the load, for keys that are generated.
    files_before: i64,
    /// The directories of the runs of keys of each director.
    pub(super) director_runs: Vec<Vec<PathBuf>>,
    overlap_deg: Option<f64>,
    pub(super) plan: Option<(InputPlan, Partitioning)>,
    pub(super) shares: Vec<Share>,
    /// Whether shares are written once more.
    is_second_round: bool,
    pub(super) orphan_keys: u64,
}

#[derive(Debug)]
pub(super) struct Share {
    load: LoadId,
    pub(super) dir: LoadDir,
    files: Vec<PathBuf>,
    /// How many files come before these in the load.
    first_file: usize,
    /// The keys in conflict with what comes before this share.
    conflicts: ShareConflicts,
}

impl SharedLoad {
    /// Waits for its turn and looks what there is. The request's files are not looked at.
    ///
    /// # Errors
    /// A sentence for the person who requested the load.
    pub async fn begin(catalog: &Catalog, request: LoadRequest) -> Result<Self, IngestError> {
        let started = Instant::now();
        check_can_be_shared(&request)?;
        let mut request = match request.append {
            true => as_this_table(catalog, request).await?,
            false => request.with_key_name(),
        };
        check_can_be_shared(&request)?;
        check_options_of_kind(&request)?;
        let lock = wait_for_lock(&request, &request.table).await?;
        clean_up(catalog, &request).await?;
        let appended_to = check_existing(catalog, &request).await?;
        if request.scan_rating.is_none() {
            let replaced = catalog.table(&request.database, &request.table).await?;
            request.scan_rating = replaced.map(|table| table.spec.scan_rating);
        }
        let kind = request.effective_kind();
        let (directors, family, older) = match (&appended_to, kind) {
            (Some(table), TableKind::Director) => {
                let family = Family::of_director(catalog, &request, table).await?;
                (Directors::none(), family, open_parts(&request, table)?)
            }
            (_, TableKind::Child) => {
                let directors = Directors::find(catalog, &request, kind).await?;
                let family = Family::gather(catalog, &request, &directors).await?;
                (directors, family, Vec::new())
            }
            (_, TableKind::Match) => {
                let directors = Directors::find(catalog, &request, kind).await?;
                (directors, Family::default(), Vec::new())
            }
            _ => (Directors::none(), Family::default(), Vec::new()),
        };
        let files_before = match request.generate_key {
            true => files_behind(largest_key(&older)?),
            false => 0,
        };
        if let Some(table) = &appended_to {
            same_placements(table, &directors)?;
        }
        // A HATS catalogue may say that the table has positions.
        let may_be = match (request.kind, kind) {
            (None, TableKind::Replicated) => TableKind::Director,
            _ => kind,
        };
        let overlap_deg = match settled_cut(catalog, &request, &directors, may_be).await? {
            Cut::Settled(_) => None,
            Cut::OfRows { overlap_deg } => Some(overlap_deg),
        };
        Ok(Self {
            catalog: catalog.clone(),
            request,
            started,
            _lock: lock,
            family,
            directors,
            appended_to,
            older,
            files_before,
            director_runs: Vec::new(),
            overlap_deg,
            plan: None,
            shares: Vec::new(),
            is_second_round: false,
            orphan_keys: 0,
        })
    }

    /// What has to be known to look at the inputs.
    pub fn plan_request(&self) -> PlanRequest {
        PlanRequest {
            load: elsewhere(self.request.clone()),
            overlap_deg: self.overlap_deg,
        }
    }

    /// Takes what the inputs are, and cuts them into as many shares as there can be, of that many at most. Gives how many there are.
    ///
    /// # Errors
    /// The database is cut otherwise than the request says, or the shares cannot be begun.
    pub async fn cut(&mut self, plan: InputPlan, most: usize) -> Result<usize, IngestError> {
        let request = LoadRequest {
            data_dir: self.request.data_dir.clone(),
            database: self.request.database.clone(),
            table: self.request.table.clone(),
            replace: self.request.replace,
            append: self.request.append,
            scan_rating: self.request.scan_rating,
            max_errors: self.request.max_errors,
            allow_empty: self.request.allow_empty,
            // Those of the worker that has looked at the inputs are its own.
            memory: self.request.memory,
            threads: self.request.threads,
            ..plan.load.clone()
        };
        let kind = request.effective_kind();
        if plan.files.is_empty() {
            return Err(IngestError::Internal);
        }
        let settled = settled_cut(&self.catalog, &request, &self.directors, kind).await?;
        let partitioning = match (settled, plan.cut) {
            (Cut::Settled(cut), _) => cut,
            (Cut::OfRows { overlap_deg }, Some(cut)) => Partitioning { overlap_deg, ..cut },
            (Cut::OfRows { .. }, None) => return Err(IngestError::Internal),
        };
        partitioning.chunker()?;
        let works: Vec<u64> = plan.files.iter().map(|file| file.work).collect();
        let mut files = plan.files.iter().map(|file| file.path.clone());
        let sizes = share_sizes(&works, most);
        let LoadRequest {
            data_dir,
            database,
            table,
            ..
        } = &request;
        let loads = self.catalog.begin_loads(database, table, sizes.len());
        let mut first_file = 0;
        for (load, size) in loads.await?.into_iter().zip(&sizes) {
            self.shares.push(Share {
                load,
                dir: LoadDir::create(data_dir, database, table, load)?,
                files: files.by_ref().take(*size).collect(),
                first_file,
                conflicts: ShareConflicts::default(),
            });
            first_file += size;
        }
        self.request = request;
        self.plan = Some((plan, partitioning));
        fault::reached("begun")?;
        self.find_director_runs(kind).await?;
        Ok(sizes.len())
    }

    /// What has to be known to write a share.
    ///
    /// # Errors
    /// There is no such share.
    pub fn share_request(&self, number: usize) -> Result<ShareRequest, IngestError> {
        let (Some(share), Some((_, cut))) = (self.shares.get(number), &self.plan) else {
            return Err(IngestError::Internal);
        };
        let is_director = self.request.effective_kind() == TableKind::Director;
        let with_table = usize::from(share.conflicts.with_table.is_some());
        let with_shares = usize::from(share.conflicts.with_shares.is_some());
        let orphan_runs = self.family.indexes().len();
        let directors = self.share_directors();
        Ok(ShareRequest {
            load: LoadRequest {
                files: share.files.clone(),
                ..elsewhere(self.request.clone())
            },
            partitioning: as_in_manifests(*cut),
            files_before: self.files_before.saturating_add(share.first_file as i64),
            director_runs: match is_director {
                true => with_table,
                false => directors.iter().map(|it| it.runs).sum(),
            },
            directors,
            earlier_runs: match is_director {
                true => with_shares,
                false => 0,
            },
            orphan_runs: match is_director {
                true => orphan_runs,
                false => orphan_runs + with_shares,
            },
        })
    }

    /// The files of the runs of keys that the request for a share counts, in their order.
    pub fn run_files(&self, number: usize) -> Vec<PathBuf> {
        let mut directories: Vec<PathBuf> = self.director_runs.iter().flatten().cloned().collect();
        let orphans = self.family.indexes();
        let conflicts = self.shares.get(number).map(|it| it.conflicts.clone());
        let ShareConflicts {
            with_table,
            with_shares,
        } = conflicts.unwrap_or_default();
        match self.request.effective_kind() {
            TableKind::Director => {
                directories.extend(with_table.into_iter().chain(with_shares));
                directories.extend(orphans);
            }
            _ => {
                directories.extend(orphans);
                directories.extend(with_shares);
            }
        }
        directories
            .into_iter()
            .map(|it| it.join(RUN_FILE))
            .collect()
    }

    /// Where a file of a share goes.
    pub fn place_of(&self, number: usize, file: &str) -> Option<PathBuf> {
        let dir = &self.shares.get(number)?.dir;
        Some(match file {
            RUN_FILE => dir.index_dir().join(file),
            _ => dir.path().join(file),
        })
    }

    /// The files that a share reads, in words.
    pub fn share_in_words(&self, number: usize) -> String {
        match self.shares.get(number).map(|share| share.files.as_slice()) {
            None | Some([]) => "no file".to_owned(),
            Some([only]) => only.display().to_string(),
            Some([first, .., last]) => {
                format!("a file from {} to {}", first.display(), last.display())
            }
        }
    }

    /// The shares that have to be written once more, since shares before them have rows with keys of theirs. The runs of all shares have to be in their
    /// places.
    ///
    /// # Errors
    /// More rows are rejected than may be, or a run is damaged.
    pub async fn conflicts(&mut self, reports: &[ShareReport]) -> Result<Vec<usize>, IngestError> {
        let rejected: u64 = reports.iter().map(|report| report.rejected).sum();
        let allowed = self.request.max_errors;
        if rejected > allowed {
            return Err(IngestError::TooManyRejected {
                count: rejected,
                is_cut: false,
                allowed,
                examples: first_examples(reports),
                why: Rejection::Value,
            });
        }
        let (rule, most) = match self.request.effective_kind() {
            TableKind::Director => (Rule::OnlyOnce, allowed - rejected),
            TableKind::Child => (Rule::InOnePlace, u64::MAX),
            _ => return Ok(Vec::new()),
        };
        let older: Vec<PathBuf> = self.older.iter().map(LoadDir::index_dir).collect();
        let all = self.shares.iter().zip(reports);
        let runs: Vec<Option<PathBuf>> = all
            .map(|(share, report)| report.run_file().map(|_| share.dir.index_dir()))
            .collect();
        let into = |share: &Share| share.dir.path().join(SPILL_DIR).join("conflicts");
        let into: Vec<PathBuf> = self.shares.iter().map(into).collect();
        let found = blocking(move || {
            for run in runs.iter().flatten() {
                DirectorIndex::open(run)?.verify()?;
            }
            find_conflicts(rule, &older, &runs, &into, most)
        })
        .await?;
        if let Some((key, share)) = found.first.filter(|_| found.keys > most) {
            let declared = self.request.declared.as_deref().unwrap_or_default();
            let named = self.request.key.first().map_or("", String::as_str);
            let names = KeyNames::of_key(declared, named);
            let told = names.earlier(key, "in the table or in a file that comes before");
            return Err(IngestError::TooManyRejected {
                count: rejected + found.keys,
                is_cut: true,
                allowed,
                examples: format!("First: {}: {told}", self.share_in_words(share)),
                why: Rejection::Duplicate,
            });
        }
        if found.keys > 0 && self.is_second_round {
            return Err(IngestError::Internal);
        }
        self.is_second_round = true;
        self.orphan_keys = found.distinct;
        let mut again = Vec::new();
        for (number, (share, conflicts)) in self.shares.iter_mut().zip(found.shares).enumerate() {
            if !conflicts.is_empty() {
                again.push(number);
                share.conflicts = conflicts;
            }
        }
        Ok(again)
    }

    /// Makes all rows visible. The files of all shares have to be in their places.
    ///
    /// # Errors
    /// Nothing is visible then, and [`Self::roll_back`] removes what is there.
    pub async fn publish(&mut self, reports: &[ShareReport]) -> Result<LoadReport, IngestError> {
        let Some((plan, cut)) = &self.plan else {
            return Err(IngestError::Internal);
        };
        let mut spec = self.spec(reports)?;
        let (rows, rejected) = (
            reports.iter().map(|it| it.manifest.rows).sum::<u64>(),
            reports.iter().map(|it| it.rejected).sum::<u64>(),
        );
        if rows == 0 && rejected > 0 {
            return Err(IngestError::AllRejected {
                count: rejected,
                examples: first_examples(reports),
                why: Rejection::Value,
            });
        }
        if rows == 0 && !self.request.allow_empty {
            let inputs: Vec<String> = { plan.given.iter() }
                .map(|it| it.display().to_string())
                .collect();
            return Err(IngestError::NoRows {
                inputs: inputs.join(", "),
            });
        }
        // A share without rows is no part; of a table without any, the first is.
        let has_part =
            |number: usize| reports[number].manifest.rows > 0 || (rows == 0 && number == 0);
        let shown: Vec<usize> = (0..reports.len()).filter(|it| has_part(*it)).collect();
        self.finish_files(&spec, reports, &shown).await?;
        let sources: Vec<String> = (shown.iter())
            .map(|number| self.of_share(*number).source())
            .collect();
        let chunks: Vec<Vec<Chunk>> = (shown.iter())
            .map(|number| reports[*number].chunks())
            .collect();
        let parts: Vec<(LoadId, PartContents<'_>)> = (shown.iter().zip(&sources).zip(&chunks))
            .map(|((number, source), chunks)| {
                let report = &reports[*number];
                let contents = contents(report, source, chunks, plan);
                (self.shares[*number].load, contents)
            })
            .collect();
        let first = self.of_share(shown.first().copied().unwrap_or(0));
        let mut report = self.report(&first, &spec, *cut, reports, &chunks).await?;
        let has_unknown = [0, 1].map(|end| {
            let mut counts = reports.iter().map(|report| report.counts.unknown_ends());
            counts.any(|unknown| unknown[end] > 0)
        });
        let settled = first.settle_pairs(&mut spec, &self.directors, has_unknown);
        let settled = settled.await?;
        fault::reached("before-publish")?;
        let replaced = match &self.appended_to {
            Some(table) => {
                let appends: Vec<Append<'_>> = (parts.iter().enumerate())
                    .map(|(number, (load, contents))| Append {
                        load: *load,
                        table,
                        contents: *contents,
                        unsettled: match number {
                            0 => self.family.unsettled(),
                            _ => &[],
                        },
                        replaces: &[],
                    })
                    .collect();
                self.catalog.append_all(&appends, &[], &[]).await?;
                Vec::new()
            }
            None => {
                let database = NewDatabase {
                    name: self.request.database.clone(),
                    stripes: cut.stripes,
                    sub_stripes: cut.sub_stripes,
                    overlap_deg: cut.overlap_deg,
                };
                let published = self.catalog.publish_parts(&database, &spec, &parts);
                published.await?
            }
        };
        drop(settled);
        // The table is visible from here on: what fails below must not undo the load.
        if let Err(error) = fault::reached("after-publish") {
            tracing::warn!(%error, "the load is published");
        }
        let mut without_rows = Vec::new();
        let shares = std::mem::take(&mut self.shares).into_iter().enumerate();
        for (number, share) in shares {
            if !shown.contains(&number) {
                without_rows.push(self.of_load(share.load, share.files));
            }
        }
        for transaction in without_rows {
            transaction.roll_back().await;
        }
        report.elapsed = self.started.elapsed();
        Ok(first.remove_replaced(report, replaced).await)
    }

    /// Leaves nothing of the load.
    pub async fn roll_back(mut self) {
        let shares = std::mem::take(&mut self.shares);
        let loads: Vec<LoadId> = shares.iter().map(|share| share.load).collect();
        // Their directories are in use no longer.
        drop(shares);
        for load in loads {
            self.of_load(load, Vec::new()).roll_back().await;
        }
    }

    /// What is declared of the table, which all shares agree on.
    fn spec(&self, reports: &[ShareReport]) -> Result<TableSpec, IngestError> {
        let mut specs = reports.iter().map(|report| &report.manifest.table);
        let Some(spec) = specs.next().filter(|_| reports.len() == self.shares.len()) else {
            return Err(IngestError::Internal);
        };
        let (database, name) = (&self.request.database, &self.request.table);
        let is_ours = (&spec.database, &spec.name) == (database, name);
        match is_ours && specs.all(|other| other == spec) {
            true => Ok(spec.clone()),
            false => Err(IngestError::Internal),
        }
    }

    /// Writes the manifests of parts, and has everything on the disk.
    async fn finish_files(
        &self,
        spec: &TableSpec,
        reports: &[ShareReport],
        shown: &[usize],
    ) -> Result<(), IngestError> {
        let Some((_, cut)) = &self.plan else {
            return Err(IngestError::Internal);
        };
        let mut parts = Vec::new();
        for number in shown {
            let (share, report) = (&self.shares[*number], &reports[*number]);
            let manifest = PartManifest::new(
                share.load,
                spec.clone(),
                as_in_manifests(*cut),
                report.manifest.rows,
                &report.chunks(),
            )
            .with_unknown_ends(report.manifest.unknown_ends);
            let LoadRequest {
                data_dir,
                database,
                table,
                ..
            } = &self.request;
            parts.push((
                manifest,
                LoadDir::open(data_dir, database, table, share.load)?,
            ));
        }
        blocking(move || {
            for (manifest, dir) in parts {
                let spill = dir.path().join(SPILL_DIR);
                if spill.exists() {
                    std::fs::remove_dir_all(&spill)
                        .map_err(|error| IngestError::io("remove", &spill, error))?;
                }
                manifest.write(dir.path())?;
                dir.sync()?;
            }
            fault::reached("manifest-written")
        })
        .await
    }

    fn of_load(&self, load: LoadId, files: Vec<PathBuf>) -> Transaction {
        Transaction {
            catalog: self.catalog.clone(),
            request: LoadRequest {
                files,
                ..self.request.clone()
            },
            load,
            started: self.started,
            appended_to: self.appended_to.clone(),
        }
    }

    fn of_share(&self, number: usize) -> Transaction {
        let share = &self.shares[number];
        self.of_load(share.load, share.files.clone())
    }
}

/// Rejects what one process has to do.
fn check_can_be_shared(request: &LoadRequest) -> Result<(), IngestError> {
    let is_stream = |file: &PathBuf| file.as_os_str() == "-";
    let what = if request.director_database.is_some() {
        "a child of a director in another database"
    } else if request.dry_run {
        "a load on trial (--dry-run)"
    } else if request.new_columns.is_some() {
        "a part with --new-columns"
    } else if request.made.is_some() {
        "what is no file (--headers)"
    } else if request.files.iter().any(is_stream) {
        "standard input"
    } else {
        return Ok(());
    };
    Err(IngestError::Options(format!(
        "workers do not load {what}: load it on the machine of the front end, with --data DIR in the place of --cluster ADDR"
    )))
}

/// The request without what is of this process alone.
fn elsewhere(request: LoadRequest) -> LoadRequest {
    LoadRequest {
        data_dir: PathBuf::new(),
        ..request
    }
}

fn as_in_manifests(cut: Partitioning) -> PartPartitioning {
    PartPartitioning {
        stripes: cut.stripes,
        sub_stripes: cut.sub_stripes,
        overlap_deg: cut.overlap_deg,
    }
}
