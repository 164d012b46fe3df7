//! Plans of statements that come again with other numbers.
//!
//! ```text
//!   SELECT * FROM Object WHERE objectId = 17       fingerprint: SELECT * FROM Object WHERE objectId = ?
//!      │ the first time: planned as it stands, and its fingerprint remembered
//!      │ the second time: planned with a parameter in the place of the number, and the plan kept
//!      ▼ from then on: the kept plan with the number bound to its parameter, over the pieces that follow from it
//! ```
//!
//! Planning takes longer than reading a few rows. Invariant: a kept plan is right for all values of its parameters, since nothing that
//! made it could see a value: `sql::parameters` says which numbers are parameters, and for the planner these are placeholders of
//! a type and no more. All other numbers are part of the plan's name. Restrictions and pieces are computed from the values at each
//! execution, conditions are evaluated as ever, and estimates alone, which choose between right ways, may look at the first values.
//! A plan holds for one state of the catalog. What it may know besides its statement, as the date, makes it unfit to be kept.
//!
//! Plans are shared by all who ask in one database. When users have rights, the check whether this one may read what the plan reads
//! belongs into [`PlanCache::execute_cached`], before anything of it is used.

mod binding;
mod cached_plan;
mod cheap;
mod fingerprint;
mod key_lookup;
mod parameter;

use std::sync::{Arc, Mutex, PoisonError};

use catalog::CatalogState;
use datafusion::common::ScalarValue;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use quick_cache::sync::Cache;
use sql::{Dialect, Parameter};

use crate::{Archive, EngineError, Prepared};
use cached_plan::{CachedPlan, CachedResult};
pub(crate) use fingerprint::QueryFingerprint;
pub(crate) use parameter::{has_parameters, with_first_values};

/// Plans that are kept; those that are used least give way to others.
const MOST_PLANS: usize = 512;
/// Fingerprints whose parameters are remembered: of each there may be several plans.
const MOST_FINGERPRINTS: usize = 512;

/// The plans of a session.
#[derive(Debug)]
pub(crate) struct PlanCache {
    /// The state of the catalog in which the plans were made.
    state: Mutex<Option<CatalogState>>,
    /// The parameters of statements, by what is left of them without their numbers.
    parameters: Cache<String, Arc<[Parameter]>>,
    /// Plans by their names.
    plans: Cache<String, Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    /// It was asked once.
    Seen,
    Planned(Arc<CachedPlan>),
    /// To be planned every time.
    Uncacheable,
}

/// A statement that is to be planned with parameters.
pub(crate) struct Candidate {
    name: String,
    /// The statement with placeholders for its parameters.
    pub text: String,
    /// The values of these, whose types they have.
    pub values: Vec<ScalarValue>,
    state: CatalogState,
}

impl Default for PlanCache {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            parameters: Cache::new(MOST_FINGERPRINTS),
            plans: Cache::new(MOST_PLANS),
        }
    }
}

impl PlanCache {
    /// Forgets the plans that were made in another state of the catalog: each keeps the files of its tables in being.
    fn follow(&self, state: Option<CatalogState>) -> Option<CatalogState> {
        // A panic elsewhere leaves it whole.
        let mut last = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_none() || *last != state {
            self.plans.clear();
            *last = state;
        }
        state
    }

    /// The result of a statement whose plan is kept. With a bound on the rows that are looked at, only one that comes from a single
    /// piece with no more of them, or from none, and takes a short time for each.
    pub async fn execute_cached(
        &self,
        fingerprint: &QueryFingerprint<'_>,
        archive: &Arc<Archive>,
        most_rows: Option<u64>,
        context: impl FnOnce() -> Arc<TaskContext>,
    ) -> Result<Option<CachedResult>, EngineError> {
        let state = self.follow(archive.catalog().state());
        let Some(parameters) = self.parameters.get(fingerprint.marked()) else {
            return Ok(None);
        };
        let asked = fingerprint.parameterized(&parameters);
        match self.plans.get(asked.name.as_ref()) {
            Some(Entry::Planned(plan)) if Some(plan.state) == state => {
                let result = plan.execute(&asked.values, archive, most_rows, context);
                result.await
            }
            _ => Ok(None),
        }
    }

    /// Notes that a statement is asked. Gives it back where it comes the second time and its plan is worth keeping.
    pub fn candidate(
        &self,
        fingerprint: &QueryFingerprint<'_>,
        dialect: Dialect,
        state: Option<CatalogState>,
    ) -> Option<Candidate> {
        let state = self.follow(state)?;
        let parameters = self
            .parameters
            .get(fingerprint.marked())
            .unwrap_or_else(|| {
                let found = sql::parameters(dialect, fingerprint.text(), fingerprint.numbers());
                let found: Arc<[Parameter]> = found.into();
                let name = fingerprint.marked().to_owned();
                self.parameters.insert(name, Arc::clone(&found));
                found
            });
        let asked = fingerprint.parameterized(&parameters);
        match self.plans.get(asked.name.as_ref()) {
            Some(Entry::Uncacheable) => None,
            Some(Entry::Planned(plan)) if plan.state == state => None,
            Some(Entry::Seen | Entry::Planned(_)) => Some(Candidate {
                text: fingerprint.with_placeholders(&asked.parameters)?,
                name: asked.name.into_owned(),
                values: asked.values,
                state,
            }),
            None => {
                self.plans.insert(asked.name.into_owned(), Entry::Seen);
                None
            }
        }
    }

    /// Keeps the plan of a statement that was planned with parameters; of one that could not be, that it is to be planned each time.
    pub fn insert(&self, candidate: Candidate, prepared: Option<Prepared>) {
        let plan = prepared.and_then(|prepared| CachedPlan::of(prepared, candidate.state));
        let entry = match plan {
            Some(plan) => Entry::Planned(Arc::new(plan)),
            None => Entry::Uncacheable,
        };
        self.plans.insert(candidate.name, entry);
    }
}

impl Candidate {
    /// The optimised plan of the statement with these parameters in the places of its placeholders.
    pub fn with_parameters(&self, plan: LogicalPlan) -> datafusion::common::Result<LogicalPlan> {
        parameter::with_parameters(plan, &self.values)
    }
}
