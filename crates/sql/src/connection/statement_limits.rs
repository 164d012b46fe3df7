//! What a connection sets of how far its statements go: how often a recursion repeats, and how long what GROUP_CONCAT gives is.
//!
//! Both are written into a statement when it is read. Plans of other connections do not stand for one that has set them. A statement that is
//! submitted takes them along.

use super::{VariableValue, Variables};
use crate::SqlError;
use crate::recursion::{DEFAULT_DEPTH, DEPTH_VARIABLE};

/// The variable that says how many bytes GROUP_CONCAT gives at most.
const GROUP_CONCAT_VARIABLE: &str = "group_concat_max_len";
/// Its default, by which nothing is cut: what is longer than any value may be is an error.
const LONGEST_GROUP_CONCAT: u64 = 4_294_967_295;

/// What a connection has set of both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatementLimits {
    /// How often a recursive WITH may repeat (`cte_max_recursion_depth`).
    pub recursion_depth: Option<u64>,
    /// The bytes that GROUP_CONCAT gives at most (`group_concat_max_len`).
    pub group_concat_bytes: Option<u64>,
}

impl Variables {
    /// What is set of both.
    pub fn statement_limits(&self) -> StatementLimits {
        StatementLimits {
            recursion_depth: self.recursion_depth(),
            group_concat_bytes: self.group_concat_bytes(),
        }
    }

    /// Sets both as another connection had them.
    ///
    /// # Errors
    /// A number that cannot be set.
    pub fn set_statement_limits(&mut self, limits: StatementLimits) -> Result<(), SqlError> {
        let number = |most: Option<u64>| most.map(VariableValue::Number);
        self.set(DEPTH_VARIABLE, number(limits.recursion_depth))?;
        self.set(GROUP_CONCAT_VARIABLE, number(limits.group_concat_bytes))
    }

    /// How often a recursive WITH may repeat, where the connection has set that (`cte_max_recursion_depth`).
    pub(crate) fn recursion_depth(&self) -> Option<u64> {
        let depth = self.own_number(DEPTH_VARIABLE);
        (depth != DEFAULT_DEPTH).then_some(depth)
    }

    /// The bytes that GROUP_CONCAT gives at most, where the connection has set that (`group_concat_max_len`).
    pub(crate) fn group_concat_bytes(&self) -> Option<u64> {
        /// MySQL takes less for that.
        const LEAST: u64 = 4;
        let bytes = self.own_number(GROUP_CONCAT_VARIABLE);
        (bytes != LONGEST_GROUP_CONCAT).then_some(bytes.max(LEAST))
    }

    /// Whether one of the two is set.
    pub(super) fn change_statements(&self) -> bool {
        self.recursion_depth().is_some() || self.group_concat_bytes().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_there_where_they_are_set() {
        let mut variables = Variables::default();
        // The table of variables has the same defaults.
        assert!(!variables.change_results());
        let number = |number| Some(VariableValue::Number(number));
        variables.set(DEPTH_VARIABLE, number(7)).unwrap();
        assert_eq!(variables.recursion_depth(), Some(7));
        assert!(variables.change_results());
        variables.set(DEPTH_VARIABLE, None).unwrap();
        variables.set(GROUP_CONCAT_VARIABLE, number(1)).unwrap();
        assert_eq!(variables.group_concat_bytes(), Some(4));
        assert!(variables.change_results());
    }

    #[test]
    fn a_submitted_statement_takes_them_along() {
        let mut variables = Variables::default();
        assert_eq!(variables.statement_limits(), StatementLimits::default());
        let number = |number| Some(VariableValue::Number(number));
        variables.set(DEPTH_VARIABLE, number(7)).unwrap();
        variables.set(GROUP_CONCAT_VARIABLE, number(9)).unwrap();
        let limits = variables.statement_limits();
        let mut other = Variables::default();
        other.set_statement_limits(limits).unwrap();
        assert_eq!(other.statement_limits(), limits);
        other
            .set_statement_limits(StatementLimits::default())
            .unwrap();
        assert!(!other.change_results());
    }
}
