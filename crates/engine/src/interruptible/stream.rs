//! A stream of rows between two operators that checks for interruption.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::stream::{Stream, StreamExt};
use sql::Interrupt;
use tokio::task::{Id, coop};

/// How long a task runs before it yields. A batch takes a fraction of it.
const TURN: Duration = Duration::from_millis(10);
/// At least tokio's cooperative budget for one poll of a task.
const MORE_THAN_A_BUDGET: usize = 256;

/// The rows of an operator, until the statement ends.
pub(super) struct InterruptibleStream {
    rows: SendableRecordBatchStream,
    interrupt: Arc<Interrupt>,
    ends_statement: bool,
    is_over: bool,
}

impl InterruptibleStream {
    pub fn new(rows: SendableRecordBatchStream, interrupt: &Arc<Interrupt>) -> Self {
        Self {
            rows,
            interrupt: Arc::clone(interrupt),
            ends_statement: false,
            is_over: false,
        }
    }

    /// The same as the only result of the statement: dropping it ends the statement.
    pub fn ending_statement(mut self) -> Self {
        self.ends_statement = true;
        self
    }
}

impl Drop for InterruptibleStream {
    fn drop(&mut self) {
        if self.ends_statement {
            self.interrupt.end();
        }
    }
}

impl Stream for InterruptibleStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if !self.interrupt.is_ended() && !is_our_turn(context) {
            return Poll::Pending;
        }
        let interrupt = Arc::clone(&self.interrupt);
        let _guard = interrupt.enter();
        if let Err(error) = sql::interrupt::check() {
            self.is_over = true;
            return Poll::Ready(Some(Err(error)));
        }
        self.rows.poll_next_unpin(context)
    }
}

impl RecordBatchStream for InterruptibleStream {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

thread_local! {
    /// The task that runs on this thread, and since when.
    static TURN_OF: Cell<Option<(Option<Id>, Instant)>> = const { Cell::new(None) };
}

/// When the task's time slice began.
pub(super) fn turn_began() -> Instant {
    let (task, now) = (tokio::task::try_id(), Instant::now());
    match TURN_OF.get() {
        Some((of, began)) if of == task => began,
        _ => {
            TURN_OF.set(Some((task, now)));
            now
        }
    }
}

/// Begins a new time slice of the task.
pub(super) fn begin_turn() {
    TURN_OF.set(Some((tokio::task::try_id(), Instant::now())));
}

/// Yields if the task's time slice is over: for loops of our own operators, between two iterations of a few milliseconds.
///
/// # Errors
/// The statement has ended.
pub(crate) async fn yield_if_due() -> Result<()> {
    sql::interrupt::check()?;
    if turn_began().elapsed() >= TURN {
        begin_turn();
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Whether the task may continue. If its time slice is over, tokio's cooperative budget is used up as well: then everything that the task
/// polls before it returns is pending too, and an operator with several inputs does not continue with the next one.
fn is_our_turn(context: &mut Context<'_>) -> bool {
    if turn_began().elapsed() < TURN {
        return true;
    }
    begin_turn();
    for _ in 0..MORE_THAN_A_BUDGET {
        match coop::poll_proceed(context) {
            Poll::Ready(proceed) => proceed.made_progress(),
            // The task is woken after others have run.
            Poll::Pending => return false,
        }
    }
    // Outside of tokio's tasks there is no budget.
    context.waker().wake_by_ref();
    false
}
