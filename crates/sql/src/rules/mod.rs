//! Analysis of logical plans for the value rules, run before any optimisation.

mod guard_values;
mod widen_floats;

pub use guard_values::GuardValues;
pub use widen_floats::WidenFloats;
