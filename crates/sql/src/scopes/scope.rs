//! What the names in a SELECT can mean: the columns of its tables, and those that `USING` and `NATURAL` make one of two.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, SelectItem,
    SelectItemQualifiedWildcardKind, Value, WildcardAdditionalOptions,
};

use crate::Dialect;
use crate::areaspec::name_parts;
use crate::common_columns::{KeptSide, coalesce, column_of, kept_side, named};
use crate::hidden::excluding;

/// A table of a FROM, or what stands in the place of one.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// What its columns are qualified with.
    pub name: ObjectName,
    pub columns: Vec<String>,
    /// Those that a join has made one with another table's.
    merged: Vec<String>,
}

impl Source {
    pub(super) fn new(name: ObjectName, columns: Vec<String>) -> Self {
        Self {
            name,
            columns,
            merged: vec![],
        }
    }

    /// Whether a column is its by its name alone.
    fn shows(&self, name: &str) -> bool {
        self.has(name) && !self.is_merged(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column == name)
    }

    /// Whether it has two columns of this name.
    pub(super) fn repeats(&self, name: &str) -> bool {
        self.columns.iter().filter(|column| *column == name).count() > 1
    }

    fn is_merged(&self, name: &str) -> bool {
        self.merged.iter().any(|column| column == name)
    }

    /// Whether qualifiers mean it: a table of a database may be meant by its short name, or the other way round.
    pub(super) fn is_meant_by(&self, qualifiers: &[&str]) -> bool {
        let own = name_parts(&self.name);
        own.ends_with(qualifiers) || qualifiers.ends_with(&own)
    }
}

/// A column that a join has made one of two.
#[derive(Debug, Clone)]
struct Common {
    name: Ident,
    /// What it stands for, with qualified names.
    value: Expr,
}

/// What a `*` shows, in its order.
#[derive(Debug, Clone)]
enum Shown {
    Common(String),
    /// The columns of a table that are its own, by the table's place.
    Rest(usize),
}

/// Tables that are joined.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    pub sources: Vec<Source>,
    common: Vec<Common>,
    shown: Vec<Shown>,
}

impl From<Source> for Tables {
    fn from(source: Source) -> Self {
        Self {
            sources: vec![source],
            common: vec![],
            shown: vec![Shown::Rest(0)],
        }
    }
}

impl Tables {
    /// The tables of both, one beside the other.
    pub(super) fn and(mut self, mut right: Self) -> Self {
        right.move_by(self.sources.len());
        self.sources.extend(right.sources);
        self.common.extend(right.common);
        self.shown.extend(right.shown);
        self
    }

    fn move_by(&mut self, places: usize) {
        for shown in &mut self.shown {
            if let Shown::Rest(at) = shown {
                *at += places;
            }
        }
    }

    /// The tables of both, joined: columns in common that are not written out are, in the condition of the join. Nothing if a column in
    /// common is not one of each side, which the planner says.
    pub(super) fn joined(
        mut self,
        mut right: Self,
        join: &mut JoinOperator,
        dialect: Dialect,
    ) -> Option<Self> {
        let is_plain = |constraint: &JoinConstraint| {
            matches!(constraint, JoinConstraint::On(_) | JoinConstraint::None)
        };
        let (kept, names) = match (kept_side(join), &*join) {
            (Some((_, constraint)), _) if is_plain(constraint) => return Some(self.and(right)),
            (Some((kept, JoinConstraint::Using(typed))), _) => {
                let typed = typed.iter().map(|name| name.0.last()?.as_ident().cloned());
                (kept, typed.collect::<Option<Vec<_>>>()?)
            }
            (Some((kept, _)), _) => {
                let names = self.names().into_iter().filter(|name| right.has(name));
                (kept, names.map(Ident::new).collect())
            }
            (None, JoinOperator::CrossJoin(on) | JoinOperator::StraightJoin(on))
                if is_plain(on) =>
            {
                return Some(self.and(right));
            }
            _ => return None,
        };
        // MySQL takes a right join for a left one with its sides changed, here as well.
        let names = match (kept, dialect) {
            (KeptSide::Right, Dialect::MySql) => right.in_order(names)?,
            _ => self.in_order(names)?,
        };
        let mut conditions = Vec::with_capacity(names.len());
        let mut common = Vec::with_capacity(names.len());
        for name in names {
            let (left, right) = (self.merge(&name.value)?, right.merge(&name.value)?);
            conditions.push(equal(left.clone(), right.clone()));
            let value = match kept {
                KeptSide::Left => left,
                KeptSide::Right => right,
                KeptSide::Both => coalesce([left, right]),
            };
            common.push(Common { name, value });
        }
        write_condition(join, conditions);
        Some(self.with_common(right, common, kept, dialect))
    }

    /// The tables of both, with these columns in common before all others.
    fn with_common(
        self,
        mut right: Self,
        mut common: Vec<Common>,
        kept: KeptSide,
        dialect: Dialect,
    ) -> Self {
        right.move_by(self.sources.len());
        let first = common.iter();
        let first = first.map(|common| Shown::Common(common.name.value.clone()));
        let mut shown: Vec<Shown> = first.collect();
        match (kept, dialect) {
            (KeptSide::Right, Dialect::MySql) => {
                shown.extend(right.shown.into_iter().chain(self.shown));
            }
            _ => shown.extend(self.shown.into_iter().chain(right.shown)),
        }
        common.extend(self.common.into_iter().chain(right.common));
        let mut sources = self.sources;
        sources.extend(right.sources);
        Self {
            sources,
            common,
            shown,
        }
    }

    /// These columns in the order in which they are shown; nothing if one is not.
    fn in_order(&self, names: Vec<Ident>) -> Option<Vec<Ident>> {
        let shown = self.names();
        let place = |name: &Ident| shown.iter().position(|it| *it == name.value);
        let mut placed = Vec::with_capacity(names.len());
        for name in names {
            placed.push((place(&name)?, name));
        }
        placed.sort_by_key(|(place, _)| *place);
        placed.dedup_by_key(|(place, _)| *place);
        Some(placed.into_iter().map(|(_, name)| name).collect())
    }

    /// The value of the only column of this name, which is part of one in common from now on.
    fn merge(&mut self, name: &str) -> Option<Expr> {
        let value = self.value(name)?;
        self.common.retain(|common| common.name.value != name);
        self.shown
            .retain(|shown| !matches!(shown, Shown::Common(common) if common == name));
        for source in self.sources.iter_mut().filter(|source| source.shows(name)) {
            source.merged.push(name.to_owned());
        }
        Some(value)
    }

    /// What a name stands for; nothing if no column has it, or several have.
    pub(super) fn value(&self, name: &str) -> Option<Expr> {
        let common = self.common.iter().filter(|it| it.name.value == name);
        let own = self.sources.iter().filter(|source| source.shows(name));
        let own = own.map(|source| column_of(&source.name, &Ident::new(name)));
        let mut all = common.map(|it| it.value.clone()).chain(own);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    }

    /// Whether a column has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.has(name))
    }

    /// The value of a column in common.
    pub(super) fn common_value(&self, name: &str) -> Option<&Expr> {
        let is_it = |common: &&Common| common.name.value == name;
        let is_alone = !self.sources.iter().any(|source| source.shows(name));
        let mut all = self.common.iter().filter(is_it);
        let only = all.next()?;
        (is_alone && all.next().is_none()).then_some(&only.value)
    }

    pub(super) fn has_common(&self) -> bool {
        !self.common.is_empty()
    }

    /// The names of the columns of a `*`.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for shown in &self.shown {
            match shown {
                Shown::Common(name) => names.push(name.clone()),
                Shown::Rest(at) => {
                    let source = &self.sources[*at];
                    let own = source.columns.iter();
                    names.extend(own.filter(|name| !source.is_merged(name)).cloned());
                }
            }
        }
        names
    }

    /// What a `*` stands for.
    pub(super) fn all(&self) -> Vec<SelectItem> {
        let items = self.shown.iter().filter_map(|shown| match shown {
            Shown::Common(name) => Some(named(Ident::new(name))),
            Shown::Rest(at) => {
                let source = &self.sources[*at];
                let merged: Vec<Ident> = source.merged.iter().map(Ident::new).collect();
                let has_others = source.columns.iter().any(|it| !source.is_merged(it));
                has_others.then(|| {
                    SelectItem::QualifiedWildcard(
                        SelectItemQualifiedWildcardKind::ObjectName(source.name.clone()),
                        excluding(WildcardAdditionalOptions::default(), &merged),
                    )
                })
            }
        });
        items.collect()
    }

    /// The only table that qualifiers mean.
    pub(super) fn meant_by(&self, qualifiers: &[&str]) -> Option<&Source> {
        let mut meant = self.sources.iter().filter(|it| it.is_meant_by(qualifiers));
        let first = meant.next()?;
        meant.next().is_none().then_some(first)
    }
}

/// The names in sight of a SELECT, and those around it.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    /// Its tables, where the columns of all of them are known.
    pub tables: Option<&'a Tables>,
    pub outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    /// What a name stands for that means a column in common, here or in a query around this one.
    pub(super) fn common_value(&self, name: &str) -> Option<&Expr> {
        let tables = self.tables?;
        if tables.has(name) {
            return tables.common_value(name);
        }
        self.outer?.common_value(name)
    }
}

fn equal(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::Eq,
        right: Box::new(right),
    }
}

/// Gives a join the conjunction of conditions in the place of its columns in common.
fn write_condition(join: &mut JoinOperator, conditions: Vec<Expr>) {
    let both = |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    let condition = conditions.into_iter().reduce(both);
    if condition.is_none() && matches!(join, JoinOperator::Join(_) | JoinOperator::Inner(_)) {
        *join = JoinOperator::CrossJoin(JoinConstraint::None);
        return;
    }
    let condition = condition.unwrap_or_else(|| Expr::Value(Value::Boolean(true).into()));
    if let JoinOperator::Join(constraint)
    | JoinOperator::Inner(constraint)
    | JoinOperator::Left(constraint)
    | JoinOperator::LeftOuter(constraint)
    | JoinOperator::Right(constraint)
    | JoinOperator::RightOuter(constraint)
    | JoinOperator::FullOuter(constraint) = join
    {
        *constraint = JoinConstraint::On(condition);
    }
}
