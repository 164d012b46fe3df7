//! How tables of users' own are spread over the sky: as children of directors, as directors, or whole.
//!
//! A statement may say it (`PARTITION BY`). Else the columns of the rows decide, as far as these rows allow it:
//! 1. a column that is the key of a director in another database: a child of that director;
//! 2. a position and a key: a director;
//! 3. all else: whole.
//!
//! A child whose director is no more what it was when the rows were placed is right still, and joined as any two tables are. Whatever
//! changes it next places its rows anew; without a director it becomes whole.

use arrow::datatypes::{DataType, Field};
use catalog::{Column, DirectorRef, Table, TableKind, TableSpec, fold_name};
use engine::{COLUMN, DATABASE, TABLE, UCD};
use ingest::LoadRequest;
use sql::ErrorCode;
use sql::mysql::{TablePartition, TargetTable};

use super::columns::positions;
use super::{Change, OwnTable};
use crate::ClientError;

/// The name of keys where nothing else says which column is one, as of those that a load generates.
const KEY: &str = "id";
/// How the sky is cut for the first director of a user's: chunks of ten degrees and sub-chunks of half a degree, for a few rows as for
/// hundreds of millions.
const CUT: (u32, u32) = (18, 20);

/// How a table is spread over the sky.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// It is not.
    Whole { position: Option<PositionNames> },
    /// By the positions of its rows.
    Director {
        key: String,
        position: PositionNames,
    },
    /// As its director's rows are.
    Child {
        /// The database of the director, if it is another.
        elsewhere: Option<String>,
        director: String,
        key: String,
        own_key: Option<String>,
        position: Option<PositionNames>,
    },
}

/// The names of the columns of right ascension and declination.
pub(super) type PositionNames = (String, String);

/// A column of rows that a table is made of.
struct RowColumn<'a> {
    name: &'a str,
    is_integer: bool,
    field: &'a Field,
}

impl<'a> RowColumn<'a> {
    fn of(field: &'a Field) -> Self {
        Self {
            name: field.name(),
            is_integer: field.data_type().is_integer(),
            field,
        }
    }

    fn said(&self, what: &str) -> Option<&str> {
        self.field.metadata().get(what).map(String::as_str)
    }

    fn has_ucd(&self, words: [&str; 2]) -> bool {
        let ucd = self.said(UCD).unwrap_or_default();
        let mut given = ucd.split(';').map(str::trim);
        words
            .iter()
            .all(|word| given.any(|it| it.eq_ignore_ascii_case(word)))
    }
}

impl Layout {
    /// Whole, with a position if columns are called so.
    pub(crate) fn whole(names: &[String]) -> Self {
        Self::Whole {
            position: positions(names),
        }
    }

    /// That of a table; `None` for pairs, which are no user's own.
    fn of(spec: &TableSpec) -> Option<Self> {
        let position = spec.position.clone().map(|it| (it.ra, it.dec));
        let names: Vec<String> = spec.columns.iter().map(|it| it.name.clone()).collect();
        Some(
            match (spec.kind, &spec.key, position, spec.directors.first()) {
                (TableKind::Replicated, ..) => Self::whole(&names),
                (TableKind::Director, Some(key), Some(position), _) => Self::Director {
                    key: key.clone(),
                    position,
                },
                (TableKind::Child, own_key, position, Some(director)) => Self::Child {
                    elsewhere: director.elsewhere.as_ref().map(|it| it.name.clone()),
                    director: director.table.clone(),
                    key: director.key.clone(),
                    own_key: own_key.clone(),
                    position,
                },
                _ => return None,
            },
        )
    }

    /// The same when columns have got other names, or are gone (`None`): what needs a column that is gone is whole then.
    pub(crate) fn renamed(self, names: &[String], name: impl Fn(&str) -> Option<String>) -> Self {
        let both = |(ra, dec): PositionNames| Some((name(&ra)?, name(&dec)?));
        let layout = match self {
            Self::Whole { .. } => None,
            Self::Director { key, position } => name(&key)
                .zip(both(position))
                .map(|(key, position)| Self::Director { key, position }),
            Self::Child {
                elsewhere,
                director,
                key,
                own_key,
                position,
            } => name(&key).map(|key| Self::Child {
                elsewhere,
                director,
                key,
                own_key: own_key.and_then(|it| name(&it)),
                position: position.and_then(both),
            }),
        };
        layout.unwrap_or_else(|| Self::whole(names))
    }

    /// The columns by whose positions rows are placed, if they are.
    pub(super) fn placing_position(&self) -> Option<&PositionNames> {
        match self {
            Self::Whole { .. } => None,
            Self::Director { position, .. } => Some(position),
            Self::Child { position, .. } => position.as_ref(),
        }
    }

    /// Says it in the request of a load.
    pub(super) fn request(self, request: &mut LoadRequest) {
        let (kind, key, position) = match self {
            Self::Whole { position } => (TableKind::Replicated, None, position),
            Self::Director { key, position } => (TableKind::Director, Some(key), Some(position)),
            Self::Child {
                elsewhere,
                director,
                key,
                own_key,
                position,
            } => {
                request.director_database = elsewhere;
                request.directors = vec![director];
                request.own_key = own_key;
                (TableKind::Child, Some(key), position)
            }
        };
        request.kind = Some(kind);
        request.key = key.into_iter().collect();
        (request.ra, request.dec) = position.unzip();
        request.cut_of_new_database = Some(CUT);
    }
}

impl Change {
    /// The layouts that the rows of a query may have, the best first, and one of them in any case.
    pub(super) async fn layouts_of_rows(
        &self,
        fields: &[Field],
    ) -> Result<Vec<Layout>, ClientError> {
        let columns: Vec<RowColumn<'_>> = fields.iter().map(RowColumn::of).collect();
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let whole = Layout::whole(&names);
        // The catalogue's own are spread as whoever loads them says.
        if !self.table.is_of_a_user().await? {
            return Ok(vec![whole]);
        }
        let position = position_of(&columns)
            .or_else(|| positions(&names).filter(|it| are_numbers(fields, it)));
        if let Some((director, key)) = self.director_of(&columns).await? {
            let child = |position| Layout::Child {
                elsewhere: Some(director.spec.database.clone()),
                director: director.spec.name.clone(),
                key: key.clone(),
                own_key: None,
                position,
            };
            let mut layouts: Vec<Layout> = position.into_iter().map(|it| child(Some(it))).collect();
            layouts.extend([child(None), whole]);
            return Ok(layouts);
        }
        let key = self.key_of(&columns).await?;
        let director = key
            .zip(position)
            .map(|(key, position)| Layout::Director { key, position });
        Ok(director.into_iter().chain([whole]).collect())
    }

    /// The director in another database whose key one of the columns is, and that column.
    async fn director_of(
        &self,
        columns: &[RowColumn<'_>],
    ) -> Result<Option<(Table, String)>, ClientError> {
        for column in columns.iter().filter(|column| column.is_integer) {
            let Some(director) = self.origin_of_key(column).await? else {
                continue;
            };
            if fold_name(&director.spec.database) != fold_name(&self.table.database) {
                return Ok(Some((director, column.name.to_owned())));
            }
        }
        Ok(None)
    }

    /// The director whose key a column is, by where it comes from.
    async fn origin_of_key(&self, column: &RowColumn<'_>) -> Result<Option<Table>, ClientError> {
        let (Some(database), Some(table), Some(name)) = (
            column.said(DATABASE),
            column.said(TABLE),
            column.said(COLUMN),
        ) else {
            return Ok(None);
        };
        let archive = &self.table.archive;
        let Some(found) = archive.table(database, table).await? else {
            return Ok(None);
        };
        let spec = found.spec();
        let is = |key: &str| fold_name(key) == fold_name(name);
        match (spec.kind, &spec.key, spec.directors.first()) {
            (TableKind::Director, Some(key), _) if is(key) => Ok(Some(found.table.clone())),
            (TableKind::Child, _, Some(director)) if is(&director.key) => {
                let director = archive
                    .table(director.database(&spec.database), &director.table)
                    .await?;
                let director = director.filter(|it| it.spec().kind == TableKind::Director);
                Ok(director.map(|it| it.table.clone()))
            }
            _ => Ok(None),
        }
    }

    /// The column that may be the key of a director.
    async fn key_of(&self, columns: &[RowColumn<'_>]) -> Result<Option<String>, ClientError> {
        let integers = || columns.iter().filter(|column| column.is_integer);
        if let Some(main) = integers().find(|column| column.has_ucd(["meta.id", "meta.main"])) {
            return Ok(Some(main.name.to_owned()));
        }
        for column in integers() {
            if self.origin_of_key(column).await?.is_some() {
                return Ok(Some(column.name.to_owned()));
            }
        }
        let named = integers().find(|column| fold_name(column.name) == KEY);
        Ok(named.map(|column| column.name.to_owned()))
    }

    /// The layout that a statement says, of a table of such columns.
    ///
    /// # Errors
    /// There is no such column or director, or a column cannot be what is said.
    pub(super) async fn layout_said(
        &self,
        partition: &TablePartition,
        columns: &[TypedColumn],
    ) -> Result<Layout, ClientError> {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let find = |name: &str| {
            let found = columns
                .iter()
                .find(|column| fold_name(&column.name) == fold_name(name));
            found.ok_or_else(|| {
                let sentence = format!(
                    "PARTITION BY names {name}, and {} has no such column",
                    self.table.shown()
                );
                ClientError::new(ErrorCode::NO_COLUMN, sentence)
            })
        };
        let key = |name: &str| {
            let column: &TypedColumn = find(name)?;
            match column.is_integer {
                true => Ok(column.name.clone()),
                false => Err(unfit(&format!(
                    "the key {name} is no integer of at most 64 bits: CAST it, or choose another column"
                ))),
            }
        };
        let degrees = |name: &str| {
            let column: &TypedColumn = find(name)?;
            match column.is_degrees {
                true => Ok(column.name.clone()),
                false => Err(unfit(&format!(
                    "the position {name} is no FLOAT or DOUBLE of degrees: CAST it, or choose another column"
                ))),
            }
        };
        match partition {
            TablePartition::Whole => Ok(Layout::whole(&names)),
            TablePartition::Director { key: id, ra, dec } => {
                let (ra, dec) = (degrees(ra)?, degrees(dec)?);
                if ra == dec {
                    return Err(unfit(
                        "the right ascension and the declination are two columns",
                    ));
                }
                Ok(Layout::Director {
                    key: key(id)?,
                    position: (ra, dec),
                })
            }
            TablePartition::Child { director, key: id } => {
                let key = key(id)?;
                let position = positions(&names).filter(|(ra, dec)| {
                    let degrees = |name| find(name).is_ok_and(|column| column.is_degrees);
                    degrees(ra) && degrees(dec)
                });
                self.child_said(director, key, position).await
            }
        }
    }

    /// The layout of a child of a director that a statement names.
    async fn child_said(
        &self,
        director: &TargetTable,
        key: String,
        position: Option<PositionNames>,
    ) -> Result<Layout, ClientError> {
        let default = self.connection.database.as_ref();
        let default = default.unwrap_or(&self.table.database);
        let database = director.database.as_ref().unwrap_or(default);
        let found = self.table.archive.table(database, &director.table).await?;
        let found = found.ok_or_else(|| {
            let sentence = format!(
                "there is no table {database}.{}, whose child {} would be",
                director.table,
                self.table.shown()
            );
            ClientError::new(ErrorCode::NO_TABLE, sentence)
        })?;
        let spec = found.spec();
        if spec.kind != TableKind::Director {
            return Err(unfit(&format!(
                "{}.{} is a {} table, and has no children: name a director",
                spec.database, spec.name, spec.kind
            )));
        }
        let is_elsewhere = fold_name(&spec.database) != fold_name(&self.table.database);
        Ok(Layout::Child {
            elsewhere: is_elsewhere.then(|| spec.database.clone()),
            director: spec.name.clone(),
            key,
            own_key: None,
            position,
        })
    }

    /// The layout of a table whose rows are written anew: as it is, unless its director is gone.
    ///
    /// # Errors
    /// It is a table that is not changed by statements.
    pub(crate) async fn layout_anew(
        &self,
        table: &OwnTable,
        spec: &TableSpec,
    ) -> Result<Layout, ClientError> {
        let may_be_spread = table.is_of_a_user().await?;
        let layout =
            Layout::of(spec).filter(|it| may_be_spread || matches!(it, Layout::Whole { .. }));
        let Some(layout) = layout else {
            let sentence = format!(
                "{} is a {} table: its rows are changed by loading it anew (`meridian load --replace`)",
                table.shown(),
                spec.kind
            );
            return Err(ClientError::new(ErrorCode::READ_ONLY, sentence));
        };
        if let Some(director) = spec.directors.first()
            && self.director_now(spec, director).await?.is_none()
        {
            return Ok(layout.renamed(&names_of(&spec.columns), |_| None));
        }
        Ok(layout)
    }

    /// The director of a table as it is now, if there is one for whoever changes the table.
    async fn director_now(
        &self,
        spec: &TableSpec,
        director: &DirectorRef,
    ) -> Result<Option<Table>, ClientError> {
        let database = director.database(&spec.database);
        let found = self.table.archive.table(database, &director.table).await?;
        let found = found.filter(|it| it.spec().kind == TableKind::Director);
        Ok(found.map(|it| it.table.clone()))
    }

    /// Whether the rows of a table are not where its director's are, and may be.
    pub(super) async fn is_placed_by_another(&self, table: &Table) -> Result<bool, ClientError> {
        let spec = &table.spec;
        let reference = spec.directors.first();
        let Some(reference) = reference.filter(|_| spec.kind == TableKind::Child) else {
            return Ok(false);
        };
        if !self.table.is_of_a_user().await? {
            // Whoever loads the catalogue's does so again.
            return Ok(false);
        }
        let Some(director) = self.director_now(spec, reference).await? else {
            return Ok(true);
        };
        let cut = (director.database.stripes, director.database.sub_stripes);
        let elsewhere = reference.elsewhere.as_ref();
        let is_cut_otherwise = elsewhere.is_some_and(|it| (it.stripes, it.sub_stripes) != cut);
        Ok(is_cut_otherwise
            || match reference.placement {
                Some(placement) => placement != director.placement,
                // Forgotten for another reason than keys that the director lacks.
                None => table.orphan_rows() == 0,
            })
    }
}

/// A column with what it can be.
pub(super) struct TypedColumn {
    name: String,
    is_integer: bool,
    is_degrees: bool,
}

impl TypedColumn {
    pub(super) fn of_column(column: &Column) -> Self {
        Self {
            name: column.name.clone(),
            is_integer: column.ty.is_integer(),
            is_degrees: column.ty.is_float(),
        }
    }

    /// Of rows, whose whole numbers and decimals may become doubles.
    pub(super) fn of_field(field: &Field) -> Self {
        Self {
            name: field.name().clone(),
            is_integer: field.data_type().is_integer(),
            is_degrees: is_number(field.data_type()),
        }
    }
}

pub(crate) fn names_of(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|column| column.name.clone()).collect()
}

fn unfit(sentence: &str) -> ClientError {
    ClientError::new(ErrorCode::OTHER, format!("PARTITION BY: {sentence}"))
}

fn is_number(ty: &DataType) -> bool {
    ty.is_integer()
        || ty.is_floating()
        || matches!(ty, DataType::Decimal128(..) | DataType::Decimal256(..))
}

fn are_numbers(fields: &[Field], (ra, dec): &PositionNames) -> bool {
    let is = |name: &String| {
        fields
            .iter()
            .any(|field| field.name() == name && is_number(field.data_type()))
    };
    is(ra) && is(dec)
}

/// The columns that are said to be the main position.
fn position_of(columns: &[RowColumn<'_>]) -> Option<PositionNames> {
    let find = |word: &str| {
        let mut numbers = columns
            .iter()
            .filter(|column| is_number(column.field.data_type()));
        numbers
            .find(|column| column.has_ucd([word, "meta.main"]))
            .map(|column| column.name.to_owned())
    };
    find("pos.eq.ra").zip(find("pos.eq.dec"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, ty: DataType, ucd: &str) -> Field {
        Field::new(name, ty, true).with_metadata([(UCD.to_owned(), ucd.to_owned())].into())
    }

    #[test]
    fn positions_are_found_by_what_is_said_of_columns() {
        let fields = [
            field("x", DataType::Float64, "pos.eq.ra"),
            field("a", DataType::Float64, "pos.eq.ra;meta.main"),
            field("d", DataType::Float64, "POS.EQ.DEC; meta.main"),
        ];
        let columns: Vec<RowColumn<'_>> = fields.iter().map(RowColumn::of).collect();
        assert_eq!(
            position_of(&columns),
            Some(("a".to_owned(), "d".to_owned()))
        );
        assert_eq!(position_of(&columns[..2]), None);
    }

    #[test]
    fn a_layout_follows_its_columns() {
        let names = ["n", "r", "d"].map(str::to_owned);
        let director = Layout::Director {
            key: "id".to_owned(),
            position: ("ra".to_owned(), "dec".to_owned()),
        };
        let renamed = director.clone().renamed(&names, |name| {
            let names = [("id", "n"), ("ra", "r"), ("dec", "d")];
            names
                .iter()
                .find(|(was, _)| *was == name)
                .map(|(_, is)| (*is).to_owned())
        });
        let expected = Layout::Director {
            key: "n".to_owned(),
            position: ("r".to_owned(), "d".to_owned()),
        };
        assert_eq!(renamed, expected);
        let without = director.renamed(&names, |name| (name != "ra").then(|| name.to_owned()));
        assert_eq!(without, Layout::Whole { position: None });
    }
}
