//! DataFusion's own physical rules, with guards where they are wrong, and the rules of ours that run wherever they do.
//!
//! A guard replaces a rule by the rule's name. A missing rule is an error when a session starts: without its guard a later result could be
//! wrong.

use std::sync::Arc;

use datafusion::common::{Result, plan_datafusion_err};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

use super::bound_top_groups::BoundTopGroups;
use super::distinct_members;
use super::drop_group_limits::DropGroupLimits;
use super::push_filters::PushFilters;

pub(crate) type Rules = Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>;

/// DataFusion's rules in their order, guarded, with ours.
///
/// # Errors
/// This version of DataFusion lacks a rule that has a guard.
pub(crate) fn engine_rules() -> Result<Rules> {
    let mut rules = PhysicalOptimizer::new().rules;
    PushFilters::guard(&mut rules)?;
    BoundTopGroups::guard(&mut rules)?;
    distinct_members::insert(&mut rules)?;
    rules.push(Arc::new(DropGroupLimits));
    Ok(rules)
}

/// Where the rule of a name is among rules whose names are `names`.
///
/// # Errors
/// There is none.
pub(crate) fn place_of<'a>(mut names: impl Iterator<Item = &'a str>, name: &str) -> Result<usize> {
    names.position(|other| other == name).ok_or_else(|| {
        plan_datafusion_err!(
            "the query engine has no rule {name}: this build of Meridian does not fit its version of DataFusion"
        )
    })
}

/// Where the physical rule of a name is.
///
/// # Errors
/// There is none.
pub(crate) fn place_of_rule(rules: &Rules, name: &str) -> Result<usize> {
    place_of(rules.iter().map(|rule| rule.name()), name)
}
