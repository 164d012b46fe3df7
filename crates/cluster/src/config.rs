//! The configurations under which plans for a cluster are made, cut into stages, and run.

use ballista_core::extension::SessionConfigExt;
use ballista_core::optimizer::with_ballista_optimizer_rules;
use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use engine::Settings;

/// The largest message between members, in bytes: it bounds the size of a plan, thus of the list of pieces in it.
pub(crate) const MESSAGE_BYTES: u32 = 64 << 20;

/// A configuration whose plans can be cut into stages and sent: no dynamic filters, no subqueries that share results in
/// memory, no round-robin partitions.
pub(crate) fn travelling(config: SessionConfig) -> SessionConfig {
    config
        .upgrade_for_ballista()
        .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES as usize)
        // Ballista would rather sort and merge. The engine knows the joins that stay within a piece as hash joins; only
        // what is left above the phases is at stake.
        .set_bool("datafusion.optimizer.prefer_hash_join", true)
}

/// Makes a session plan for a cluster.
pub(crate) fn plan_for_cluster(context: &SessionContext) {
    let state = context.state();
    let rules = with_ballista_optimizer_rules(state.optimizers());
    let config = travelling(state.config().clone());
    let state = SessionStateBuilder::new_from_existing(state)
        .with_config(config)
        .with_optimizer_rules(rules)
        .build();
    *context.state_ref().write() = state;
}

/// The configuration that a member starts from; a query's own settings come with the query.
pub(crate) fn member_config() -> SessionConfig {
    travelling(SessionConfig::new().with_option_extension(Settings::default()))
}

/// A state for members, which read plans and never make any: the functions that plans refer to.
pub(crate) fn member_state(config: SessionConfig) -> Result<SessionState> {
    let mut state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .build();
    for function in sql::functions::all() {
        state.register_udf(function)?;
    }
    for function in sql::functions::all_aggregates() {
        state.register_udaf(function)?;
    }
    Ok(state)
}
