//! Visits of a statement's tree.
//!
//! `sqlparser` compiles the visit of every kind of node for every type of visitor. With some thirty visitors that was a sixth of the program
//! and most of what compiling this crate took. The functions here call visitors through a table of functions, so that there are two
//! visits for all of them: one that reads and one that changes.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

/// Defines a function that visits a tree by any visitor, through a table of the functions that visitors have.
macro_rules! visit_through_table {
    (
        $(#[$doc:meta])*
        $function:ident(&$($mutable:ident)?: $visit:ident, $visitor:ident),
        $table:ident, $called:ident, $keeping:ident,
        $($hook:ident($node:ty),)*
    ) => {
        /// What a visitor does at each kind of node; a break is kept elsewhere.
        trait $table {
            $(fn $hook(&mut self, node: $node) -> ControlFlow<()>;)*
        }

        /// A visitor, and with what it has ended the visit.
        struct $keeping<'a, V: $visitor> {
            visitor: &'a mut V,
            end: Option<V::Break>,
        }

        impl<V: $visitor> $table for $keeping<'_, V> {
            $(fn $hook(&mut self, node: $node) -> ControlFlow<()> {
                $visitor::$hook(self.visitor, node).map_break(|end| self.end = Some(end))
            })*
        }

        /// Any visitor.
        struct $called<'a>(&'a mut dyn $table);

        impl $visitor for $called<'_> {
            type Break = ();

            $(fn $hook(&mut self, node: $node) -> ControlFlow<()> {
                self.0.$hook(node)
            })*
        }

        $(#[$doc])*
        pub(crate) fn $function<V: $visitor>(
            tree: &$($mutable)? impl $visit,
            visitor: &mut V,
        ) -> ControlFlow<V::Break> {
            let mut keeping = $keeping { visitor, end: None };
            let _ = tree.visit(&mut $called(&mut keeping));
            match keeping.end {
                Some(end) => ControlFlow::Break(end),
                None => ControlFlow::Continue(()),
            }
        }
    };
}

visit_through_table! {
    /// Has a visitor read a tree; what it breaks with, if it does.
    visit(&: Visit, Visitor),
    Reading, AnyReader, KeepingReader,
    pre_visit_query(&Query),
    post_visit_query(&Query),
    pre_visit_select(&Select),
    post_visit_select(&Select),
    pre_visit_relation(&ObjectName),
    post_visit_relation(&ObjectName),
    pre_visit_table_factor(&TableFactor),
    post_visit_table_factor(&TableFactor),
    pre_visit_expr(&Expr),
    post_visit_expr(&Expr),
    pre_visit_statement(&Statement),
    post_visit_statement(&Statement),
    pre_visit_value(&ValueWithSpan),
    post_visit_value(&ValueWithSpan),
}

visit_through_table! {
    /// Has a visitor change a tree; what it breaks with, if it does.
    visit_mut(&mut: VisitMut, VisitorMut),
    Changing, AnyChanger, KeepingChanger,
    pre_visit_query(&mut Query),
    post_visit_query(&mut Query),
    pre_visit_select(&mut Select),
    post_visit_select(&mut Select),
    pre_visit_relation(&mut ObjectName),
    post_visit_relation(&mut ObjectName),
    pre_visit_table_factor(&mut TableFactor),
    post_visit_table_factor(&mut TableFactor),
    pre_visit_expr(&mut Expr),
    post_visit_expr(&mut Expr),
    pre_visit_statement(&mut Statement),
    post_visit_statement(&mut Statement),
    pre_visit_value(&mut ValueWithSpan),
    post_visit_value(&mut ValueWithSpan),
}

/// Reads each expression of a tree, outer ones before their parts; what `f` breaks with, if it does.
pub(crate) fn visit_expressions<E>(
    tree: &impl Visit,
    f: impl FnMut(&Expr) -> ControlFlow<E>,
) -> ControlFlow<E> {
    struct Expressions<F>(F);

    impl<E, F: FnMut(&Expr) -> ControlFlow<E>> Visitor for Expressions<F> {
        type Break = E;

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<E> {
            (self.0)(expr)
        }
    }

    visit(tree, &mut Expressions(f))
}

/// Changes each expression of a tree, parts before what they are parts of; what `f` breaks with, if it does.
pub(crate) fn visit_expressions_mut<E>(
    tree: &mut impl VisitMut,
    f: impl FnMut(&mut Expr) -> ControlFlow<E>,
) -> ControlFlow<E> {
    struct Expressions<F>(F);

    impl<E, F: FnMut(&mut Expr) -> ControlFlow<E>> VisitorMut for Expressions<F> {
        type Break = E;

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<E> {
            (self.0)(expr)
        }
    }

    visit_mut(tree, &mut Expressions(f))
}
