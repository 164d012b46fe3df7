//! The cluster's errors, by who has to do something about them.

use datafusion::common::DataFusionError;
use engine::EngineError;

/// What the scheduler says of a stage whose input could not be fetched.
const INPUT_LOST: &str = "most recent failure reason";

/// Why a cluster could not start or answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The question, the catalog or the files: the same error as on one machine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A member of the cluster did not come up.
    #[error(
        "the {member} did not start: {reason}; see whether the machine has ports, memory and temporary space left"
    )]
    Start {
        /// Which member.
        member: &'static str,
        /// What it said.
        reason: String,
    },
    /// The statement is one that only a single process can answer.
    #[error("a cluster cannot answer this: {0}; ask it without the cluster")]
    NotDistributed(String),
    /// Results of a part of the query went with an executor.
    #[error("executors were lost while the query ran: {0}; see what ends them, then ask again")]
    Lost(String),
    /// The query failed on the way to the executors or there.
    #[error("the query failed on the cluster: {0}")]
    Query(String),
}

impl ClusterError {
    pub(crate) fn start(member: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Start {
            member,
            reason: reason.to_string(),
        }
    }

    /// What a distributed run said, without the layers that it came through.
    pub(crate) fn from_run(error: &DataFusionError) -> Self {
        match error.find_root() {
            DataFusionError::Execution(said) if said.contains(INPUT_LOST) => {
                Self::Lost(innermost(said))
            }
            DataFusionError::Execution(said) => Self::Query(innermost(said)),
            other => Self::Query(other.strip_backtrace()),
        }
    }
}

/// The sentence inside of `Job 1 failed: ... DataFusionError(External(ArrowError(CastError("the sentence"))))`, which is how
/// an executor's error arrives; the text itself if it is none.
fn innermost(said: &str) -> String {
    match (said.find("(\""), said.rfind("\")")) {
        (Some(open), Some(close)) if open + 2 <= close => said[open + 2..close]
            .replace("\\\"", "\"")
            .replace("\\n", "\n"),
        _ => said.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_failed_task_is_found() {
        let said = r#"Job 7 failed: Task failed: DataFusionError(Shared(External(CastError("no \"x\" (\"y\")"))))"#;
        assert_eq!(innermost(said), r#"no "x" ("y")"#);
        assert_eq!(innermost("Stream closed"), "Stream closed");
        assert_eq!(innermost("odd \")(\""), "odd \")(\"");
    }
}
