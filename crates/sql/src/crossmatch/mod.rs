//! `nearest(left, right, radius)` and `crossmatch(left, right, radius)` in FROM: what their arguments mean.
//!
//! A side may be a table, a SELECT in parentheses or another table function. The planner looks up the tables of a statement
//! before it plans it, and finds them in FROM alone, so [`wrap_sides`] makes a SELECT of whatever stands for a side. What the
//! functions do is for the planner; here is what can be told from the text: which arguments there are and whether they
//! make sense together.

mod names;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Query, Statement, TableFactor, Value, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

pub use self::names::{MatchNames, SEPARATION_COLUMN, SIDE_SUFFIXES};
use crate::visiting::visit_mut;
use crate::{Dialect, SqlError};

/// More partners than this of each row are not looked for: who wants them wants all within a radius.
const MOST_NEAREST: usize = 1000;

/// The functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchFunction {
    /// `nearest(left, right, radius [, k])`.
    Nearest,
    /// `crossmatch(left, right, radius [, find [, join]])`.
    Crossmatch,
}

impl MatchFunction {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Nearest, Self::Crossmatch];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Crossmatch => "crossmatch",
        }
    }

    /// The function of a FROM item, if it is one of these.
    fn of(factor: &TableFactor) -> Option<(Self, &[FunctionArg])> {
        let TableFactor::Table {
            name,
            args: Some(args),
            ..
        } = factor
        else {
            return None;
        };
        let [part] = name.0.as_slice() else {
            return None;
        };
        let name = &part.as_ident()?.value;
        let function = Self::ALL
            .into_iter()
            .find(|function| function.name() == name)?;
        Some((function, &args.args))
    }

    /// What its arguments are called, in the order in which they stand.
    fn arguments(self) -> &'static [Argument] {
        match self {
            Self::Nearest => &[
                Argument::Left,
                Argument::Right,
                Argument::Radius,
                Argument::K,
            ],
            Self::Crossmatch => &[
                Argument::Left,
                Argument::Right,
                Argument::Radius,
                Argument::Find,
                Argument::Join,
            ],
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Self::Nearest => "nearest(left, right, radius in arcseconds [, k])",
            Self::Crossmatch => {
                "crossmatch(left, right, radius in arcseconds [, find [, join]]), where find is 'best', 'best1', 'best2' or 'all' and join '1and2', 'all1' or '1not2'"
            }
        }
    }
}

/// An argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument {
    Left,
    Right,
    Radius,
    K,
    Find,
    Join,
    LeftRa,
    LeftDec,
    RightRa,
    RightDec,
}

impl Argument {
    /// Those that must be given by their names.
    const NAMED: [Self; 4] = [Self::LeftRa, Self::LeftDec, Self::RightRa, Self::RightDec];

    fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
            Self::Radius => "radius",
            Self::K => "k",
            Self::Find => "find",
            Self::Join => "join",
            Self::LeftRa => "left_ra",
            Self::LeftDec => "left_dec",
            Self::RightRa => "right_ra",
            Self::RightDec => "right_dec",
        }
    }
}

/// Which pairs are wanted of those within the radius.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Find {
    /// Each left row's so many nearest.
    Nearest(usize),
    /// Those of which neither end has a nearer partner.
    Best,
    /// Each left row's nearest.
    Best1,
    /// Each right row's nearest.
    Best2,
    /// All.
    All,
}

/// Which left rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchJoin {
    /// Those in a pair: `1and2`.
    Matched,
    /// All, those in no pair beside NULLs: `all1`.
    AllLeft,
    /// Those in no pair: `1not2`.
    LeftAlone,
}

/// One call, read.
#[derive(Debug, Clone, PartialEq)]
pub struct MatchCall {
    /// The function.
    pub function: MatchFunction,
    /// The left side.
    pub left: Box<Query>,
    /// The right side.
    pub right: Box<Query>,
    /// The radius in arcseconds.
    pub radius: Expr,
    /// Which pairs.
    pub find: Find,
    /// Which left rows.
    pub join: MatchJoin,
    /// The left side's columns of right ascension and declination, where they are told.
    pub left_position: Option<[String; 2]>,
    /// The same of the right side.
    pub right_position: Option<[String; 2]>,
}

/// Makes a SELECT of every side of a function of these, and checks the functions' arguments.
pub(crate) fn wrap_sides(
    dialect: Dialect,
    sql: &str,
    statement: &mut Statement,
) -> Result<(), SqlError> {
    struct Wrapping<'a>(Dialect, &'a str);
    impl VisitorMut for Wrapping<'_> {
        type Break = SqlError;

        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
            let Some((function, _)) = MatchFunction::of(factor) else {
                return ControlFlow::Continue(());
            };
            wrap(self.0, function, factor);
            match MatchCall::of(factor) {
                Err(sentence) => {
                    ControlFlow::Break(SqlError::about(self.1, function.name(), sentence))
                }
                Ok(_) => ControlFlow::Continue(()),
            }
        }
    }
    match visit_mut(statement, &mut Wrapping(dialect, sql)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn wrap(dialect: Dialect, function: MatchFunction, factor: &mut TableFactor) {
    for side in sides(function, factor).into_iter().flatten() {
        if let Some(query) = select_all(dialect, side) {
            *side = Expr::Subquery(query);
        }
    }
}

/// The arguments of a call that are its left and its right side.
fn sides(function: MatchFunction, factor: &mut TableFactor) -> [Option<&mut Expr>; 2] {
    let mut found = [None, None];
    let TableFactor::Table {
        args: Some(args), ..
    } = factor
    else {
        return found;
    };
    let mut order = function.arguments().iter();
    for arg in &mut args.args {
        let name = match arg {
            FunctionArg::Unnamed(_) => order.next().map(|argument| argument.name()),
            _ => name_of(arg),
        };
        let sides = [Argument::Left, Argument::Right];
        let at = sides.iter().position(|side| name == Some(side.name()));
        if let Some(at) = at {
            found[at] = value_mut(arg);
        }
    }
    found
}

/// The sides of a FROM item that is a call of these functions, and which of their rows it gives.
pub(crate) fn joined_sides(factor: &mut TableFactor) -> Option<(MatchJoin, [&mut Query; 2])> {
    let call = MatchCall::of(factor).ok()??;
    match sides(call.function, factor) {
        [Some(Expr::Subquery(left)), Some(Expr::Subquery(right))] => {
            Some((call.join, [left, right]))
        }
        _ => None,
    }
}

/// `SELECT *` from a table or a table function.
fn select_all(dialect: Dialect, side: &Expr) -> Option<Box<Query>> {
    match side {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_) => {}
        Expr::Nested(inner) => return select_all(dialect, inner),
        _ => return None,
    }
    Parser::new(dialect.grammar())
        .try_with_sql(&format!("SELECT * FROM {side}"))
        .and_then(|mut parser| parser.parse_query())
        .ok()
}

fn name_of(arg: &FunctionArg) -> Option<&str> {
    match arg {
        FunctionArg::Named { name, .. } => Some(&name.value),
        FunctionArg::ExprNamed {
            name: Expr::Identifier(name),
            ..
        } => Some(&name.value),
        _ => None,
    }
}

fn value(arg: &FunctionArg) -> Option<&Expr> {
    let (FunctionArg::Named { arg, .. }
    | FunctionArg::ExprNamed { arg, .. }
    | FunctionArg::Unnamed(arg)) = arg;
    match arg {
        FunctionArgExpr::Expr(expr) => Some(expr),
        _ => None,
    }
}

fn value_mut(arg: &mut FunctionArg) -> Option<&mut Expr> {
    let (FunctionArg::Named { arg, .. }
    | FunctionArg::ExprNamed { arg, .. }
    | FunctionArg::Unnamed(arg)) = arg;
    match arg {
        FunctionArgExpr::Expr(expr) => Some(expr),
        _ => None,
    }
}

impl MatchCall {
    /// The call that a FROM item is; `None` if it is another item. Its sides must be SELECTs by now.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the arguments; it begins with the function's name.
    pub fn of(factor: &TableFactor) -> Result<Option<Self>, String> {
        match MatchFunction::of(factor) {
            Some((function, args)) => CallArguments::read(function, args)?.call().map(Some),
            None => Ok(None),
        }
    }
}

/// The arguments of a call, told apart.
struct CallArguments<'a> {
    function: MatchFunction,
    values: Vec<(Argument, &'a Expr)>,
}

impl<'a> CallArguments<'a> {
    fn read(function: MatchFunction, args: &'a [FunctionArg]) -> Result<Self, String> {
        let mut given = Self {
            function,
            values: Vec::with_capacity(args.len()),
        };
        let mut order = function.arguments().iter();
        for arg in args {
            let argument = match name_of(arg) {
                Some(name) => given.named(name)?,
                None => *order
                    .next()
                    .ok_or_else(|| given.wrong("has too many arguments"))?,
            };
            let Some(value) = value(arg) else {
                return Err(given.wrong("does not take *"));
            };
            if given.get(argument).is_some() {
                return Err(given.wrong(&format!("is given {} twice", argument.name())));
            }
            given.values.push((argument, value));
        }
        Ok(given)
    }

    fn named(&self, name: &str) -> Result<Argument, String> {
        let arguments = self.function.arguments().iter().copied();
        let known: Vec<Argument> = arguments.chain(Argument::NAMED).collect();
        let found = known.iter().find(|argument| argument.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|argument| argument.name()).collect();
            let sentence = format!(
                "{} has no argument {name}; its arguments are {}",
                self.function.name(),
                names.join(", ")
            );
            sentence
        })
    }

    fn get(&self, argument: Argument) -> Option<&'a Expr> {
        let found = self.values.iter().find(|(given, _)| *given == argument);
        found.map(|(_, value)| *value)
    }

    /// A sentence about the whole call.
    fn wrong(&self, what: &str) -> String {
        let name = self.function.name();
        format!("{name} {what}: write {}", self.function.usage())
    }

    fn call(&self) -> Result<MatchCall, String> {
        let radius = self
            .get(Argument::Radius)
            .ok_or_else(|| self.wrong("needs two tables and a radius"))?;
        let (find, join) = (self.find()?, self.join()?);
        if find == Find::Best2 && join != MatchJoin::Matched {
            return Err(
                "crossmatch gives only '1and2' with 'best2': for left rows without a match use 'best', 'best1' or 'all', or name the tables the other way round"
                    .to_owned(),
            );
        }
        Ok(MatchCall {
            function: self.function,
            left: self.side(Argument::Left)?,
            right: self.side(Argument::Right)?,
            radius: radius.clone(),
            find,
            join,
            left_position: self.position([Argument::LeftRa, Argument::LeftDec])?,
            right_position: self.position([Argument::RightRa, Argument::RightDec])?,
        })
    }

    fn side(&self, argument: Argument) -> Result<Box<Query>, String> {
        match self.get(argument) {
            Some(Expr::Subquery(query)) => Ok(query.clone()),
            Some(_) => Err(self.wrong(&format!(
                "takes a table, a SELECT in parentheses or a table function for {}",
                argument.name()
            ))),
            None => Err(self.wrong("needs two tables and a radius")),
        }
    }

    fn find(&self) -> Result<Find, String> {
        if self.function == MatchFunction::Nearest {
            return self.nearest().map(Find::Nearest);
        }
        match self.word(Argument::Find)?.as_deref() {
            None | Some("best") => Ok(Find::Best),
            Some("best1") => Ok(Find::Best1),
            Some("best2") => Ok(Find::Best2),
            Some("all") => Ok(Find::All),
            Some(other) => Err(format!(
                "crossmatch cannot find '{other}': find is 'best', 'best1', 'best2' or 'all'"
            )),
        }
    }

    fn join(&self) -> Result<MatchJoin, String> {
        match self.word(Argument::Join)?.as_deref() {
            None | Some("1and2") => Ok(MatchJoin::Matched),
            Some("all1") => Ok(MatchJoin::AllLeft),
            Some("1not2") => Ok(MatchJoin::LeftAlone),
            Some(other) => Err(format!(
                "crossmatch cannot join by '{other}': join is '1and2', 'all1' or '1not2'"
            )),
        }
    }

    /// How many of the nearest.
    fn nearest(&self) -> Result<usize, String> {
        let Some(k) = self.get(Argument::K) else {
            return Ok(1);
        };
        let wanted = match k {
            Expr::Value(value) => match &value.value {
                Value::Number(number, _) => number.parse().ok(),
                _ => None,
            },
            _ => None,
        };
        wanted
            .filter(|k| (1..=MOST_NEAREST).contains(k))
            .ok_or_else(|| {
                format!(
                    "nearest takes for k a whole number from 1 to {MOST_NEAREST}, not {k}; all within the radius are given by crossmatch(left, right, radius, 'all')"
                )
            })
    }

    /// An argument that is a word, in quotes or without.
    fn word(&self, argument: Argument) -> Result<Option<String>, String> {
        match self.get(argument) {
            None => Ok(None),
            Some(Expr::Identifier(Ident { value, .. })) => Ok(Some(value.clone())),
            Some(Expr::Value(value)) => match value.value.clone().into_string() {
                Some(text) => Ok(Some(text.to_ascii_lowercase())),
                None => Err(self.not_a_word(argument)),
            },
            Some(_) => Err(self.not_a_word(argument)),
        }
    }

    fn not_a_word(&self, argument: Argument) -> String {
        self.wrong(&format!("takes a word in quotes for {}", argument.name()))
    }

    fn position(&self, [ra, dec]: [Argument; 2]) -> Result<Option<[String; 2]>, String> {
        match (self.word(ra)?, self.word(dec)?) {
            (Some(ra), Some(dec)) => Ok(Some([ra, dec])),
            (None, None) => Ok(None),
            _ => Err(format!(
                "{} needs both {} and {} to know a position",
                self.function.name(),
                ra.name(),
                dec.name()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold_case;

    #[test]
    fn sides_become_selects() {
        for (sql, wrapped) in [
            (
                "SELECT * FROM Crossmatch(Sky.Object, \"Gaia\", 1.5, 'best1') AS x",
                "SELECT * FROM crossmatch((SELECT * FROM sky.object), (SELECT * FROM \"gaia\"), 1.5, 'best1') AS x",
            ),
            (
                "SELECT * FROM nearest(read_csv('A.csv'), right => (SELECT id FROM T), radius => 2)",
                "SELECT * FROM nearest((SELECT * FROM read_csv('A.csv')), right => (SELECT id FROM t), radius => 2)",
            ),
            (
                "SELECT * FROM nearest(nearest(a, b, 1), c, 2)",
                "SELECT * FROM nearest((SELECT * FROM nearest((SELECT * FROM a), (SELECT * FROM b), 1)), (SELECT * FROM c), 2)",
            ),
        ] {
            assert_eq!(read(sql).unwrap(), wrapped);
        }
    }

    #[test]
    fn arguments_are_read_by_place_and_by_name() {
        let call = call(
            "crossmatch(a, b, join => 'ALL1', radius => 3, find => best1, left_ra => RA2, left_dec => 'Dec2')",
        );
        assert_eq!((call.find, call.join), (Find::Best1, MatchJoin::AllLeft));
        assert_eq!(call.left_position, Some(["ra2".into(), "dec2".into()]));
        assert_eq!(call.right_position, None);
        assert_eq!(call.radius.to_string(), "3");
        let defaults = self::call("crossmatch(a, b, 1)");
        assert_eq!(
            (defaults.find, defaults.join),
            (Find::Best, MatchJoin::Matched)
        );
        assert_eq!(self::call("nearest(a, b, 1)").find, Find::Nearest(1));
        assert_eq!(self::call("nearest(a, b, 1, 7)").find, Find::Nearest(7));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (item, told) in [
            ("crossmatch(a, b)", "needs two tables and a radius"),
            ("crossmatch(a, 'b.csv', 1)", "for right"),
            (
                "crossmatch(a, b, 1, 'closest')",
                "'best', 'best1', 'best2' or 'all'",
            ),
            (
                "crossmatch(a, b, 1, 'all', 'all2')",
                "'1and2', 'all1' or '1not2'",
            ),
            (
                "crossmatch(a, b, 1, 'best2', 'all1')",
                "only '1and2' with 'best2'",
            ),
            (
                "crossmatch(a, b, 1, k => 2)",
                "has no argument k; its arguments are left,",
            ),
            ("crossmatch(a, b, 1, radius => 2)", "radius twice"),
            ("nearest(a, b, 1, 2, 3)", "too many arguments"),
            ("nearest(a, b, 1, 0)", "from 1 to 1000, not 0"),
            ("nearest(a, b, 1, 1.5)", "from 1 to 1000, not 1.5"),
            (
                "nearest(a, b, 1, left_ra => x)",
                "both left_ra and left_dec",
            ),
            ("nearest(a, *, 1)", "does not take *"),
        ] {
            let error = read(&format!("SELECT 1\nFROM {item}")).unwrap_err();
            assert!(error.sentence().contains(told), "{item}: {error}");
            assert!(error.to_string().contains("line 2, column 6"), "{error}");
        }
    }

    /// Sides are read again by themselves: as the dialect of the statement has it.
    #[test]
    fn double_quotes_in_a_side_are_those_of_the_dialect() {
        let sql = "SELECT * FROM nearest(a, read_csv(\"B.csv\"), 1)";
        let path = |dialect| {
            let statement = statement(dialect, sql).unwrap().to_string();
            let again = Parser::parse_sql(dialect.grammar(), &statement).unwrap();
            format!("{:?}", again[0])
        };
        assert!(path(Dialect::MySql).contains("DoubleQuotedString(\"B.csv\")"));
        assert!(!path(Dialect::Adql).contains("DoubleQuotedString"));
    }

    fn statement(dialect: Dialect, sql: &str) -> Result<Statement, SqlError> {
        let folded = fold_case(dialect, sql)?;
        let mut statement = Parser::parse_sql(dialect.grammar(), &folded)
            .unwrap()
            .remove(0);
        wrap_sides(dialect, sql, &mut statement)?;
        Ok(statement)
    }

    fn read(sql: &str) -> Result<String, SqlError> {
        statement(Dialect::Adql, sql).map(|statement| statement.to_string())
    }

    fn call(item: &str) -> MatchCall {
        struct First(Option<MatchCall>);
        impl VisitorMut for First {
            type Break = ();
            fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
                self.0 = MatchCall::of(factor).unwrap();
                ControlFlow::Break(())
            }
        }
        let mut first = First(None);
        let mut statement = statement(Dialect::Adql, &format!("SELECT * FROM {item}")).unwrap();
        let _ = visit_mut(&mut statement, &mut first);
        first.0.unwrap()
    }
}
