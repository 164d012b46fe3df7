//! Questions that are asked again and again with other numbers: planned once for each wording.
//!
//! ```text
//!   SELECT * FROM Object WHERE objectId = 17          wording: SELECT * FROM Object WHERE objectId = ?, numbers: 17
//!      │ first time: planned, and the plan kept
//!      │ second time, another number: planned, and compared with the kept plan with the other number put into it
//!      ▼ from then on, if they were the same: the kept plan with the number put into it, over the pieces that follow from it
//! ```
//!
//! Planning takes longer than reading a few rows. Invariant: an answer is what planning would have given. Which numbers may
//! be others is never guessed from the text: a number is free once two plans that differ in it, conditions, filters, pieces
//! and all, became the same by putting one's into the other. A plan that lacks a number of the statement's conditions, since one
//! decided the other, as of `x > 5 AND x > 17`, is not kept: with others in their places it may be the other way round
//! (`numbers.rs`). The kept plans hold for one state of the catalog; pieces are looked up and filters evaluated as ever; of a
//! statement that asks for the rows of one key and no more, the rows are found without its
//! plan, and each one's key compared. A plan that reads nothing, as that of a `count(*)` which the catalog answered, is kept as
//! it is. What a plan may know besides its text, as the date, makes it unfit to be kept.

mod key_lookup;
mod numbers;
mod quick;
mod substitution;
mod template;
mod wording;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use catalog::CatalogState;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::stream::{self, BoxStream, StreamExt};

use crate::exec::bind_to_piece;
use crate::{Archive, EngineError, Prepared};
use quick::is_quick;
use template::Template;
pub(crate) use wording::Wording;

/// Wordings that are kept; when there are more, all are forgotten.
const MOST_WORDINGS: usize = 512;
/// Plans in a row that did not become each other, after which a wording is planned every time.
const MOST_FAILURES: u8 = 3;

/// The wordings that were met.
#[derive(Debug, Default)]
pub(crate) struct KnownWordings {
    known: Mutex<Wordings>,
}

#[derive(Debug, Default)]
struct Wordings {
    /// The state of the catalog in which they were met.
    state: Option<CatalogState>,
    known: HashMap<String, Known>,
}

#[derive(Debug, Clone)]
enum Known {
    /// Planned, and how many of its plans before did not fit.
    Planned(Arc<Template>, u8),
    /// It reads no rows: the catalog, whose state is the same, has told the planner what is asked, as a `count(*)`.
    ReadsNothing(Arc<ReadsNothing>),
    /// To be planned every time.
    Never,
}

/// The plan of a statement that reads no rows.
#[derive(Debug)]
struct ReadsNothing {
    /// The numbers of its text.
    typed: Vec<String>,
    plan: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    /// Whether it takes a short time.
    is_quick: bool,
}

/// Whether nothing but the text and the state of the catalog decides the answer.
fn reads_nothing(prepared: &Prepared) -> bool {
    let reads_nothing = |leaf: &Arc<dyn ExecutionPlan>| {
        leaf.is::<PlaceholderRowExec>() || leaf.is::<ProjectionExec>()
    };
    let mut node = &prepared.plan;
    while reads_nothing(node) {
        match node.children().as_slice() {
            [] => return !template::depends_on_the_moment(&prepared.logical),
            [child] => node = child,
            _ => return false,
        }
    }
    false
}

impl KnownWordings {
    /// Forgets what was met in another state of the catalog: a kept plan keeps the files of its load in being.
    pub fn follow(&self, state: Option<CatalogState>) {
        let mut wordings = self.lock();
        if state.is_none() || wordings.state != state {
            wordings.known.clear();
            wordings.state = state;
        }
    }

    /// The answer, if the wording is known well enough. With a bound on the rows that are looked at, only one that comes from a
    /// single piece with no more of them, or from none, and takes a short time for each.
    pub async fn answer(
        &self,
        wording: &Wording,
        archive: &Arc<Archive>,
        most_rows: Option<u64>,
        context: impl FnOnce() -> Arc<TaskContext>,
    ) -> Result<Option<KnownAnswer>, EngineError> {
        let known = self.lock().known.get(&wording.text).cloned();
        let failed = |error| EngineError::from_run(&error);
        let short = most_rows.is_some();
        let template = match known {
            Some(Known::Planned(template, _)) => template,
            Some(Known::ReadsNothing(known)) if known.typed == wording.typed => {
                if short && !known.is_quick {
                    return Ok(None);
                }
                let batches = execute_stream(Arc::clone(&known.plan), context()).map_err(failed)?;
                return Ok(Some(KnownAnswer {
                    schema: Arc::clone(&known.schema),
                    batches: batches.boxed(),
                    plan: Arc::clone(&known.plan),
                }));
            }
            _ => return Ok(None),
        };
        if short && !template.is_quick {
            return Ok(None);
        }
        if let Some(rows) = template.look_up(wording, archive, most_rows).await? {
            return Ok(Some(KnownAnswer {
                schema: Arc::clone(&template.schema),
                batches: stream::iter((rows.num_rows() > 0).then_some(Ok(rows))).boxed(),
                plan: Arc::clone(&template.plan),
            }));
        }
        let Some(ready) = template.ready(wording, archive).await? else {
            return Ok(None);
        };
        if let Some(most_rows) = most_rows
            && !ready.looks_at_most(most_rows).await?
        {
            return Ok(None);
        }
        let batches = match &ready.only {
            // On the thread that asks: a piece that reads a row is done sooner than another task has begun.
            Some((inner, piece)) => bind_to_piece(inner, piece)
                .and_then(|bound| bound.execute(0, context()))
                .map_err(failed)?,
            None => execute_stream(Arc::clone(&ready.plan), context()).map_err(failed)?,
        };
        Ok(Some(KnownAnswer {
            schema: Arc::clone(&template.schema),
            batches: batches.boxed(),
            plan: ready.plan,
        }))
    }

    /// Whether there is something to learn from the plan of a wording.
    pub fn may_learn(&self, wording: &Wording) -> bool {
        !matches!(self.lock().known.get(&wording.text), Some(Known::Never))
    }

    /// Learns from a question that was planned.
    ///
    /// # Errors
    /// Those of looking the table up.
    pub async fn learn(
        &self,
        wording: Wording,
        archive: &Arc<Archive>,
        prepared: &Prepared,
    ) -> Result<(), EngineError> {
        if reads_nothing(prepared) {
            let known = ReadsNothing {
                typed: wording.typed,
                plan: Arc::clone(&prepared.plan),
                schema: Arc::clone(&prepared.schema),
                is_quick: is_quick(&prepared.plan),
            };
            self.put(wording.text, Known::ReadsNothing(Arc::new(known)));
            return Ok(());
        }
        let template = Template::of(prepared, archive, &wording).await?;
        let before = self.lock().known.get(&wording.text).cloned();
        let now = match (before, template) {
            (Some(Known::Never), _) | (_, None) => Known::Never,
            (None | Some(Known::ReadsNothing(_)), Some(template)) => {
                Known::Planned(Arc::new(template), 0)
            }
            (Some(Known::Planned(before, failures)), Some(template)) => {
                match before.with(&template, archive).await? {
                    Some(both) => Known::Planned(Arc::new(both), 0),
                    None if failures + 1 >= MOST_FAILURES => Known::Never,
                    None => Known::Planned(Arc::new(template), failures + 1),
                }
            }
        };
        self.put(wording.text, now);
        Ok(())
    }

    fn put(&self, text: String, now: Known) {
        let known = &mut self.lock().known;
        if known.len() >= MOST_WORDINGS {
            known.clear();
        }
        known.insert(text, now);
    }

    /// A panic elsewhere leaves the map whole: every change is a single one.
    fn lock(&self) -> MutexGuard<'_, Wordings> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer on its way.
pub(crate) struct KnownAnswer {
    /// The columns under their headings.
    pub schema: SchemaRef,
    /// The rows, whose columns have the plan's own names.
    pub batches: BoxStream<'static, datafusion::common::Result<RecordBatch>>,
    /// The plan that gives them.
    pub plan: Arc<dyn ExecutionPlan>,
}
