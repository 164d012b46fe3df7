//! Rows on their way from one operator to another, that come by a check.

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

/// How long a task works before it lets others have their turn. A batch takes a fraction of it.
const TURN: Duration = Duration::from_millis(10);
/// At least what tokio lets a task do in one turn, in its own measure.
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

    /// The same, where nobody wants another result of the statement than these rows.
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
        let _entered = interrupt.enter();
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
    /// The task that has its turn, and since when.
    static TURN_OF: Cell<Option<(Option<Id>, Instant)>> = const { Cell::new(None) };
}

/// Since when the task has its turn.
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

/// The next turn of the task begins now, whatever it has done.
pub(super) fn begin_turn() {
    TURN_OF.set(Some((tokio::task::try_id(), Instant::now())));
}

/// Lets others have their turn where that of the task is over: for loops of our own operators, between two rounds of a few
/// milliseconds.
///
/// # Errors
/// The statement has ended.
pub(crate) async fn give_way() -> Result<()> {
    sql::interrupt::check()?;
    if turn_began().elapsed() >= TURN {
        begin_turn();
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Whether the task may go on. Where its turn is over, tokio's own measure of turns is used up as well: whatever else the task
/// polls before it returns then waits too, and an operator with several inputs does not just go on with the next.
fn is_our_turn(context: &mut Context<'_>) -> bool {
    if turn_began().elapsed() < TURN {
        return true;
    }
    begin_turn();
    for _ in 0..MORE_THAN_A_BUDGET {
        match coop::poll_proceed(context) {
            Poll::Ready(proceed) => proceed.made_progress(),
            // The task is woken when others have had their turn.
            Poll::Pending => return false,
        }
    }
    // Outside tokio's tasks nothing is measured.
    context.waker().wake_by_ref();
    false
}
