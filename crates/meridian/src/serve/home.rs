//! Copies beside queries: where chunk files have their home in an object store, a server has another process copy what was published.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backup::home::{Home, HomeError};
use catalog::{Catalog, CatalogState};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::beside::run_beside;
use crate::compact::Rate;
use crate::failure::Failure;
use crate::home_commands::BUSY;

/// How often it is looked whether anything was published.
const LOOK: Duration = Duration::from_secs(5);
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(60);
/// How often the store is looked through for objects of parts that are gone.
const CLEAN_UP: Duration = Duration::from_secs(600);
/// How often it is done although nothing was published: statements bring files back, by which the cache may grow too large.
const AT_LEAST: Duration = Duration::from_secs(3600);

/// Workers would not find files that are at home.
///
/// # Errors
/// The chunk files have a home.
pub(super) fn expect_none(data: &Path) -> Result<(), Failure> {
    match Home::read(data)? {
        None => Ok(()),
        Some(home) => Err(Failure::new(format!(
            "the chunk files of {} have their home at {}, which is not for clusters: serve without --cluster, or bring the files back with \
             `meridian home unset --data {}`",
            data.display(),
            home.url,
            data.display()
        ))),
    }
}

/// What there was to copy when it was copied last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    home: Home,
    state: Option<CatalogState>,
}

/// Copies what is published until the server stops, which ends a copy: what was copied counts.
pub(super) async fn push_regularly(data: PathBuf, rate: Rate, stop: CancellationToken) {
    let mut pushing = Pushing::new(data, rate);
    let mut pause = LOOK;
    while let Some(()) = stop.run_until_cancelled(sleep(pause)).await {
        pause = match pushing.look(&stop).await {
            Ok(()) => {
                pushing.told = None;
                LOOK
            }
            Err(problem) => {
                // A store that is down stays so for a while: it is told of once.
                if pushing.told.as_ref() != Some(&problem) {
                    warn!(problem, "chunk files could not be copied to their home");
                }
                pushing.told = Some(problem);
                PAUSE
            }
        };
    }
    if let Some(catalog) = &pushing.catalog {
        catalog.close().await;
    }
}

struct Pushing {
    data: PathBuf,
    rate: Rate,
    /// Open while there is a home.
    catalog: Option<Catalog>,
    done: Option<(Seen, Instant)>,
    /// When the store was looked through last, and in which state of the catalog.
    cleaned_up: Option<(Option<CatalogState>, Instant)>,
    told: Option<String>,
}

impl Pushing {
    fn new(data: PathBuf, rate: Rate) -> Self {
        Self {
            data,
            rate,
            catalog: None,
            done: None,
            cleaned_up: None,
            told: None,
        }
    }

    /// Copies what is new, if anything may be.
    async fn look(&mut self, stop: &CancellationToken) -> Result<(), String> {
        let home = Home::read(&self.data).map_err(|error| error.to_string())?;
        let Some(home) = home.filter(|home| !home.is_ending) else {
            self.done = None;
            return Ok(());
        };
        let state = self.state().await?;
        let seen = Seen { home, state };
        let is_done = { self.done.as_ref() }
            .is_some_and(|(done, at)| state.is_some() && *done == seen && at.elapsed() < AT_LEAST);
        // Parts that are gone may have objects, if the catalog has changed since.
        let cleans_up = { self.cleaned_up.as_ref() }.is_none_or(|(cleaned, at)| {
            at.elapsed() >= CLEAN_UP && (!is_done || *cleaned != state)
        });
        if is_done && !cleans_up {
            return Ok(());
        }
        if self.push(cleans_up, stop).await? {
            let now = Instant::now();
            self.done = Some((seen, now));
            if cleans_up {
                self.cleaned_up = Some((state, now));
            }
        }
        Ok(())
    }

    /// The state of the catalog before anything is copied, so that what is published meanwhile is copied the next time.
    async fn state(&mut self) -> Result<Option<CatalogState>, String> {
        if self.catalog.is_none() {
            let opened = Catalog::open(&self.data).await.map_err(HomeError::from);
            self.catalog = Some(opened.map_err(|error| error.to_string())?);
        }
        Ok(self.catalog.as_ref().and_then(Catalog::state))
    }

    /// Has another process copy. Whether all is done.
    async fn push(&self, cleans_up: bool, stop: &CancellationToken) -> Result<bool, String> {
        let rate = match self.rate {
            Rate(Some(bytes)) => bytes.to_string(),
            Rate(None) => "none".to_owned(),
        };
        let mut arguments = vec!["home", "push", "--quiet", "--no-wait", "--rate", &rate];
        if !cleans_up {
            arguments.push("--no-clean-up");
        }
        let ended = run_beside(&arguments, &self.data, stop).await;
        match ended.map_err(|error| error.to_string())? {
            None => Ok(false),
            Some((status, _)) if status.success() => {
                debug!("chunk files are at home");
                Ok(true)
            }
            // Another process does it: then it is looked again.
            Some((status, _)) if status.code() == Some(i32::from(BUSY)) => Ok(false),
            Some((_, complaint)) => Err(complaint),
        }
    }
}
