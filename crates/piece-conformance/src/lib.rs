//! For tests alone: what holds wherever the pieces of a query run. The same cases run on this process's threads, with and without the
//! scheduler (tests of `queries`), and on the workers of a cluster (tests of `cluster`).
//!
//! ```text
//!   case ──► statement with probe(tag, id) ──► PieceHost: threads | workers ──► rows, journal, execution ──► what the case expects
//!                    └── Probe of the tag: counts rows, and fails, panics or waits at one of them
//! ```
//!
//! May depend on `engine` and what is above it. Invariant: a case knows of a host only what [`PieceHost`] says. Not part of the program.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a failure here is the message of the test that called it"
)]

pub mod cases;
mod journal;
mod probe;
mod tables;

use std::time::{Duration, Instant};

use engine::{QueryExecution, Session};

pub use probe::register_probe;
pub use tables::{OBJECTS, Tables};

/// How long a case waits for what has to happen: generous, as a slow machine is no failure.
const LONGEST: Duration = Duration::from_secs(60);

/// Whatever runs the pieces of statements.
pub trait PieceHost: Sync {
    /// A session on [`Tables`] whose pieces it runs, in which the probe is registered.
    fn session(&self) -> &Session;

    /// A query whose pieces it runs.
    fn execution(&self) -> QueryExecution;

    /// How many pieces others than this process's threads have run; none if only these run pieces.
    fn pieces_elsewhere(&self) -> Option<u64>;

    /// Ends one of those that run pieces for good, in the middle of what it does. Returns whether there is such a one.
    fn lose_runner(&self) -> bool;
}

/// Waits until something is so.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONGEST, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A test of each case, on the host that an expression makes; `$run` gets the case and waits for it.
#[macro_export]
macro_rules! conformance_tests {
    ($run:path) => {
        $crate::conformance_tests! {
            $run;
            all_rows_come_in_the_order_of_the_pieces,
            each_piece_is_done_once,
            sums_are_the_same_to_the_last_bit,
            pieces_without_rows_are_done_too,
            an_error_of_a_piece_fails_the_statement,
            a_panic_in_a_piece_fails_the_statement,
            a_statement_that_ends_stops_its_pieces,
            rows_that_nobody_reads_stop_the_pieces,
            enough_rows_stop_the_pieces,
            a_run_is_taken_up_where_it_was_left,
            pieces_of_a_lost_runner_run_again,
        }
    };
    ($run:path; $($case:ident,)+) => {
        $(
            #[test]
            fn $case() {
                $run(|host| Box::pin($crate::cases::$case(host)));
            }
        )+
    };
}
