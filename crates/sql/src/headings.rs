//! What a result's columns are called.
//!
//! A plain column is headed by its declared name, an alias and an expression as they were typed.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, Query, SelectItem, SetExpr};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// The headings of one query's result, as far as its text tells.
#[derive(Debug, Clone, Default)]
pub struct Headings {
    items: Vec<Item>,
    spelling: Arc<Spelling>,
}

/// How the words of a text were typed, by the folded word.
pub(crate) type Spelling = HashMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    /// `*` or `t.*`: any number of columns.
    Wildcard,
    /// A column, by its folded name.
    Column(String),
    /// An alias or expression, as typed.
    Typed(String),
}

impl Headings {
    /// Reads the headings off a query; `spelling` is that of its text before folding ([`spellings`]).
    pub(crate) fn of(spelling: &Arc<Spelling>, query: &Query) -> Self {
        let spelling = Arc::clone(spelling);
        let items = leftmost(&query.body)
            .map(|select| select.projection.iter())
            .into_iter()
            .flatten();
        let items = items
            .map(|item| match item {
                SelectItem::ExprWithAlias { alias, .. } => {
                    Item::Typed(spelled(&alias.value, &spelling))
                }
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => Item::Column(name.value.clone()),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) if !names.is_empty() => {
                    Item::Column(names[names.len() - 1].value.clone())
                }
                SelectItem::UnnamedExpr(expr) => Item::Typed(recase(&expr.to_string(), &spelling)),
                _ => Item::Wildcard,
            })
            .collect();
        Self { items, spelling }
    }

    /// The headings for result columns with these (folded) names; `declared` gives a column its declared spelling.
    pub fn resolve(
        &self,
        names: &[String],
        declared: &dyn Fn(&str) -> Option<String>,
    ) -> Vec<String> {
        let by_name = |name: &str| declared(name).unwrap_or_else(|| recase(name, &self.spelling));
        let wildcards = self
            .items
            .iter()
            .filter(|item| **item == Item::Wildcard)
            .count();
        let expanded = (names.len() + wildcards).checked_sub(self.items.len());
        let spread = match (wildcards, expanded) {
            (0, Some(0)) => 0,
            (1, Some(spread)) => spread,
            _ => return names.iter().map(|name| by_name(name)).collect(),
        };
        let mut rest = names.iter();
        let mut headings = Vec::with_capacity(names.len());
        for item in &self.items {
            match item {
                Item::Wildcard => {
                    headings.extend(rest.by_ref().take(spread).map(|name| by_name(name)))
                }
                Item::Column(name) => {
                    rest.next();
                    headings.push(by_name(name));
                }
                Item::Typed(text) => {
                    rest.next();
                    headings.push(text.clone());
                }
            }
        }
        headings
    }
}

fn leftmost(body: &SetExpr) -> Option<&datafusion::sql::sqlparser::ast::Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => leftmost(&query.body),
        SetExpr::SetOperation { left, .. } => leftmost(left),
        _ => None,
    }
}

/// How each word of the text was spelled first.
pub(crate) fn spellings(typed: &str) -> Spelling {
    let mut spelling = HashMap::new();
    for token in Tokenizer::new(&GenericDialect {}, typed)
        .tokenize()
        .unwrap_or_default()
    {
        if let Token::Word(word) = token {
            spelling
                .entry(word.value.to_ascii_lowercase())
                .or_insert(word.value);
        }
    }
    spelling
}

fn spelled(name: &str, spelling: &Spelling) -> String {
    spelling
        .get(&name.to_ascii_lowercase())
        .cloned()
        .unwrap_or_else(|| name.to_owned())
}

/// Gives every word of an expression's text the spelling it was typed with.
fn recase(text: &str, spelling: &Spelling) -> String {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize() else {
        return text.to_owned();
    };
    tokens
        .into_iter()
        .map(|token| match token {
            Token::Word(mut word) => {
                word.value = spelled(&word.value, spelling);
                word.to_string()
            }
            other => other.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::fold_case;

    #[test]
    fn columns_are_declared_and_expressions_typed() {
        let typed = "SELECT o.RA_ps, Count(*), Abs(ra_PS) + 1, x AS `Mean Mag`, o.* FROM Object o";
        let names = ["ra_ps", "count(*)", "abs(o.ra_ps)", "mean mag", "a", "b"].map(str::to_owned);
        let declared = |name: &str| (name == "ra_ps").then(|| "ra_PS".to_owned());
        assert_eq!(
            headings(typed).resolve(&names, &declared),
            ["ra_PS", "Count(*)", "Abs(RA_ps) + 1", "Mean Mag", "a", "b"]
        );
    }

    #[test]
    fn several_wildcards_fall_back_to_names() {
        let names = ["x", "y"].map(str::to_owned);
        assert_eq!(
            headings("SELECT a.*, b.* FROM a, b").resolve(&names, &|_| None),
            ["x", "y"]
        );
    }

    fn headings(typed: &str) -> Headings {
        let folded = fold_case(typed).unwrap();
        match Parser::parse_sql(&GenericDialect {}, &folded)
            .unwrap()
            .remove(0)
        {
            Statement::Query(query) => Headings::of(&Arc::new(spellings(typed)), &query),
            other => panic!("not a query: {other}"),
        }
    }
}
