//! How ADQL's texts are read: SQL's grammar with names in double quotes and without what other databases added, among it operators
//! and literals of geometry.

use std::any::TypeId;

use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};

/// The grammar of ADQL's texts.
#[derive(Debug)]
pub(crate) struct AdqlGrammar;

impl Dialect for AdqlGrammar {
    /// The parser checks in some places which dialect it parses; none that it knows is closer.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '"'
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_'
    }

    fn identifier_quote_style(&self, _: &str) -> Option<char> {
        Some('"')
    }

    /// Texts with nothing but space and comments between them are one.
    fn supports_string_literal_concatenation(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    /// Not ADQL's, but how the arguments of `crossmatch` are named.
    fn supports_named_fn_args_with_rarrow_operator(&self) -> bool {
        true
    }

    /// `FOR SYSTEM_TIME AS OF`, and `AS OF` alone: see [`crate::table_states`].
    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_parens_around_table_factor(&self) -> bool {
        true
    }

    fn supports_window_clause_named_window_reference(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }
}
