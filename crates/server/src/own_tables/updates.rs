//! The query of an UPDATE: the table as it is afterwards.
//!
//! MySQL assigns from left to right, and a later expression sees what the earlier ones have stored. So the assignments are steps, each a
//! query of the one before it, under the table's own name: the planner decides what each word of an expression means, and an
//! expression is evaluated once. Assignments that mention nothing of each other share a step.

use catalog::{Column, TableSpec, fold_name};
use sql::mysql::{ColumnAssignment, may_mention, with_position, without_database};

use super::changes::{no_column, unused};
use super::{default_of, quoted, stored_column};
use crate::ClientError;

/// An UPDATE of a table.
pub(super) struct Update<'a> {
    pub(super) spec: &'a TableSpec,
    /// The table as a statement names it.
    pub(super) from: String,
    pub(super) alias: Option<&'a str>,
    pub(super) assigned: &'a [ColumnAssignment],
    pub(super) condition: Option<&'a str>,
}

/// Assignments that see the same values: columns and expressions.
type Step<'a> = Vec<(&'a Column, String)>;

/// The names of the columns that the steps have beside the table's.
struct Marks {
    matched: String,
    row: String,
    /// Of each column that is assigned, where its old value is.
    before: Vec<(String, String)>,
}

impl Update<'_> {
    /// The rows as they are afterwards, and of each whether it matches the condition and whether it changes.
    pub(super) fn query(&self) -> Result<String, ClientError> {
        let steps = self.steps()?;
        let marks = self.marks(&steps);
        let alias = quoted(self.alias.unwrap_or(&self.spec.name));
        let mut text = format!("WITH `#0` AS ({})", self.begin(&marks, &alias)?);
        for (at, step) in steps.iter().enumerate() {
            let selected = self.selected(step, &marks);
            text.push_str(&format!(
                ", `#{}` AS (SELECT {selected} FROM `#{at}` AS {alias})",
                at + 1
            ));
        }
        let mut all: Vec<String> = self.names().collect();
        all.push(marks.matched.clone());
        let same = { marks.before.iter() }.map(|(column, before)| format!("{column} <=> {before}"));
        let same: Vec<String> = same.collect();
        all.push(format!(
            "CASE WHEN {} = 0 THEN 0 WHEN {} THEN 0 ELSE 1 END AS {}",
            marks.matched,
            same.join(" AND "),
            quoted(&unused("#changed", self.spec))
        ));
        text.push_str(&format!(
            " SELECT {} FROM `#{}` AS {alias}",
            all.join(", "),
            steps.len()
        ));
        Ok(text)
    }

    fn steps(&self) -> Result<Vec<Step<'_>>, ClientError> {
        let mut steps: Vec<Step<'_>> = Vec::new();
        for (name, expression) in self.assigned {
            let columns = &self.spec.columns;
            let column = { columns.iter() }.find(|it| fold_name(&it.name) == fold_name(name));
            let column = column.ok_or_else(|| no_column(self.spec, name))?;
            let expression = match expression.eq_ignore_ascii_case("default") {
                true => {
                    default_of(column)?;
                    column.default_expression().unwrap_or("NULL").to_owned()
                }
                false => unqualified(expression, self.spec, self.alias)?,
            };
            let fits = match steps.last() {
                Some(step) => {
                    let assigned: Vec<&str> = step.iter().map(|(it, _)| it.name.as_str()).collect();
                    !assigned.contains(&column.name.as_str())
                        && !may_mention(&expression, &assigned)?
                }
                None => false,
            };
            match steps.last_mut() {
                Some(step) if fits => step.push((column, expression)),
                _ => steps.push(vec![(column, expression)]),
            }
        }
        Ok(steps)
    }

    fn marks(&self, steps: &[Step<'_>]) -> Marks {
        let mut before: Vec<(String, String)> = Vec::new();
        for (column, _) in steps.iter().flatten() {
            let name = quoted(&column.name);
            if !before.iter().any(|(known, _)| *known == name) {
                let mark = quoted(&unused(&format!("#before{}", before.len()), self.spec));
                before.push((name, mark));
            }
        }
        Marks {
            matched: quoted(&unused("#matched", self.spec)),
            row: quoted(&unused("#row", self.spec)),
            before,
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.spec.columns.iter().map(|column| quoted(&column.name))
    }

    /// The table before the first step.
    fn begin(&self, marks: &Marks, alias: &str) -> Result<String, ClientError> {
        let condition = match self.condition {
            Some(condition) => row_condition(condition, self.spec, self.alias)?,
            None => "1 = 1".to_owned(),
        };
        let mut selected: Vec<String> = self.names().collect();
        selected.push(format!(
            "CASE WHEN ({condition}) THEN 1 ELSE 0 END AS {}",
            marks.matched
        ));
        selected.push(format!("ROW_NUMBER() OVER () AS {}", marks.row));
        let before = marks.before.iter();
        selected.extend(before.map(|(column, before)| format!("{column} AS {before}")));
        Ok(format!(
            "SELECT {} FROM {} AS {alias}",
            selected.join(", "),
            self.from
        ))
    }

    /// The columns of a step.
    fn selected(&self, step: &Step<'_>, marks: &Marks) -> String {
        let mut selected = Vec::with_capacity(self.spec.columns.len() + 2);
        for column in &self.spec.columns {
            let name = quoted(&column.name);
            let assigned = step.iter().find(|(it, _)| it.name == column.name);
            selected.push(match assigned {
                None => name,
                Some((_, expression)) => format!(
                    "CASE WHEN {} = 1 THEN {} ELSE {name} END AS {name}",
                    marks.matched,
                    stored(expression, &marks.row, column)
                ),
            });
        }
        selected.extend([marks.matched.clone(), marks.row.clone()]);
        selected.extend(marks.before.iter().map(|(_, before)| before.clone()));
        selected.join(", ")
    }
}

/// What a column stores of the value of an expression; the row is for messages.
pub(super) fn stored(expression: &str, row: &str, column: &Column) -> String {
    let name = column.name.replace('\\', "\\\\").replace('\'', "''");
    let ty = stored_column(column).ty;
    format!("mysql_store(({expression}), {row}, '{name}', '{ty}')")
}

/// An expression in which the columns of the table are not named with its database, as the steps have none.
fn unqualified(
    expression: &str,
    spec: &TableSpec,
    alias: Option<&str>,
) -> Result<String, ClientError> {
    match alias {
        // With another name, the table has no database.
        Some(_) => Ok(expression.to_owned()),
        None => Ok(without_database(expression, &spec.database, &spec.name)?),
    }
}

/// The condition of a WHERE over a row of the table, regions included.
pub(super) fn row_condition(
    condition: &str,
    spec: &TableSpec,
    alias: Option<&str>,
) -> Result<String, ClientError> {
    let condition = unqualified(condition, spec, alias)?;
    let Some(position) = &spec.position else {
        return Ok(condition);
    };
    let table = quoted(alias.unwrap_or(&spec.name));
    let [ra, dec] =
        [&position.ra, &position.dec].map(|column| format!("{table}.{}", quoted(column)));
    Ok(with_position(&condition, &ra, &dec)?)
}

#[cfg(test)]
mod tests {
    use catalog::{Position, TableKind};
    use sql::ErrorCode;

    use super::*;

    fn spec() -> TableSpec {
        let columns = [("a", "INT"), ("b", "DECIMAL(8,2)"), ("c", "FLOAT")];
        let columns = columns.map(|(name, ty)| ingest::declared_column(name, ty).unwrap());
        TableSpec {
            database: "ann".to_owned(),
            name: "t".to_owned(),
            kind: TableKind::Replicated,
            columns: columns.to_vec(),
            key: None,
            position: None,
            directors: vec![],
            scan_rating: 0,
        }
    }

    fn steps(assigned: &[(&str, &str)]) -> Result<Vec<Vec<String>>, ErrorCode> {
        let assigned: Vec<ColumnAssignment> = { assigned.iter() }
            .map(|(column, value)| ((*column).to_owned(), (*value).to_owned()))
            .collect();
        let spec = spec();
        let update = Update {
            spec: &spec,
            from: "`ann`.`t`".to_owned(),
            alias: None,
            assigned: &assigned,
            condition: None,
        };
        let steps = update.steps().map_err(|error| error.code)?;
        let written = |(column, value): &(&Column, String)| format!("{}={value}", column.name);
        Ok(steps
            .iter()
            .map(|step| step.iter().map(written).collect())
            .collect())
    }

    #[test]
    fn assignments_that_see_others_are_steps_of_their_own() {
        assert_eq!(
            steps(&[("a", "a + 1"), ("B", "c * 2"), ("c", "ann.t.a + A")]),
            Ok(vec![
                vec!["a=a + 1".to_owned(), "b=c * 2".to_owned()],
                vec!["c=t.a + A".to_owned()]
            ])
        );
        let twice = steps(&[("a", "1"), ("a", "2"), ("b", "DEFAULT")]).unwrap();
        assert_eq!(twice, [vec!["a=1"], vec!["a=2", "b=NULL"]]);
        assert_eq!(steps(&[("x", "1")]), Err(ErrorCode::NO_COLUMN));
    }

    #[test]
    fn a_region_is_a_condition_on_the_position_of_the_table() {
        let mut spec = spec();
        let condition = "b > ann.t.a AND qserv_areaspec_circle(1, 2, 3)";
        let written =
            |spec: &TableSpec, alias: Option<&str>| row_condition(condition, spec, alias).unwrap();
        assert_eq!(
            written(&spec, None),
            "b > t.a AND qserv_areaspec_circle(1, 2, 3)"
        );
        spec.position = Some(Position {
            ra: "a".to_owned(),
            dec: "b".to_owned(),
        });
        assert_eq!(
            written(&spec, None),
            "b > t.a AND (scisql_s2ptincircle(`t`.`a`, `t`.`b`, 1, 2, 3) = 1)"
        );
        assert!(written(&spec, Some("x")).contains("(`x`.`a`, `x`.`b`, 1"));
    }

    #[test]
    fn names_are_quoted_in_calls() {
        let column = ingest::declared_column("it's", "VARCHAR(4)").unwrap();
        assert_eq!(
            stored("a, b", "`#row`", &column),
            "mysql_store((a, b), `#row`, 'it''s', 'VARCHAR(4)')"
        );
    }
}
