//! The milestone of a piece that runs here.

use std::sync::Arc;

use crate::milestones::HERE;
use crate::{HandedOut, Milestones, QueryExecution};

/// The milestone of a piece, from its beginning to its end. Dropping it ends it.
pub(super) struct PieceMilestone(Option<(Arc<QueryExecution>, HandedOut)>);

impl PieceMilestone {
    /// A piece of a phase, by the phase's number, begins that was handed out before.
    pub fn begin(
        execution: Option<&Arc<QueryExecution>>,
        phase: u32,
        handed_out: i64,
    ) -> PieceMilestone {
        Self(execution.map(|execution| {
            let milestones = execution.milestones();
            let handed_out = milestones.hand_out(phase, HERE, 1, handed_out);
            milestones.start(handed_out);
            (Arc::clone(execution), handed_out)
        }))
    }

    /// Notes that rows have come.
    pub fn rows(&self) {
        self.note(Milestones::rows);
    }

    /// Notes that the piece is done.
    pub fn done(&self) {
        self.note(Milestones::piece_done);
    }

    fn note(&self, what: fn(&Milestones, HandedOut)) {
        if let Some((execution, handed_out)) = &self.0 {
            what(execution.milestones(), *handed_out);
        }
    }
}

impl Drop for PieceMilestone {
    fn drop(&mut self) {
        self.note(Milestones::end);
    }
}
