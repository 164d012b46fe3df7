//! Meridian's plans on Apache Ballista: the same questions and answers as `engine`, on many executors.
//!
//! A session plans as it does on one machine, under a configuration whose plans can travel; the finished physical plan goes
//! to Ballista's scheduler, which cuts it into stages and pushes their tasks to executors. What is ours here is the codec's
//! place in all three, what has to be changed in a plan before tasks may share it, and a whole cluster in one process.
//!
//! ```text
//!   text ──► engine: logical plan, chunk phases ──► share_out ──► scheduler ──► executors ──► batches
//!                          (in the client)                           stages        tasks
//! ```
//!
//! May depend on everything below it (`sky` to `engine`); knows nothing of users or front doors. Invariants: no plan is made
//! in the scheduler; nothing but a node with a codec leaves the client; a member of the cluster is gone with its runtime.

mod config;
mod error;
mod executor;
mod local;
mod node;
mod scheduler;
mod session;
mod share_out;
mod slots;

pub use error::ClusterError;
pub use local::{ClusterOptions, LocalCluster};
pub use session::ClusterSession;
