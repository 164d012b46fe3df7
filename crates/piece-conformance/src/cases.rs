//! The cases. Each is a law of [`PieceHost`]s.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use engine::{EngineError, PieceJournal, QueryExecution, QueryResult};
use futures::{FutureExt, StreamExt, TryStreamExt};
use sql::Interrupt;

use crate::journal::MemoryJournal;
use crate::probe::{Action, FAILURE, FAILURE_CODE, Probe};
use crate::{OBJECTS, PieceHost, wait_until};

/// A key whose row is in a piece between the first and the last: objects are numbered from the north pole to the south pole.
const IN_THE_MIDDLE: i64 = OBJECTS / 2;

/// A statement that runs on a host.
struct Run {
    execution: Arc<QueryExecution>,
    interrupt: Arc<Interrupt>,
    result: QueryResult,
}

impl Run {
    /// Starts a statement; with a journal the rows of its pieces are kept there.
    async fn start(host: &dyn PieceHost, text: &str, journal: Option<&Arc<MemoryJournal>>) -> Self {
        let execution = match journal {
            Some(journal) => {
                let journal = Arc::clone(journal) as Arc<dyn PieceJournal>;
                host.execution().with_journal(journal)
            }
            None => host.execution(),
        };
        let (execution, interrupt) = (Arc::new(execution), Interrupt::new());
        let starting = async {
            execution.attach();
            let session = host.session();
            let parsed = session.parse_one(text).await?;
            let prepared = session.prepare(text, parsed).await?;
            match journal {
                Some(_) => session.start_journaled(prepared, false),
                None => session.start(prepared),
            }
        };
        let started = interrupt.scope(starting).await;
        let result = started.unwrap_or_else(|error| panic!("{text}: {error}"));
        Self {
            execution,
            interrupt,
            result,
        }
    }

    /// All rows, or why there are not all.
    async fn rows(self) -> Result<Vec<RecordBatch>, EngineError> {
        let rows = self.result.batches.try_collect();
        self.interrupt.scope(rows).await
    }

    /// The same of a statement that may panic, as a server calls it: a panic is the statement's error.
    async fn rows_or_panic(self) -> Result<Vec<RecordBatch>, String> {
        let rows = AssertUnwindSafe(self.rows()).catch_unwind().await;
        match rows {
            Ok(rows) => rows.map_err(|error| error.to_string()),
            Err(_) => Err("a panic".to_owned()),
        }
    }
}

/// The numbers of a column.
fn numbers(batches: &[RecordBatch], column: usize) -> Vec<i64> {
    let of_batch = |batch: &RecordBatch| {
        let column = arrow::compute::cast(batch.column(column), &DataType::Int64).unwrap();
        column.as_primitive::<Int64Type>().values().to_vec()
    };
    batches.iter().flat_map(of_batch).collect()
}

/// Threads compute nothing twice. Others may, where a piece is late: what comes first counts.
fn assert_computed(host: &dyn PieceHost, times: usize, expected: usize) {
    let most = match host.pieces_elsewhere() {
        None => expected,
        Some(_) => 2 * expected,
    };
    assert!((expected..=most).contains(&times), "computed {times} times");
}

fn assert_all_objects(mut ids: Vec<i64>) {
    ids.sort_unstable();
    assert!(
        ids.iter().copied().eq(0..OBJECTS),
        "{} rows are not those of the table",
        ids.len()
    );
}

/// Rows are those of the table, each once; where a journal keeps them, they come in the order of the pieces.
pub async fn all_rows_come_in_the_order_of_the_pieces(host: &dyn PieceHost) {
    let probe = Probe::new(Action::Nothing, 0);
    let text = format!("SELECT {} AS id, chunkId FROM Object", probe.call());
    let rows = Run::start(host, &text, None).await.rows().await.unwrap();
    assert_all_objects(numbers(&rows, 0));
    let journal = Arc::default();
    let run = Run::start(host, &text, Some(&journal)).await;
    let rows = run.rows().await.unwrap();
    assert_all_objects(numbers(&rows, 0));
    let chunks = numbers(&rows, 1);
    assert!(chunks.is_sorted(), "pieces came in another order");
    assert!(
        chunks.first() < chunks.last(),
        "there is more than one chunk"
    );
}

/// No piece is computed twice while nobody fails, each counts once, and others run them where there are others.
pub async fn each_piece_is_done_once(host: &dyn PieceHost) {
    for journal in [None, Some(Arc::<MemoryJournal>::default())] {
        let probe = Probe::new(Action::Nothing, 0);
        let text = format!("SELECT {} AS id FROM Object", probe.call());
        let elsewhere = host.pieces_elsewhere();
        let run = Run::start(host, &text, journal.as_ref()).await;
        let execution = Arc::clone(&run.execution);
        let rows = run.rows().await.unwrap();
        assert_all_objects(numbers(&rows, 0));
        assert_computed(host, probe.rows(), OBJECTS as usize);
        let pieces = execution.pieces();
        assert!(pieces > 5, "there are only {pieces} pieces");
        assert_eq!(execution.pieces_done(), pieces);
        if let Some(journal) = &journal {
            assert_eq!(journal.committed() as u64, pieces);
        }
        if let (Some(before), Some(after)) = (elsewhere, host.pieces_elsewhere()) {
            // Other cases run beside this one.
            assert!(after >= before + pieces, "pieces ran here");
        }
    }
}

/// What pieces give is merged in their order, however they end.
pub async fn sums_are_the_same_to_the_last_bit(host: &dyn PieceHost) {
    let text = "SELECT SUM(flux * ra), AVG(flux / 3) FROM Object WHERE id > 2";
    let mut first = None;
    for at in 0..6 {
        let journal = (at % 2 == 1).then(Arc::default);
        let run = Run::start(host, text, journal.as_ref()).await;
        let rows = run.rows().await.unwrap();
        let bits = |column: usize| {
            let values = rows[0].column(column).as_primitive::<Float64Type>();
            values.value(0).to_bits()
        };
        let bits = (bits(0), bits(1));
        assert_eq!(*first.get_or_insert(bits), bits);
    }
}

/// A piece without rows is done, too, and a statement of such pieces alone has the result of no rows.
pub async fn pieces_without_rows_are_done_too(host: &dyn PieceHost) {
    for (condition, expected) in [("< 0", vec![]), ("= 4711", vec![4711])] {
        for journal in [None, Some(Arc::<MemoryJournal>::default())] {
            let probe = Probe::new(Action::Nothing, 0);
            let call = probe.call();
            let text = format!("SELECT id FROM Object WHERE {call} {condition}");
            let run = Run::start(host, &text, journal.as_ref()).await;
            let execution = Arc::clone(&run.execution);
            let rows = run.rows().await.unwrap();
            assert_eq!(numbers(&rows, 0), expected);
            assert_eq!(execution.pieces_done(), execution.pieces());
            assert_computed(host, probe.rows(), OBJECTS as usize);
        }
        let probe = Probe::new(Action::Nothing, 0);
        let call = probe.call();
        let text = format!("SELECT COUNT(*), SUM(id) FROM Object WHERE {call} {condition}");
        let rows = Run::start(host, &text, None).await.rows().await.unwrap();
        assert_eq!(numbers(&rows, 0), [expected.len() as i64]);
        assert_eq!(rows[0].column(1).null_count(), 1 - expected.len());
    }
}

/// A mistake of one row fails the statement with its own sentence and number: there are never fewer rows.
pub async fn an_error_of_a_piece_fails_the_statement(host: &dyn PieceHost) {
    for journal in [None, Some(Arc::default())] {
        let probe = Probe::new(Action::Fail, IN_THE_MIDDLE);
        for text in [
            format!("SELECT {} AS id FROM Object", probe.call()),
            format!("SELECT SUM({}) FROM Object", probe.call()),
        ] {
            let run = Run::start(host, &text, journal.as_ref()).await;
            let Err(error) = run.rows().await else {
                panic!("{text}: there are rows");
            };
            assert_eq!(error.code(), FAILURE_CODE, "{error}");
            assert!(error.to_string().contains(FAILURE), "{error}");
        }
        // A mistake of the statement is one wherever it runs: nobody else tries.
        assert_computed(host, probe.times(IN_THE_MIDDLE) as usize, 2);
    }
}

/// A panic fails its statement and nothing else.
pub async fn a_panic_in_a_piece_fails_the_statement(host: &dyn PieceHost) {
    for journal in [None, Some(Arc::default())] {
        let probe = Probe::new(Action::Panic, IN_THE_MIDDLE);
        let text = format!("SELECT {} AS id FROM Object", probe.call());
        let run = Run::start(host, &text, journal.as_ref()).await;
        let failed = run.rows_or_panic().await;
        assert!(failed.is_err(), "a piece panicked, and there are rows");
    }
    let text = "SELECT id FROM Object WHERE flux > 0";
    let rows = Run::start(host, text, None).await.rows().await.unwrap();
    assert_all_objects(numbers(&rows, 0));
}

/// A statement that is cancelled fails, and the threads that compute for it stop.
pub async fn a_statement_that_ends_stops_its_pieces(host: &dyn PieceHost) {
    for journal in [None, Some(Arc::default())] {
        let probe = Probe::new(Action::Wait, IN_THE_MIDDLE);
        let text = format!("SELECT SUM({}) FROM Object", probe.call());
        let run = Run::start(host, &text, journal.as_ref()).await;
        let interrupt = Arc::clone(&run.interrupt);
        let end = async {
            wait_until("a piece waits", || probe.waiting() > 0).await;
            interrupt.end();
        };
        let (rows, ()) = tokio::join!(run.rows(), end);
        assert!(rows.is_err(), "a cancelled statement has rows");
        wait_until("the piece stops", || probe.waiting() == 0).await;
        assert_computed(host, probe.times(IN_THE_MIDDLE) as usize, 1);
    }
}

/// Whoever drops the rows, as a connection does that is closed, ends the pieces.
pub async fn rows_that_nobody_reads_stop_the_pieces(host: &dyn PieceHost) {
    for journal in [None, Some(Arc::default())] {
        let probe = Probe::new(Action::Wait, IN_THE_MIDDLE);
        let text = format!("SELECT SUM({}) FROM Object", probe.call());
        let run = Run::start(host, &text, journal.as_ref()).await;
        let waits = wait_until("a piece waits", || probe.waiting() > 0);
        tokio::select! {
            rows = run.rows() => panic!("{} batches came", rows.map_or(0, |it| it.len())),
            () = waits => {}
        }
        wait_until("the piece stops", || probe.waiting() == 0).await;
    }
}

/// A statement has its rows as soon as there are enough, and what still runs for it stops.
pub async fn enough_rows_stop_the_pieces(host: &dyn PieceHost) {
    let probe = Probe::new(Action::Wait, IN_THE_MIDDLE);
    let text = format!("SELECT {} AS id FROM Object LIMIT 5", probe.call());
    let rows = Run::start(host, &text, None).await.rows().await.unwrap();
    assert_eq!(numbers(&rows, 0).len(), 5);
    wait_until("the piece stops", || probe.waiting() == 0).await;
}

/// What a run has committed before it broke off is not computed again; all the rest is, once.
pub async fn a_run_is_taken_up_where_it_was_left(host: &dyn PieceHost) {
    let journal = Arc::<MemoryJournal>::default();
    let probe = Probe::new(Action::Wait, IN_THE_MIDDLE);
    let text = format!("SELECT {} AS id FROM Object", probe.call());
    let mut run = Run::start(host, &text, Some(&journal)).await;
    let interrupt = Arc::clone(&run.interrupt);
    let first = interrupt.scope(run.result.batches.next()).await;
    let first = numbers(&[first.unwrap().unwrap()], 0)[0];
    wait_until("a piece waits", || probe.waiting() > 0).await;
    interrupt.end();
    drop(run);
    wait_until("the piece stops", || probe.waiting() == 0).await;
    probe.release();
    let committed = journal.committed();
    assert!(committed > 0, "no piece is committed");
    let (kept, left) = (probe.times(first), probe.times(IN_THE_MIDDLE));
    let run = Run::start(host, &text, Some(&journal)).await;
    let execution = Arc::clone(&run.execution);
    let rows = run.rows().await.unwrap();
    assert_all_objects(numbers(&rows, 0));
    assert_eq!(execution.pieces_done(), execution.pieces());
    assert_eq!(journal.committed() as u64, execution.pieces());
    assert!(probe.times(IN_THE_MIDDLE) > left);
    assert_eq!(probe.times(first), kept, "a committed piece ran again");
}

/// Pieces of somebody who is lost while they run are run once more by others, and count once.
pub async fn pieces_of_a_lost_runner_run_again(host: &dyn PieceHost) {
    let journal = Arc::<MemoryJournal>::default();
    let probe = Probe::new(Action::Wait, IN_THE_MIDDLE);
    let text = format!("SELECT {} AS id FROM Object", probe.call());
    let run = Run::start(host, &text, Some(&journal)).await;
    let execution = Arc::clone(&run.execution);
    let lose = async {
        wait_until("a piece waits", || probe.waiting() > 0).await;
        // So only those who run this piece run any.
        let others_are_done = || execution.pieces_done() + 1 == execution.pieces();
        wait_until("all others are done", others_are_done).await;
        let is_lost = host.lose_runner();
        if is_lost {
            wait_until("the piece runs again", || probe.times(IN_THE_MIDDLE) == 2).await;
        }
        probe.release();
        is_lost
    };
    let (rows, is_lost) = tokio::join!(run.rows(), lose);
    let rows = rows.unwrap();
    assert_all_objects(numbers(&rows, 0));
    assert_eq!(execution.pieces_done(), execution.pieces());
    assert_eq!(journal.committed() as u64, execution.pieces());
    assert_eq!(probe.times(IN_THE_MIDDLE), 1 + u32::from(is_lost));
}
