//! Columns that a table has beside those of `*`, such as the number of a row's chunk.
//!
//! A statement that names one is planned on tables that show them all; its wildcards are rewritten here, so that they go
//! on giving what they give elsewhere: `o.*` becomes `o.* EXCLUDE (chunkid)`, and a `*` over several tables the wildcards
//! of each.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select,
    SelectFlavor, SelectItem, SelectItemQualifiedWildcardKind, Statement, TableFactor,
    TableWithJoins, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::SqlError;
use crate::areaspec::{TableShapes, name_parts, shape_of};
use crate::visiting::visit_mut;

/// Leaves the hidden columns that a query names out of its wildcards; says whether it names any.
pub(crate) fn leave_out(
    sql: &str,
    statement: &mut Statement,
    tables: &dyn TableShapes,
) -> Result<bool, SqlError> {
    let typed = sql.to_lowercase();
    // A name that is quoted with marks in it is none of theirs.
    if !tables.all_hidden().iter().any(|name| typed.contains(name)) {
        return Ok(false);
    }
    let mut common_tables = CommonTables::default();
    // It breaks off nowhere.
    let _ = visit_mut(statement, &mut common_tables);
    let mut rewriting = Rewriter {
        sql,
        tables,
        words: words(&statement.to_string()),
        common_tables: common_tables.0,
        found: false,
    };
    match visit_mut(statement, &mut rewriting) {
        ControlFlow::Continue(()) => Ok(rewriting.found),
        ControlFlow::Break(error) => Err(error),
    }
}

fn words(text: &str) -> HashSet<String> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize();
    let words = tokens.unwrap_or_default().into_iter();
    let words = words.filter_map(|token| match token {
        Token::Word(word) => Some(word.value),
        _ => None,
    });
    words.collect()
}

/// The names that WITH gives, which stand before those of tables.
#[derive(Default)]
struct CommonTables(HashSet<String>);

impl VisitorMut for CommonTables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0
            .extend(with.map(|table| table.alias.name.value.clone()));
        ControlFlow::Continue(())
    }
}

struct Rewriter<'a> {
    sql: &'a str,
    tables: &'a dyn TableShapes,
    /// The words of the statement: a hidden column is shown where one of them is its name.
    words: HashSet<String>,
    common_tables: HashSet<String>,
    found: bool,
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        match self.rewrite(select) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// One table of a FROM, or what stands in the place of one.
#[derive(Default)]
struct Source {
    /// What its columns are qualified with; none for what has no name.
    name: Option<ObjectName>,
    /// Its hidden columns that the statement names.
    hidden: Vec<Ident>,
    /// Columns that a `*` shows as another table's.
    shared: Vec<Ident>,
}

impl Source {
    fn is_meant_by(&self, kind: &SelectItemQualifiedWildcardKind) -> bool {
        let (Some(own), SelectItemQualifiedWildcardKind::ObjectName(meant)) = (&self.name, kind)
        else {
            return false;
        };
        // A table of a database may be meant by its short name, or the other way round.
        let (own, meant) = (name_parts(own), name_parts(meant));
        own.ends_with(&meant) || meant.ends_with(&own)
    }

    fn left_out(&self) -> Vec<Ident> {
        self.hidden.iter().chain(&self.shared).cloned().collect()
    }
}

impl Rewriter<'_> {
    fn rewrite(&mut self, select: &mut Select) -> Result<(), SqlError> {
        let mut sources = Vec::new();
        for from in &select.from {
            sources.extend(self.sources(from)?);
        }
        let Some(column) = named_hidden(&sources) else {
            return Ok(());
        };
        self.found = true;
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
            select.projection = vec![all];
        }
        let mut projection = Vec::with_capacity(select.projection.len());
        for item in select.projection.drain(..) {
            projection.extend(self.without_hidden(item, &sources, &column)?);
        }
        select.projection = projection;
        Ok(())
    }

    /// A wildcard without the hidden columns of what it stands for; other items as they are.
    fn without_hidden(
        &self,
        item: SelectItem,
        sources: &[Source],
        column: &str,
    ) -> Result<Vec<SelectItem>, SqlError> {
        match (item, sources) {
            (SelectItem::Wildcard(options), [only]) => {
                let options = excluding(options, &only.hidden);
                Ok(vec![SelectItem::Wildcard(options)])
            }
            (SelectItem::Wildcard(options), several) => several
                .iter()
                .map(|source| self.all_of(source, &options, column))
                .collect(),
            (SelectItem::QualifiedWildcard(kind, options), several) => {
                let meant = several.iter().find(|source| source.is_meant_by(&kind));
                let options = match meant {
                    Some(source) => excluding(options, &source.hidden),
                    None => options,
                };
                Ok(vec![SelectItem::QualifiedWildcard(kind, options)])
            }
            (other, _) => Ok(vec![other]),
        }
    }

    /// What a `*` over several tables gives of one of them.
    fn all_of(
        &self,
        source: &Source,
        options: &WildcardAdditionalOptions,
        column: &str,
    ) -> Result<SelectItem, SqlError> {
        if *options != WildcardAdditionalOptions::default() {
            return Err(self.unclear("a * with options over several tables", column));
        }
        let Some(name) = &source.name else {
            return Err(self.unclear("a * over something that has no name", column));
        };
        let kind = SelectItemQualifiedWildcardKind::ObjectName(name.clone());
        let options = excluding(options.clone(), &source.left_out());
        Ok(SelectItem::QualifiedWildcard(kind, options))
    }

    /// What an item of FROM brings into sight, from left to right.
    fn sources(&self, from: &TableWithJoins) -> Result<Vec<Source>, SqlError> {
        let mut sources = self.sources_of(&from.relation)?;
        for join in &from.joins {
            let mut joined = self.sources_of(&join.relation)?;
            self.share(&mut sources, &mut joined, &join.join_operator)?;
            match &join.join_operator {
                JoinOperator::Semi(_)
                | JoinOperator::LeftSemi(_)
                | JoinOperator::Anti(_)
                | JoinOperator::LeftAnti(_) => {}
                JoinOperator::RightSemi(_) | JoinOperator::RightAnti(_) => sources = joined,
                _ => sources.extend(joined),
            }
        }
        Ok(sources)
    }

    /// A column of USING is shown once, by the table of which all rows are kept.
    fn share(
        &self,
        left: &mut [Source],
        right: &mut [Source],
        join: &JoinOperator,
    ) -> Result<(), SqlError> {
        let Some(column) = named_hidden(left.iter().chain(&*right)) else {
            return Ok(());
        };
        let rejected = |what| Err(self.unclear(what, &column));
        let (on, twice) = match join {
            JoinOperator::Join(on) | JoinOperator::Inner(on) => (on, right),
            JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (on, right),
            JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (on, left),
            JoinOperator::FullOuter(on) => (on, &mut [] as &mut [Source]),
            _ => return Ok(()),
        };
        match (on, twice) {
            (JoinConstraint::Natural, _) => rejected("a NATURAL JOIN"),
            (JoinConstraint::Using(columns), [only]) => {
                let idents = columns.iter().filter_map(|name| name.0.last()?.as_ident());
                only.shared.extend(idents.cloned());
                Ok(())
            }
            (JoinConstraint::Using(_), _) => {
                rejected("a USING over several tables or in a FULL JOIN")
            }
            _ => Ok(()),
        }
    }

    fn sources_of(&self, factor: &TableFactor) -> Result<Vec<Source>, SqlError> {
        let source = match factor {
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => return self.sources(table_with_joins),
            TableFactor::Table {
                name, alias, args, ..
            } => Source {
                name: Some(match alias {
                    Some(alias) => vec![alias.name.clone()].into(),
                    None => name.clone(),
                }),
                hidden: match args {
                    None => self.hidden_of(name),
                    Some(_) => vec![],
                },
                ..Source::default()
            },
            TableFactor::Derived {
                alias: Some(alias), ..
            } => Source {
                name: Some(vec![alias.name.clone()].into()),
                ..Source::default()
            },
            _ => Source::default(),
        };
        Ok(vec![source])
    }

    /// The hidden columns of a table that the statement names.
    fn hidden_of(&self, name: &ObjectName) -> Vec<Ident> {
        let parts = name_parts(name);
        if let [only] = parts.as_slice()
            && self.common_tables.contains(*only)
        {
            return vec![];
        }
        let hidden = shape_of(self.tables, &parts).map_or_else(Vec::new, |shape| shape.hidden);
        let named = hidden.into_iter().filter(|name| self.words.contains(*name));
        named.map(Ident::new).collect()
    }

    fn unclear(&self, what: &str, column: &str) -> SqlError {
        let sentence = format!("{what} cannot stand beside {column}; say which columns are meant");
        SqlError::about(self.sql, column, sentence)
    }
}

/// A hidden column that the statement names, if any of the tables has one.
fn named_hidden<'a>(sources: impl IntoIterator<Item = &'a Source>) -> Option<String> {
    let mut hidden = sources.into_iter().flat_map(|source| &source.hidden);
    hidden.next().map(|column| column.value.clone())
}

/// The options of a wildcard that leaves these columns out as well.
pub(crate) fn excluding(
    mut options: WildcardAdditionalOptions,
    columns: &[Ident],
) -> WildcardAdditionalOptions {
    let mut excluded = match options.opt_exclude.take() {
        None => vec![],
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(names)) => names,
    };
    for column in columns {
        let name = ObjectName::from(vec![column.clone()]);
        // Whoever leaves it out already may do so: twice would be an error.
        if !excluded.contains(&name) {
            excluded.push(name);
        }
    }
    if !excluded.is_empty() {
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(excluded));
    }
    options
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::{TableShape, fold_case};

    #[test]
    fn a_wildcard_leaves_out_what_the_statement_names() {
        for (sql, expected) in [
            (
                "SELECT *, O.chunkID FROM Object AS o WHERE chunkId = 3",
                "SELECT * EXCLUDE (chunkid), o.chunkid FROM object AS o WHERE chunkid = 3",
            ),
            (
                "SELECT s.*, f.* FROM Source s, Filter f WHERE s.chunkId = 3",
                "SELECT s.* EXCLUDE (chunkid), f.* FROM source s, filter f WHERE s.chunkid = 3",
            ),
            (
                "SELECT * EXCLUDE (ra, chunkId) FROM sky.Object",
                "SELECT * EXCLUDE (ra, chunkid) FROM sky.object",
            ),
            (
                "SELECT n FROM (SELECT * FROM Object WHERE id IN (SELECT id FROM Source WHERE chunkId = 3)) o",
                "SELECT n FROM (SELECT * EXCLUDE (chunkid) FROM object WHERE id IN (SELECT id FROM source WHERE chunkid = 3)) o",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn a_wildcard_over_several_tables_becomes_one_of_each() {
        for (sql, expected) in [
            (
                "SELECT * FROM Object o JOIN Source s USING (id) JOIN Filter ON x WHERE o.chunkId = 3",
                "SELECT o.* EXCLUDE (chunkid), s.* EXCLUDE (chunkid, id), filter.* FROM object o JOIN source s USING(id) JOIN filter ON x WHERE o.chunkid = 3",
            ),
            (
                "SELECT * FROM Object o LEFT SEMI JOIN Source s ON s.id = o.id WHERE o.chunkId = 3",
                "SELECT * EXCLUDE (chunkid) FROM object o LEFT SEMI JOIN source s ON s.id = o.id WHERE o.chunkid = 3",
            ),
            (
                "SELECT * FROM (SELECT chunkId FROM Object) t, Object",
                "SELECT t.*, object.* EXCLUDE (chunkid) FROM (SELECT chunkid FROM object) t, object",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn tables_without_the_column_and_common_tables_stay() {
        for sql in [
            "SELECT * FROM filter WHERE chunkid = 3",
            "SELECT * FROM object WHERE 'chunkid' = name",
            "SELECT * FROM nowhere WHERE chunkid = 3",
            "WITH object AS (SELECT 1 AS chunkid) SELECT * FROM object",
        ] {
            let (text, found) = leave_out_of(sql).unwrap();
            assert_eq!((text.as_str(), found), (sql, false));
        }
    }

    #[test]
    fn what_would_mean_something_else_is_rejected() {
        for sql in [
            "SELECT * FROM Object NATURAL JOIN Source WHERE chunkId = 3",
            "SELECT * FROM Object FULL JOIN Source USING (id) WHERE chunkId = 3",
            "SELECT * FROM Object, (SELECT 1) WHERE chunkId = 3",
        ] {
            let error = leave_out_of(sql).unwrap_err();
            assert!(error.sentence().contains("say which columns"), "{error}");
        }
    }

    struct Tables;
    impl TableShapes for Tables {
        fn shape(&self, _: Option<&str>, table: &str) -> Option<TableShape> {
            let partitioned = ["object", "source"].contains(&table);
            (partitioned || table == "filter").then(|| TableShape {
                partitioned,
                position: None,
                hidden: if partitioned { vec!["chunkid"] } else { vec![] },
                columns: None,
            })
        }

        fn all_hidden(&self) -> &'static [&'static str] {
            &["chunkid"]
        }
    }

    fn leave_out_of(sql: &str) -> Result<(String, bool), SqlError> {
        let folded = fold_case(crate::Dialect::Adql, sql).unwrap();
        let mut statements = Parser::parse_sql(&GenericDialect {}, &folded).unwrap();
        let found = leave_out(sql, &mut statements[0], &Tables)?;
        Ok((statements[0].to_string(), found))
    }

    fn rewritten(sql: &str) -> String {
        let (text, found) = leave_out_of(sql).unwrap();
        assert!(found, "{sql}");
        text
    }
}
