//! Running queries: whose pieces run when.
//!
//! [`scheduler`] decides which piece of which query gets the next free thread of this process. It knows queries by their
//! number and pieces by the number of their chunk; it does not know what a piece reads or computes, and depends on no other
//! crate of ours.

pub mod scheduler;
