//! The plan cache: plans of statements that are repeated with other numbers.
//!
//! ```text
//!   SELECT * FROM Object WHERE objectId = 17       fingerprint: SELECT * FROM Object WHERE objectId = ?
//!      │ the first execution: planned with its values, and its fingerprint recorded
//!      │ the second execution: planned with a parameter instead of the number, and the plan cached
//!      ▼ later executions: the cached plan with the number bound to its parameter, over the pieces that follow from it
//! ```
//!
//! Planning takes longer than reading a few rows. Invariant: a cached plan is correct for all values of its parameters, because no code
//! that built it could read a value: `sql::parameters` decides which numbers are parameters, and the planner sees placeholders with a type
//! only. All other numbers are part of the fingerprint. Restrictions and pieces are computed from the values at each execution, and
//! conditions are evaluated as always; only estimates, which choose between correct alternatives, may use the first values. A plan is valid
//! for one state of the catalog. A plan that depends on anything else than its statement, such as the date, is not cached.
//!
//! All connections of a database share its plans. When there are users with privileges, [`PlanCache::execute_cached`] is the place to
//! check them, before it uses anything of the plan.

mod binding;
mod cached_plan;
mod cheap;
mod decimals;
mod fingerprint;
mod key_lookup;
mod parameter;

use std::sync::{Arc, Mutex, PoisonError};

use catalog::CatalogState;
use datafusion::common::ScalarValue;
use datafusion::common::plan_err;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;
use quick_cache::sync::Cache;
use sql::{Dialect, Parameter};

use crate::{Archive, EngineError, PreparedQuery};
use cached_plan::{CachedPlan, CachedResult};
pub(crate) use fingerprint::QueryFingerprint;
pub(crate) use parameter::{has_parameters, with_first_values};

/// Plans in the cache; the least used ones are evicted.
const MOST_PLANS: usize = 512;
/// Fingerprints whose parameters are recorded: each may have several plans.
const MOST_FINGERPRINTS: usize = 512;

/// The plan cache of a session.
#[derive(Debug)]
pub(crate) struct PlanCache {
    /// The state of the catalog for which the plans are valid.
    state: Mutex<Option<CatalogState>>,
    /// The parameters of statements, by their texts without numbers.
    parameters: Cache<String, Arc<[Parameter]>>,
    /// The plans, by their fingerprints.
    plans: Cache<String, Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    /// The statement was executed once.
    Seen,
    Planned(Arc<CachedPlan>),
    /// The statement has to be planned at every execution.
    Uncacheable,
}

/// A statement that should be planned with parameters.
pub(crate) struct Candidate {
    name: String,
    /// The statement with placeholders for its parameters.
    pub text: String,
    /// The values of the parameters, which determine their types.
    pub values: Vec<ScalarValue>,
    /// Whether they may have more digits than a double tells apart.
    is_long: bool,
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
    /// Discards the plans of another state of the catalog: each keeps the files of its tables alive.
    fn follow(&self, state: Option<CatalogState>) -> Option<CatalogState> {
        // A panic in another thread leaves it consistent.
        let mut last = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_none() || *last != state {
            self.plans.clear();
            *last = state;
        }
        state
    }

    /// The result of a statement whose plan is cached. With a bound on the scanned rows, only if they come from a single chunk that has
    /// no more of them, or from none, and each takes little time.
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
        let parameterized = fingerprint.parameterized(&parameters);
        match self.plans.get(parameterized.name.as_ref()) {
            Some(Entry::Planned(plan)) if Some(plan.state) == state => {
                let result = plan.execute(&parameterized.values, archive, most_rows, context);
                result.await
            }
            _ => Ok(None),
        }
    }

    /// Records an execution of a statement. Returns it at the second execution, if its plan is worth caching.
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
        let parameterized = fingerprint.parameterized(&parameters);
        match self.plans.get(parameterized.name.as_ref()) {
            Some(Entry::Uncacheable) => None,
            Some(Entry::Planned(plan)) if plan.state == state => None,
            Some(Entry::Seen | Entry::Planned(_)) => Some(Candidate {
                text: fingerprint.with_placeholders(&parameterized.parameters)?,
                name: parameterized.name.into_owned(),
                values: parameterized.values,
                is_long: parameterized.is_long,
                state,
            }),
            None => {
                self.plans
                    .insert(parameterized.name.into_owned(), Entry::Seen);
                None
            }
        }
    }

    /// Caches the plan of a statement that was planned with parameters; if that failed, records that it has to be planned at every
    /// execution.
    pub fn insert(&self, candidate: Candidate, prepared: Option<PreparedQuery>) {
        let plan = prepared.and_then(|prepared| CachedPlan::of(prepared, candidate.state));
        let entry = match plan {
            Some(plan) => Entry::Planned(Arc::new(plan)),
            None => Entry::Uncacheable,
        };
        self.plans.insert(candidate.name, entry);
    }
}

impl Candidate {
    /// The optimised plan of the statement with these parameters instead of its placeholders.
    ///
    /// # Errors
    /// A parameter of many digits stands in a plan with decimals, with which it would be compared by its digits.
    pub fn with_parameters(&self, plan: LogicalPlan) -> datafusion::common::Result<LogicalPlan> {
        if self.is_long && decimals::occur_in(&plan)? {
            return plan_err!("a number of many digits may be compared with a decimal");
        }
        parameter::with_parameters(plan, &self.values)
    }
}
