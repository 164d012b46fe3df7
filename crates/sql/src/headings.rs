//! What a result's columns are called.
//!
//! In MySQL's dialect a column is headed as it was typed: a column by its name, a text by itself, anything else by its text.
//! Elsewhere a plain column is headed by its declared name. An alias stands as it was typed, and what a wildcard gives is
//! headed by the declared names.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, Select, SelectItem, SetExpr, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::Dialect;
use crate::fold::{Places, fold_word};

/// The headings of one query's result, as far as its text tells.
#[derive(Debug, Clone, Default)]
pub struct Headings {
    items: Vec<Item>,
    spelling: Arc<Spelling>,
}

/// How the words of a text were typed, by the folded word.
pub(crate) type Spelling = HashMap<String, String>;

/// A text as it was typed.
pub(crate) struct SourceText<'a> {
    pub dialect: Dialect,
    pub sql: &'a str,
    tokens: Vec<TokenWithSpan>,
    places: Places<'a>,
    spelling: Arc<Spelling>,
}

impl<'a> SourceText<'a> {
    pub(crate) fn new(dialect: Dialect, sql: &'a str) -> Self {
        let tokens = dialect.tokenizer(sql).tokenize_with_location();
        // What cannot be taken apart has been rejected before.
        let tokens = tokens.unwrap_or_default();
        let spelling = Arc::new(spellings(&tokens));
        let places = Places::new(sql);
        Self {
            dialect,
            sql,
            tokens,
            places,
            spelling,
        }
    }

    /// The texts of the items of a SELECT, with what is commented out between their words.
    pub(crate) fn items(&self, select: &Select) -> Vec<&'a str> {
        let start = select.select_token.0.span.start;
        let first = self
            .tokens
            .partition_point(|token| token.span.start <= start);
        let mut items = Vec::new();
        let (mut depth, mut from, mut to) = (0_usize, None, None);
        for token in &self.tokens[first..] {
            match &token.token {
                Token::Whitespace(_) => continue,
                Token::Comma if depth == 0 => {
                    items.extend(self.between(from.take(), to));
                    continue;
                }
                Token::Word(word) if depth == 0 && ends_items(word.keyword) => break,
                Token::Word(word) if from.is_none() && MODIFIERS.contains(&word.keyword) => {
                    continue;
                }
                Token::SemiColon => break,
                Token::LParen => depth += 1,
                Token::RParen => match depth.checked_sub(1) {
                    Some(outer) => depth = outer,
                    None => break,
                },
                _ => {}
            }
            from = from.or(Some(token.span.start));
            to = Some(token.span.end);
        }
        items.extend(self.between(from, to));
        items
    }

    fn between(&self, from: Option<Place>, to: Option<Place>) -> Option<&'a str> {
        Some(&self.sql[self.places.byte(from?)..self.places.byte(to?)])
    }

    /// A name as it was typed, without the marks around it.
    fn name(&self, name: &Ident) -> String {
        let source = self.between(Some(name.span.start), Some(name.span.end));
        let source = match name.quote_style {
            Some(_) => source.and_then(|source| source.get(1..source.len().checked_sub(1)?)),
            None => source,
        };
        match source {
            Some(source) if fold_word(source) == name.value => source.to_owned(),
            // A mark inside of a quoted name is doubled.
            _ => spelled(&name.value, &self.spelling),
        }
    }

    /// What an expression with this text is called.
    pub(crate) fn heading(&self, expr: &Expr, text: &str) -> String {
        cut(self.expression(expr, text))
    }

    /// What heads an expression in MySQL's dialect.
    fn expression(&self, expr: &Expr, text: &str) -> String {
        match expr {
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.clone(),
                Value::Null | Value::Boolean(_) => text.to_ascii_uppercase(),
                _ => text.to_owned(),
            },
            _ => text.to_owned(),
        }
    }
}

type Place = datafusion::sql::sqlparser::tokenizer::Location;

/// Words between SELECT and its first item.
const MODIFIERS: [Keyword; 9] = [
    Keyword::DISTINCT,
    Keyword::DISTINCTROW,
    Keyword::ALL,
    Keyword::HIGH_PRIORITY,
    Keyword::STRAIGHT_JOIN,
    Keyword::SQL_SMALL_RESULT,
    Keyword::SQL_BIG_RESULT,
    Keyword::SQL_NO_CACHE,
    Keyword::SQL_CALC_FOUND_ROWS,
];

fn ends_items(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::FROM
            | Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::INTERSECT
            | Keyword::INTO
            | Keyword::WINDOW
    )
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    /// `*` or `t.*`: any number of columns.
    Wildcard,
    /// A column, by its folded name.
    Column(String),
    /// An alias or expression, as typed.
    SourceText(String),
}

impl Headings {
    /// Reads the headings off a query of a text.
    pub(crate) fn of(source: &SourceText<'_>, query: &Query) -> Self {
        let spelling = Arc::clone(&source.spelling);
        let Some(select) = leftmost(&query.body) else {
            return Self {
                items: vec![],
                spelling,
            };
        };
        let texts = match source.dialect {
            Dialect::MySql => source.items(select),
            Dialect::Adql => vec![],
        };
        let as_typed = texts.len() == select.projection.len();
        let items = select.projection.iter().enumerate();
        let items = items.map(|(at, item)| match item {
            SelectItem::ExprWithAlias { alias, .. } => Item::SourceText(source.name(alias)),
            SelectItem::UnnamedExpr(expr) if as_typed => match column_name(expr) {
                Some(name) => Item::SourceText(source.name(name)),
                None => Item::SourceText(source.expression(expr, texts[at])),
            },
            SelectItem::UnnamedExpr(expr) => match column_name(expr) {
                Some(name) => Item::Column(name.value.clone()),
                None => Item::SourceText(recase(source.dialect, &expr.to_string(), &spelling)),
            },
            _ => Item::Wildcard,
        });
        let items = items.map(|item| match item {
            Item::SourceText(text) if source.dialect == Dialect::MySql => {
                Item::SourceText(cut(text))
            }
            other => other,
        });
        let items = items.collect();
        Self { items, spelling }
    }

    /// Leaves out the headings of items that are not planned.
    pub(crate) fn retain(&mut self, is_kept: &[bool]) {
        if is_kept.len() == self.items.len() {
            let mut is_kept = is_kept.iter();
            self.items.retain(|_| is_kept.next() == Some(&true));
        }
    }

    /// The headings for result columns with these (folded) names; `declared` gives a column its declared spelling.
    pub fn resolve(
        &self,
        names: &[String],
        declared: &dyn Fn(&str) -> Option<String>,
    ) -> Vec<String> {
        let by_name = |name: &str| {
            declared(name).unwrap_or_else(|| recase(Dialect::Adql, name, &self.spelling))
        };
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
                Item::SourceText(text) => {
                    rest.next();
                    headings.push(text.clone());
                }
            }
        }
        headings
    }
}

/// Bytes of the longest heading that MySQL has.
const LONGEST_HEADING: usize = 255;

/// A heading without what MySQL leaves off its end.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST_HEADING));
    text
}

/// The name of a plain column.
fn column_name(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        // A system variable is headed by all of its words.
        Expr::CompoundIdentifier(names)
            if names.iter().any(|name| name.value.starts_with("@@")) =>
        {
            None
        }
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    }
}

fn leftmost(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => leftmost(&query.body),
        SetExpr::SetOperation { left, .. } => leftmost(left),
        _ => None,
    }
}

/// How each word of the text was spelled first.
fn spellings(tokens: &[TokenWithSpan]) -> Spelling {
    let mut spelling = HashMap::new();
    for token in tokens {
        if let Token::Word(word) = &token.token {
            let folded = fold_word(&word.value);
            spelling.entry(folded).or_insert_with(|| word.value.clone());
        }
    }
    spelling
}

fn spelled(word: &str, spelling: &Spelling) -> String {
    spelling
        .get(word)
        .cloned()
        .unwrap_or_else(|| word.to_owned())
}

/// Gives the words of an expression's text the spelling they were typed with.
fn recase(dialect: Dialect, text: &str, spelling: &Spelling) -> String {
    let Ok(tokens) = dialect.tokenizer(text).tokenize() else {
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

    const TYPED: &str = "SELECT o.RA_ps, Count(*), Abs(ra_PS)  + /* c */ 1, x AS `Mean Mag`, 'a''b', null, o.* FROM Object o";
    const NAMES: [&str; 8] = [
        "ra_ps",
        "count(*)",
        "abs(o.ra_ps)",
        "mean mag",
        "t",
        "n",
        "a",
        "b",
    ];

    #[test]
    fn columns_are_headed_as_typed_in_mysql() {
        assert_eq!(
            resolved(Dialect::MySql, TYPED, &NAMES),
            [
                "RA_ps",
                "Count(*)",
                "Abs(ra_PS)  + /* c */ 1",
                "Mean Mag",
                "a'b",
                "NULL",
                "a",
                "b"
            ]
        );
    }

    #[test]
    fn columns_are_declared_and_expressions_typed_elsewhere() {
        let source = TYPED.replace('`', "\"");
        let headed = resolved(Dialect::Adql, &source, &NAMES);
        assert_eq!(
            headed[..4],
            ["ra_PS", "Count(*)", "Abs(RA_ps) + 1", "Mean Mag"]
        );
    }

    #[test]
    fn the_first_of_several_selects_heads_them_all() {
        let source =
            "WITH t AS (SELECT 1 AS One) (SELECT One + 1, (SELECT 2, 3) FROM t) UNION SELECT 7, 8";
        assert_eq!(
            resolved(Dialect::MySql, source, &["a", "b"]),
            ["One + 1", "(SELECT 2, 3)"]
        );
    }

    #[test]
    fn several_wildcards_fall_back_to_names() {
        assert_eq!(
            resolved(Dialect::MySql, "SELECT a.*, b.* FROM a, b", &["x", "y"]),
            ["x", "y"]
        );
    }

    fn resolved(dialect: Dialect, sql: &str, names: &[&str]) -> Vec<String> {
        let folded = fold_case(dialect, sql).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let declared = |name: &str| (name == "ra_ps").then(|| "ra_PS".to_owned());
        match Parser::parse_sql(dialect.grammar(), &folded)
            .unwrap()
            .remove(0)
        {
            Statement::Query(query) => {
                Headings::of(&SourceText::new(dialect, sql), &query).resolve(&names, &declared)
            }
            other => panic!("not a query: {other}"),
        }
    }
}
