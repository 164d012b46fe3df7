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
//! and all, became the same by putting one's into the other. The kept plans hold for one state of the catalog; pieces are
//! looked up and filters evaluated as ever. What a plan may know besides its text, as the date, makes it unfit to be kept.

mod substitution;
mod template;
mod wording;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use catalog::CatalogState;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::stream::{BoxStream, StreamExt};

use crate::exec::bind_to_piece;
use crate::{Archive, EngineError, Prepared};
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
    /// To be planned every time.
    Never,
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

    /// The answer, if the wording is known well enough.
    pub async fn answer(
        &self,
        wording: &Wording,
        archive: &Arc<Archive>,
        context: impl FnOnce() -> Arc<TaskContext>,
    ) -> Result<Option<KnownAnswer>, EngineError> {
        let known = self.lock().known.get(&wording.text).cloned();
        let Some(Known::Planned(template, _)) = known else {
            return Ok(None);
        };
        let Some(ready) = template.ready(&wording.numbers, archive).await? else {
            return Ok(None);
        };
        let failed = |error| EngineError::from_run(&error);
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
        let template = Template::of(prepared, archive, wording.numbers).await?;
        let before = self.lock().known.get(&wording.text).cloned();
        let now = match (before, template) {
            (Some(Known::Never), _) | (_, None) => Known::Never,
            (None, Some(template)) => Known::Planned(Arc::new(template), 0),
            (Some(Known::Planned(before, failures)), Some(template)) => {
                match before.with(&template, archive).await? {
                    Some(both) => Known::Planned(Arc::new(both), 0),
                    None if failures + 1 >= MOST_FAILURES => Known::Never,
                    None => Known::Planned(Arc::new(template), failures + 1),
                }
            }
        };
        let known = &mut self.lock().known;
        if known.len() >= MOST_WORDINGS {
            known.clear();
        }
        known.insert(wording.text, now);
        Ok(())
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
