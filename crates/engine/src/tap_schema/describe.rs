//! Databases, tables and columns in the words of the Virtual Observatory.
//!
//! Source: VOTable 1.4 (Ochsenbein et al., IVOA Recommendation 2019), section 2.1, for the types; ADQL 2.1 (Mantelet et al., IVOA
//! Recommendation 2023), section 2.1, for names and reserved words; UCD1+ for what a column is.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::loaded_table::texts_of;
use crate::shown::ShownTable;
use catalog::{
    Column, ColumnMetadata, ColumnType, Database, Table, TableKind, TableSpec, fold_name,
};

/// A database.
#[derive(Debug, Clone, PartialEq)]
pub struct TapSchemaEntry {
    /// Its name, quoted where ADQL needs that.
    pub name: String,
    /// What it has.
    pub description: String,
    /// Its tables.
    pub tables: Vec<TapTable>,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct TapTable {
    /// Its name with the database's, each quoted where ADQL needs that.
    pub name: String,
    /// What it has; `None` of a view of which nothing is said.
    pub description: Option<String>,
    /// Its place in a data model.
    pub utype: Option<String>,
    /// Its place in the database: what was said of it, or the next number that was said of none.
    pub index: i32,
    /// Its columns.
    pub columns: Vec<TapColumn>,
    /// Its foreign keys.
    pub keys: Vec<ForeignKey>,
    /// Its number of rows, if it is known.
    pub rows: Option<u64>,
    /// Whether it is a view.
    pub is_view: bool,
}

impl TapTable {
    /// The word for what it is.
    pub fn kind(&self) -> &'static str {
        match self.is_view {
            true => "view",
            false => "table",
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct TapColumn {
    /// Its name, quoted where ADQL needs that.
    pub name: String,
    /// VOTable's word for its type.
    pub datatype: &'static str,
    /// `*` for texts and bytes.
    pub arraysize: Option<&'static str>,
    /// How its values are to be read: `timestamp` for times.
    pub xtype: Option<String>,
    /// What it means.
    pub description: Option<String>,
    /// Its place in a data model.
    pub utype: Option<String>,
    /// The unit of its values.
    pub unit: Option<String>,
    /// What it is physically.
    pub ucd: Option<String>,
    /// Whether rows are found fast by it.
    pub is_indexed: bool,
    /// Whether it is one of the first to look at.
    pub is_principal: bool,
    /// Whether a standard defines it.
    pub is_standard: bool,
    /// Its place in the table: what was said of it, or the next number that was said of none.
    pub index: i32,
}

/// A foreign key.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignKey {
    /// Its name.
    pub id: String,
    /// The table that refers to another.
    pub from_table: String,
    /// The table that it refers to.
    pub target_table: String,
    /// The column that refers to another.
    pub from_column: String,
    /// The column that it refers to.
    pub target_column: String,
    /// What it means.
    pub description: Option<String>,
}

impl TapSchemaEntry {
    /// A database and its tables as the catalog has them.
    pub(super) fn of(database: &Database, shown: &[ShownTable]) -> Self {
        let specs: Vec<&TableSpec> = shown.iter().map(|shown| &shown.table.spec).collect();
        let said = { shown.iter() }.map(|shown| shown.table.metadata.index);
        let indices = places(&said.collect::<Vec<_>>());
        let described = shown.iter().zip(indices).map(|(shown, index)| {
            let table = &shown.table;
            let is_view = shown.view.is_some();
            TapTable {
                name: full_name(&table.spec.database, &table.spec.name),
                description: match is_view {
                    true => view_description(shown),
                    false => Some(with_expiry(
                        table,
                        (table.metadata.description.clone())
                            .unwrap_or_else(|| description(&table.spec)),
                    )),
                },
                utype: table.metadata.utype.clone(),
                index,
                columns: columns(table),
                keys: keys(&table.spec, &specs),
                rows: table.told_contents().0.filter(|_| !is_view),
                is_view,
            }
        });
        Self {
            name: adql_name(&database.name),
            description: (database.description.clone())
                .unwrap_or_else(|| format!("the catalogue {}", database.name)),
            tables: described.collect(),
        }
    }
}

/// The numbers of what is listed: those that were said, and from 1 on those that were said of none.
fn places(said: &[Option<i32>]) -> Vec<i32> {
    let taken: HashSet<i32> = said.iter().copied().flatten().collect();
    let mut free = (1..).filter(|number| !taken.contains(number));
    let place = |said: &Option<i32>| said.or_else(|| free.next()).unwrap_or(i32::MAX);
    said.iter().map(place).collect()
}

/// What a view has, in words: why it cannot be read, or what is said of it.
fn view_description(shown: &ShownTable) -> Option<String> {
    match &shown.trouble {
        Some(trouble) => Some(trouble.to_string()),
        None => shown.table.metadata.description.clone(),
    }
}

fn full_name(database: &str, table: &str) -> String {
    format!("{}.{}", adql_name(database), adql_name(table))
}

/// The same, with the time at which the table expires, if it does: lists of TAP have no other place for it.
fn with_expiry(table: &Table, description: String) -> String {
    match &table.expires_at {
        None => description,
        Some(time) => format!("{description} (expires {time})"),
    }
}

fn description(spec: &TableSpec) -> String {
    let directors: Vec<&str> = spec.directors.iter().map(|it| it.table.as_str()).collect();
    match (spec.kind, directors.as_slice()) {
        (TableKind::Director, _) => "objects with positions and a unique key".to_owned(),
        (TableKind::Child, [director, ..]) => format!("rows that belong to those of {director}"),
        (TableKind::Match, [left, right, ..]) => format!("pairs of rows of {left} and {right}"),
        _ => "a table of few rows, or without positions".to_owned(),
    }
}

/// What a table's column means, by its name, whose case does not matter: what is said of it, and else what its part in the table tells.
pub(crate) fn described(table: &Table, column: &str) -> ColumnMetadata {
    let said = table.metadata.column(column).cloned().unwrap_or_default();
    let (unit, ucd) = unit_and_ucd(&table.spec, column);
    let is_principal = Role::of(&table.spec, column).is_any();
    ColumnMetadata {
        unit: said.unit.or(unit.map(str::to_owned)),
        ucd: said.ucd.or(ucd.map(str::to_owned)),
        principal: said.principal.or(is_principal.then_some(true)),
        ..said
    }
}

/// What a column is for its table.
struct Role {
    /// The table's own key.
    is_key: bool,
    /// One of the two columns of its position.
    is_position: bool,
    /// The key of another table.
    refers: bool,
    /// The texts of such a key.
    has_texts: bool,
}

impl Role {
    fn of(spec: &TableSpec, column: &str) -> Self {
        let column = fold_name(column);
        let is = |name: &String| fold_name(name) == column;
        let of_director = { spec.key.iter() }.filter(|_| spec.kind == TableKind::Director);
        let keys = spec.directors.iter().map(|it| &it.key);
        let mut texts = { keys.clone() }
            .chain(of_director)
            .filter_map(|key| texts_of(spec, key));
        Self {
            is_key: spec.key.as_ref().is_some_and(is),
            is_position: { spec.position.iter() }.any(|it| is(&it.ra) || is(&it.dec)),
            refers: { keys }.any(is),
            has_texts: texts.any(|texts| is(&texts)),
        }
    }

    fn is_any(&self) -> bool {
        self.is_key || self.is_position || self.refers || self.has_texts
    }
}

/// The unit and the UCD of columns that are a key or a position.
fn unit_and_ucd(spec: &TableSpec, column: &str) -> (Option<&'static str>, Option<&'static str>) {
    let column = fold_name(column);
    let is = |name: &String| fold_name(name) == column;
    if spec.key.as_ref().is_some_and(is) {
        return (None, Some("meta.id;meta.main"));
    }
    match &spec.position {
        Some(position) if is(&position.ra) => (Some("deg"), Some("pos.eq.ra;meta.main")),
        Some(position) if is(&position.dec) => (Some("deg"), Some("pos.eq.dec;meta.main")),
        _ if spec.directors.iter().any(|director| is(&director.key)) => (None, Some("meta.id")),
        _ => (None, None),
    }
}

fn columns(table: &Table) -> Vec<TapColumn> {
    let spec = &table.spec;
    let is_partitioned = spec.kind != TableKind::Replicated;
    let all = { spec.columns.iter() }.map(|column| (column, described(table, &column.name)));
    let all: Vec<(&Column, ColumnMetadata)> = all.collect();
    let indices = places(&all.iter().map(|(_, said)| said.index).collect::<Vec<_>>());
    let column = |((column, said), index): ((&Column, ColumnMetadata), i32)| {
        let role = Role::of(spec, &column.name);
        let (datatype, arraysize, xtype) = match (votable_type(column.ty), said.xtype) {
            ((datatype, arraysize, Some(own)), _) => (datatype, arraysize, Some(own.to_owned())),
            // A time that is a text is one of ASCII in results (DALI 1.1, section 3.3.3).
            (_, Some(said)) if said == TIMESTAMP => ("char", Some("*"), Some(said)),
            ((datatype, arraysize, None), said) => (datatype, arraysize, said),
        };
        TapColumn {
            name: adql_name(&column.name),
            datatype,
            arraysize,
            xtype,
            description: said.description,
            utype: said.utype,
            unit: said.unit,
            ucd: said.ucd,
            is_indexed: is_partitioned
                && (role.refers
                    || role.has_texts
                    || role.is_position
                    || (role.is_key && spec.kind == TableKind::Director)),
            is_principal: said.principal == Some(true),
            is_standard: false,
            index,
        }
    };
    all.into_iter().zip(indices).map(column).collect()
}

/// References to directors that are there, by their keys.
fn keys(spec: &TableSpec, others: &[&TableSpec]) -> Vec<ForeignKey> {
    let key = |(director, number): (&catalog::DirectorRef, usize)| {
        let folded = fold_name(&director.table);
        // Whoever sees the table need not see a director in another database.
        let mut others = others.iter().filter(|_| director.elsewhere.is_none());
        let target = others.find(|other| fold_name(&other.name) == folded)?;
        Some(ForeignKey {
            id: format!("{}.{}:{number}", spec.database, spec.name),
            from_table: full_name(&spec.database, &spec.name),
            target_table: full_name(&target.database, &target.name),
            from_column: adql_name(&director.key),
            target_column: adql_name(target.key.as_deref()?),
            description: Some(format!("each row belongs to one of {}", target.name)),
        })
    };
    spec.directors.iter().zip(1..).filter_map(key).collect()
}

/// The xtype of times.
const TIMESTAMP: &str = "timestamp";

/// `datatype`, `arraysize` and `xtype` of the values of a column, as results have them.
fn votable_type(ty: ColumnType) -> (&'static str, Option<&'static str>, Option<&'static str>) {
    /// The digits that a double can tell apart, whatever they are.
    const DOUBLE_DIGITS: u8 = 15;
    use ColumnType as T;
    match ty {
        T::Boolean => ("boolean", None, None),
        T::UInt8 => ("unsignedByte", None, None),
        T::Int8 | T::Int16 => ("short", None, None),
        T::UInt16 | T::Int32 => ("int", None, None),
        T::UInt32 | T::Int64 => ("long", None, None),
        T::Float32 => ("float", None, None),
        T::Float64 => ("double", None, None),
        T::Decimal { precision, .. } if precision <= DOUBLE_DIGITS => ("double", None, None),
        T::UInt64 | T::Decimal { .. } => ("char", Some("*"), None),
        T::Text => ("unicodeChar", Some("*"), None),
        T::Binary => ("unsignedByte", Some("*"), None),
        T::Date | T::Timestamp => ("char", Some("*"), Some(TIMESTAMP)),
    }
}

/// A name as it stands in ADQL: quoted if it is no regular identifier.
pub(super) fn adql_name(name: &str) -> String {
    let mut letters = name.chars();
    let is_regular = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if is_regular && !RESERVED.contains(name.to_ascii_uppercase().as_str()) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The reserved words of ADQL 2.1.
static RESERVED: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "ABSOLUTE ACTION ADD ALL ALLOCATE ALTER AND ANY ARE AS ASC ASSERTION AT AUTHORIZATION AVG BEGIN BETWEEN BIT BIT_LENGTH BOTH BY \
     CASCADE CASCADED CASE CAST CATALOG CHAR CHARACTER CHARACTER_LENGTH CHAR_LENGTH CHECK CLOSE COALESCE COLLATE COLLATION COLUMN COMMIT \
     CONNECT CONNECTION CONSTRAINT CONSTRAINTS CONTINUE CONVERT CORRESPONDING COUNT CREATE CROSS CURRENT CURRENT_DATE CURRENT_TIME \
     CURRENT_TIMESTAMP CURRENT_USER CURSOR DATE DAY DEALLOCATE DECIMAL DECLARE DEFAULT DEFERRABLE DEFERRED DELETE DESC DESCRIBE \
     DESCRIPTOR DIAGNOSTICS DISCONNECT DISTINCT DOMAIN DOUBLE DROP ELSE END END-EXEC ESCAPE EXCEPT EXCEPTION EXEC EXECUTE EXISTS EXTERNAL \
     EXTRACT FALSE FETCH FIRST FLOAT FOR FOREIGN FOUND FROM FULL GET GLOBAL GO GOTO GRANT GROUP HAVING HOUR IDENTITY IMMEDIATE IN \
     INDICATOR INITIALLY INNER INPUT INSENSITIVE INSERT INT INTEGER INTERSECT INTERVAL INTO IS ISOLATION JOIN KEY LANGUAGE LAST LEADING \
     LEFT LEVEL LIKE LOCAL LOWER MATCH MAX MIN MINUTE MODULE MONTH NAMES NATIONAL NATURAL NCHAR NEXT NO NOT NULL NULLIF NUMERIC \
     OCTET_LENGTH OF ON ONLY OPEN OPTION OR ORDER OUTER OUTPUT OVERLAPS PAD PARTIAL POSITION PRECISION PREPARE PRESERVE PRIMARY PRIOR \
     PRIVILEGES PROCEDURE PUBLIC READ REAL REFERENCES RELATIVE RESTRICT REVOKE RIGHT ROLLBACK ROWS SCHEMA SCROLL SECOND SECTION SELECT \
     SESSION SESSION_USER SET SIZE SMALLINT SOME SPACE SQL SQLCODE SQLERROR SQLSTATE SUBSTRING SUM SYSTEM_USER TABLE TEMPORARY THEN TIME \
     TIMESTAMP TIMEZONE_HOUR TIMEZONE_MINUTE TO TRAILING TRANSACTION TRANSLATE TRANSLATION TRIM TRUE UNION UNIQUE UNKNOWN UPDATE UPPER \
     USAGE USER USING VALUE VALUES VARCHAR VARYING VIEW WHEN WHENEVER WHERE WITH WORK WRITE YEAR ZONE \
     ABS ACOS AREA ASIN ATAN ATAN2 BIGINT BOX CEILING CENTROID CIRCLE CONTAINS COORD1 COORD2 COORDSYS COS COT DEGREES DISTANCE EXP FLOOR \
     ILIKE INTERSECTS IN_UNIT LOG LOG10 MOD OFFSET PI POINT POLYGON POWER RADIANS RAND REGION ROUND SIN SQRT TAN TOP TRUNCATE"
        .split_whitespace()
        .collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Two columns had the number 2 where it was said of one of them.
    #[test]
    fn numbers_that_are_said_are_given_to_nothing_else() {
        for (said, expected) in [
            (vec![None, None, None], vec![1, 2, 3]),
            (vec![None, None, Some(1)], vec![2, 3, 1]),
            (vec![Some(2), None, None, Some(9)], vec![2, 1, 3, 9]),
            (vec![Some(4), Some(4), None], vec![4, 4, 1]),
            (vec![], vec![]),
        ] {
            assert_eq!(places(&said), expected, "{said:?}");
        }
    }

    #[test]
    fn names_are_quoted_where_adql_needs_it() {
        for (name, shown) in [
            ("objectId", "objectId"),
            ("Object", "Object"),
            ("size", "\"size\""),
            ("g-mag", "\"g-mag\""),
            ("2mass", "\"2mass\""),
            ("_x", "\"_x\""),
            ("a\"b", "\"a\"\"b\""),
            ("", "\"\""),
        ] {
            assert_eq!(adql_name(name), shown);
        }
    }
}
