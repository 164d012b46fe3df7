//! What the plan nodes' implementations of `ExecutionPlan` have in common. Each macro stands inside of one.

/// The name of a node whose properties are in its field `properties`, and children by `replace_children`.
macro_rules! plan_node {
    ($name:literal) => {
        fn name(&self) -> &str {
            $name
        }

        fn properties(&self) -> &std::sync::Arc<datafusion::physical_plan::PlanProperties> {
            &self.properties
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>>,
        ) -> datafusion::common::Result<
            std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>,
        > {
            use datafusion::physical_plan::execution_plan::{
                ChildrenPropertiesMode, ReplaceChildrenOptions,
            };
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            self.replace_children(children, options)
        }
    };
}

/// A node that reads no other.
macro_rules! no_children {
    () => {
        fn children(
            &self,
        ) -> Vec<&std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
            vec![]
        }

        fn replace_children(
            self: std::sync::Arc<Self>,
            _: Vec<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>>,
            _: datafusion::physical_plan::execution_plan::ReplaceChildrenOptions,
        ) -> datafusion::common::Result<
            std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>,
        > {
            Ok(self)
        }
    };
}

/// A node that computes no expressions, or none that others may look at.
macro_rules! no_expressions {
    () => {
        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(
                &std::sync::Arc<dyn datafusion::physical_expr::PhysicalExpr>,
            ) -> datafusion::common::Result<
                datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> datafusion::common::Result<datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }
    };
}

/// A node of which nothing is known before it runs.
macro_rules! no_statistics {
    () => {
        fn statistics_from_inputs(
            &self,
            _: &[std::sync::Arc<datafusion::common::Statistics>],
            _: &datafusion::physical_plan::statistics::StatisticsArgs,
        ) -> datafusion::common::Result<std::sync::Arc<datafusion::common::Statistics>> {
            let unknown = datafusion::common::Statistics::new_unknown(&self.schema());
            Ok(std::sync::Arc::new(unknown))
        }
    };
}

/// Has `f` look at expressions until it wants no more.
macro_rules! apply_all {
    ($f:ident, $expressions:expr) => {{
        use datafusion::common::tree_node::TreeNodeRecursion;
        for expression in $expressions {
            if $f(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }};
}

pub(crate) use {apply_all, no_children, no_expressions, no_statistics, plan_node};
