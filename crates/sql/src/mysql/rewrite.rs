//! A statement of MySQL's with the engine's forms in the places of those that the engine does not have.
//!
//! MySQL has no truth values: a comparison gives 1, 0 or NULL, and any number is a condition. The engine has them, so what
//! is a condition by its form is made a number where a number is meant (`CAST(a > b AS INT)`), and what is a number by its
//! form a condition where a condition is meant (`flags & 4` becomes `flags & 4 <> 0`). What a type must decide is left to
//! [`super::Operators`].

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, Interval, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, Statement, TableFactor, TableFunctionArgs, TableWithJoins, TypedString, Value,
    VisitorMut,
};

use super::build::{
    argument, call, each_argument, negated, not, plain_arguments, plain_cast, take, text, unit_name,
};
use super::forms::{
    cast, count_of_several, expand_special_form, group_concat, introduced, is_whole_constant,
    long_constant, null_if_any_is, rounding, stored_constant,
};
use super::having::having_as_where;
use super::select;
use super::templates::{engine_name, expansion, number_of_arguments};
use super::truth::{is_comparison, make_number, make_truth, normalise_truth};
use super::whole_arguments::with_decimals;
use super::{compare_all, compound_units, json_calls, row_values, values_columns};
use crate::all_rows::number_repetitions;
use crate::functions::mysql::{FormatParts, STORE, is_clock, is_moment, parts_of};
use crate::visiting::visit_mut;
use crate::{ErrorCode, SqlError, recursion};

/// Rewrites a statement in place. Its names are folded.
pub(crate) fn rewrite(sql: &str, statement: &mut Statement) -> Result<(), SqlError> {
    if let Statement::Query(query) = statement {
        select::name_results(&mut query.body);
    }
    if let ControlFlow::Break(error) = visit_mut(statement, &mut Rewriter { sql }) {
        return Err(error);
    }
    if let Statement::Query(query) = statement {
        select::order_rolled_up(query);
    }
    Ok(())
}

struct Rewriter<'a> {
    sql: &'a str,
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    /// Downwards: calls and special forms are expanded, so that their expansions are visited too.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let taken = std::mem::replace(expr, super::build::null());
        match self.expand(taken) {
            Ok(expanded) => {
                *expr = with_decimals(expanded);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }

    /// Upwards: what an expression needs its parts to be.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        normalise_truth(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        let conditions = [
            &mut select.selection,
            &mut select.having,
            &mut select.qualify,
        ];
        conditions.into_iter().flatten().for_each(make_truth);
        select.from.iter_mut().for_each(settle_joins);
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    make_number(expr)
                }
                _ => {}
            }
        }
        if let Err(error) = having_as_where(self.sql, select) {
            return ControlFlow::Break(error);
        }
        select::choose_for_groups(select);
        select::roll_up(select);
        select::name_repeated(select);
        // Hints about how to run it.
        select.select_modifiers = None;
        select.optimizer_hints.clear();
        if is_dual(&select.from) {
            select.from.clear();
        }
        if select.from.is_empty() && select.projection.iter().any(is_all) {
            let sentence =
                "SELECT * has no tables whose columns it would give: name some in a FROM";
            let error = SqlError::new(sentence).with_code(ErrorCode::NO_TABLES_USED);
            return ControlFlow::Break(error);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let Err(error) = select::limit_by_fetch(self.sql, query) {
            return ControlFlow::Break(error);
        }
        select::bound_limit(query);
        recursion::put_limits_around(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let rewritten = values_columns::name_columns(&mut query.body)
            .and_then(|()| number_repetitions(self.sql, &mut query.body));
        if let Err(error) = rewritten {
            return ControlFlow::Break(error);
        }
        // Tables cannot change: FOR UPDATE and LOCK IN SHARE MODE request what is so anyway.
        query.locks.clear();
        // The order of a subquery's rows matters where only some of them are taken.
        if query.limit_clause.is_some() {
            select::order_rolled_up(query);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<SqlError> {
        match table {
            TableFactor::Table {
                index_hints,
                name,
                args,
                ..
            } => {
                index_hints.clear();
                if args.is_none() {
                    *args = named_file(name);
                }
            }
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => settle_joins(table_with_joins),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Makes of a quoted text in the place of a table's name, as in FROM 'stars.csv', the function that reads such files. Returns its arguments.
fn named_file(name: &mut ObjectName) -> Option<TableFunctionArgs> {
    const READERS: [(&str, &[&str]); 5] = [
        ("read_csv", &["csv", "tsv", "txt", "dat"]),
        ("read_parquet", &["parquet", "parq"]),
        ("read_votable", &["vot", "votable", "xml"]),
        ("read_fits", &["fits", "fit", "fts"]),
        ("read_arrow", &["arrow", "arrows", "feather", "ipc"]),
    ];
    let [ObjectNamePart::Identifier(only)] = name.0.as_slice() else {
        return None;
    };
    if !matches!(only.quote_style, Some('\'' | '"')) {
        return None;
    }
    let path = only.value.clone();
    let folded = path.to_ascii_lowercase();
    let plain = folded.strip_suffix(".gz").unwrap_or(&folded);
    let extension = plain.rsplit_once('.')?.1;
    let (reader, _) = READERS
        .iter()
        .find(|(_, extensions)| extensions.contains(&extension))?;
    *name = ObjectName::from(vec![Ident::new(*reader)]);
    Some(TableFunctionArgs {
        args: vec![argument(Expr::Value(
            Value::SingleQuotedString(path).into(),
        ))],
        settings: None,
    })
}

fn is_dual(from: &[TableWithJoins]) -> bool {
    matches!(from, [TableWithJoins { relation: TableFactor::Table { name, alias: None, .. }, joins }]
        if joins.is_empty() && name.to_string() == "dual")
}

/// Whether an item of a SELECT is `*`.
fn is_all(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_))
}

fn settle_joins(from: &mut TableWithJoins) {
    for join in &mut from.joins {
        if let Some(JoinConstraint::On(condition)) = constraint(join) {
            make_truth(condition);
        }
    }
}

fn constraint(join: &mut Join) -> Option<&mut JoinConstraint> {
    match &mut join.join_operator {
        JoinOperator::StraightJoin(constraint) | JoinOperator::CrossJoin(constraint) => {
            // Both are inner joins: MySQL lets a CROSS JOIN have a condition.
            let constraint = std::mem::replace(constraint, JoinConstraint::None);
            join.join_operator = match constraint {
                JoinConstraint::None => JoinOperator::CrossJoin(JoinConstraint::None),
                some => JoinOperator::Inner(some),
            };
        }
        // So is one without either word, whether it has a condition or not.
        JoinOperator::Join(JoinConstraint::None) | JoinOperator::Inner(JoinConstraint::None) => {
            join.join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        }
        _ => {}
    }
    match &mut join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => Some(constraint),
        _ => None,
    }
}

impl Rewriter<'_> {
    fn expand(&self, expr: Expr) -> Result<Expr, SqlError> {
        Ok(match row_values::as_row(expr) {
            // Comparisons and memberships have taken theirs apart.
            Expr::Tuple(values) => return Err(row_values::stray(values.len())),
            Expr::Function(function) => self.expand_function(function)?,
            Expr::BinaryOp { left, op, right } => self.expand_operator(*left, op, *right)?,
            Expr::InList {
                expr,
                list,
                negated,
            } => {
                let list = list.into_iter().map(long_constant).collect();
                row_values::in_list(long_constant(*expr), list, negated)?
            }
            Expr::InSubquery {
                expr,
                subquery,
                negated,
            } => {
                row_values::check_width(&expr, &subquery)?;
                compare_all::member(*expr, &subquery, negated)
            }
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => {
                let [expr, low, high] = [expr, low, high].map(|it| Box::new(long_constant(*it)));
                Expr::Between {
                    expr,
                    negated,
                    low,
                    high,
                }
            }
            constant @ (Expr::Value(_) | Expr::UnaryOp { .. }) if is_whole_constant(&constant) => {
                long_constant(constant)
            }
            Expr::Interval(_) => return Err(self.stray_interval()),
            Expr::Cast {
                expr,
                data_type,
                kind,
                array,
                format,
            } => match cast(&expr, &data_type) {
                Some(call) => call,
                None => Expr::Cast {
                    expr,
                    data_type,
                    kind,
                    array,
                    format,
                },
            },
            Expr::Convert {
                expr,
                data_type: Some(data_type),
                ..
            } => match cast(&expr, &data_type) {
                Some(call) => call,
                None => plain_cast(*expr, data_type),
            },
            // CONVERT(value USING charset): all text is UTF-8.
            Expr::Convert {
                expr,
                data_type: None,
                charset,
                ..
            } => {
                let name = charset.map(|name| name.to_string().to_ascii_lowercase());
                let data_type = match name.as_deref() {
                    Some("binary") => DataType::Binary(None),
                    _ => DataType::Char(None),
                };
                match cast(&expr, &data_type) {
                    Some(call) => call,
                    None => plain_cast(*expr, data_type),
                }
            }
            Expr::Collate { expr, .. } => *expr,
            Expr::Prefixed { prefix, value } => introduced(prefix, *value)?,
            Expr::TypedString(typed) => self.typed_literal(typed)?,
            Expr::RLike {
                negated,
                expr,
                pattern,
                ..
            } => {
                let call = call("mysql_regexp_like", vec![*expr, *pattern]);
                if negated { not(call) } else { call }
            }
            other => expand_special_form(other),
        })
    }

    fn expand_function(&self, mut function: Function) -> Result<Expr, SqlError> {
        let name = function.name.to_string();
        if name == STORE
            && let FunctionArguments::List(list) = &mut function.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) = list.args.first_mut()
        {
            *value = stored_constant(take(value));
        }
        if let Some(conversion) = number_of_arguments(&name) {
            each_argument(&mut function, |argument| {
                *argument = call(conversion, vec![take(argument)]);
            });
        }
        if name == "greatest" || name == "least" {
            return Ok(null_if_any_is(function));
        }
        if let Some(expr) = self.expand_interval_call(&name, &function)? {
            return Ok(expr);
        }
        if let Some(document) = json_calls::expanded(self.sql, &name, &function)? {
            return Ok(document);
        }
        if name == "group_concat" {
            return group_concat(self.sql, function);
        }
        if name == "count" {
            return Ok(Expr::Function(count_of_several(function)));
        }
        let plain = function.over.is_none() && function.filter.is_none();
        if let Some(arguments) = plain_arguments(&function) {
            let aggregate = ["std", "stddev", "variance"].contains(&name.as_str());
            if (plain || aggregate)
                && let Some(mut expanded) = expansion(&name, &arguments)
            {
                // A window's function stays one.
                if let Expr::Function(inner) = &mut expanded
                    && !plain
                {
                    inner.over = function.over;
                    inner.filter = function.filter;
                }
                return Ok(match expanded {
                    // What it calls is the engine's.
                    Expr::Function(inner) => Expr::Function(inner),
                    other => Expr::Nested(Box::new(other)),
                });
            }
        }
        if let Some(read) = str_to_date(&name, &function) {
            return Ok(read);
        }
        if name == "unix_timestamp" && is_of_whole_seconds(&function) {
            function.name = ObjectName::from(vec![Ident::new("mysql_unix_seconds")]);
            return Ok(Expr::Function(function));
        }
        if let Some(engines) = engine_name(&name) {
            function.name = ObjectName::from(vec![Ident::new(rounding(&engines, &function))]);
        }
        Ok(Expr::Function(function))
    }

    /// DATE_ADD, DATE_SUB, TIMESTAMPADD and TIMESTAMPDIFF, whose arguments are no expressions.
    fn expand_interval_call(
        &self,
        name: &str,
        function: &Function,
    ) -> Result<Option<Expr>, SqlError> {
        let Some(arguments) = plain_arguments(function) else {
            return Ok(None);
        };
        let sign = match name {
            "date_add" | "adddate" => 1,
            "date_sub" | "subdate" => -1,
            "timestampadd" | "timestampdiff" => {
                let [unit, first, second] = arguments.as_slice() else {
                    return Ok(None);
                };
                let unit = text(&unit.to_string());
                return Ok(Some(match name {
                    "timestampadd" => added(second.clone(), first.clone(), unit),
                    _ => call(
                        "mysql_timestampdiff",
                        vec![unit, first.clone(), second.clone()],
                    ),
                }));
            }
            _ => return Ok(None),
        };
        match arguments.as_slice() {
            [time, Expr::Interval(interval)] => self.moved(time.clone(), interval, sign).map(Some),
            [time, days] => {
                let days = if sign < 0 {
                    negated(days.clone())
                } else {
                    days.clone()
                };
                Ok(Some(added(time.clone(), days, text("day"))))
            }
            _ => Ok(None),
        }
    }

    fn expand_operator(
        &self,
        left: Expr,
        op: BinaryOperator,
        right: Expr,
    ) -> Result<Expr, SqlError> {
        match (left, op, right) {
            (time, BinaryOperator::Plus, Expr::Interval(interval))
            | (Expr::Interval(interval), BinaryOperator::Plus, time) => {
                self.moved(time, &interval, 1)
            }
            (time, BinaryOperator::Minus, Expr::Interval(interval)) => {
                self.moved(time, &interval, -1)
            }
            (left, op, right) if is_comparison(&op) => {
                row_values::compared(long_constant(left), op, long_constant(right))
            }
            // A value of a JSON document, and the same without quotes.
            (document, BinaryOperator::Arrow, path) => {
                Ok(call("mysql_json_extract", vec![document, path]))
            }
            (document, BinaryOperator::LongArrow, path) => {
                let value = call("mysql_json_extract", vec![document, path]);
                Ok(call("mysql_json_unquote", vec![value]))
            }
            (left, op, right) => Ok(Expr::BinaryOp {
                left: Box::new(left),
                op,
                right: Box::new(right),
            }),
        }
    }

    /// `DATE '2010-06-15'` and `TIMESTAMP '2010-06-15 12:30:00'`, of all years that MySQL has.
    fn typed_literal(&self, typed: TypedString) -> Result<Expr, SqlError> {
        let function = match typed.data_type {
            DataType::Date => "mysql_date",
            DataType::Timestamp(..) | DataType::Datetime(_) => "mysql_timestamp",
            DataType::Time(..) => "mysql_time",
            _ => return Ok(Expr::TypedString(typed)),
        };
        let value = Expr::Value(typed.value);
        let Some(text) = constant_text(&value) else {
            return Ok(call(function, vec![value]));
        };
        let (type_name, example) = match function {
            "mysql_date" => ("DATE", "2010-06-15"),
            "mysql_time" => ("TIME", "12:30:00"),
            _ => ("TIMESTAMP", "2010-06-15 12:30:00"),
        };
        let is_one = match function {
            "mysql_time" => is_clock(text),
            _ => is_moment(text),
        };
        if !is_one {
            let of_what = if function == "mysql_time" {
                "a day"
            } else {
                "the calendar"
            };
            let sentence = format!(
                "{type_name} '{text}' is none of {of_what}; write it as in {type_name} '{example}'"
            );
            let error = SqlError::about(self.sql, text, sentence);
            return Err(error.with_code(ErrorCode::WRONG_VALUE));
        }
        Ok(call(function, vec![value]))
    }

    /// A time moved by an interval.
    fn moved(&self, time: Expr, interval: &Interval, sign: i32) -> Result<Expr, SqlError> {
        let Some(unit) = &interval.leading_field else {
            return Err(self.stray_interval());
        };
        let amount = (*interval.value).clone();
        if let Some(parts) = compound_units::of_interval(interval) {
            let parts = parts.ok_or_else(|| self.stray_interval())?;
            // Its amount has a text of several numbers, which has no negative.
            let sign = if sign < 0 { "-" } else { "" };
            return Ok(added(time, amount, text(&format!("{sign}{parts}"))));
        }
        let amount = if sign < 0 { negated(amount) } else { amount };
        Ok(added(time, amount, text(&unit_name(unit))))
    }

    fn stray_interval(&self) -> SqlError {
        SqlError::about(
            self.sql,
            "interval",
            "an INTERVAL is added to a time or subtracted from one, as in lastSeen + INTERVAL 1 DAY",
        )
        .with_code(ErrorCode::SYNTAX)
    }
}

/// A time moved by so many units. A date stays a date where the unit is no part of a day.
fn added(time: Expr, amount: Expr, unit: Expr) -> Expr {
    let name = unit.to_string();
    let part_of_day = ["second", "minute", "hour"]
        .iter()
        .any(|it| name.contains(it));
    let function = if part_of_day {
        "mysql_time_add"
    } else {
        "mysql_date_add"
    };
    call(function, vec![time, amount, unit])
}

/// STR_TO_DATE by a constant format, which gives dates or times of day where it has no more; `None` for other calls.
fn str_to_date(name: &str, function: &Function) -> Option<Expr> {
    let arguments = plain_arguments(function)?;
    let ("str_to_date", [_, format]) = (name, arguments.as_slice()) else {
        return None;
    };
    let parts = parts_of(constant_text(format)?);
    let times = call("mysql_str_to_date", arguments.clone());
    Some(match parts {
        FormatParts::Date => call("mysql_date", vec![times]),
        FormatParts::Time => call("mysql_str_to_time", arguments),
        FormatParts::DateAndTime => times,
    })
}

/// Whether UNIX_TIMESTAMP is of a time that is known to have no fraction: a constant without one, or the present time.
fn is_of_whole_seconds(function: &Function) -> bool {
    const PRESENT: [&str; 8] = [
        "now",
        "sysdate",
        "localtime",
        "localtimestamp",
        "current_timestamp",
        "utc_timestamp",
        "curdate",
        "current_date",
    ];
    let arguments = plain_arguments(function).unwrap_or_default();
    let [time] = arguments.as_slice() else {
        return false;
    };
    match time {
        Expr::Function(present) => {
            let digits = plain_arguments(present).unwrap_or_default();
            digits.is_empty() && PRESENT.contains(&present.name.to_string().as_str())
        }
        Expr::TypedString(typed) => !typed.value.to_string().contains('.'),
        constant => constant_text(constant).is_some_and(|text| !text.contains('.')),
    }
}

fn constant_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}
