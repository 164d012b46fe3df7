//! What a load that appends rows has to know of the table: what is not said in the request is as the table has it.

use std::path::Path;

use catalog::{
    Append, Catalog, CatalogError, Column, NewColumns, Table, TableKind, TableSpec, fold_name,
};

use crate::compact::MANY_PARTS;
use crate::directors::Directors;
use crate::error::IngestError;
use crate::request::LoadRequest;
use crate::schema::read_schema;

/// The request with the table's kind, key, position, directors and columns.
///
/// # Errors
/// There is no such table, or the request says something else of it.
pub(crate) async fn as_the_table_has_it(request: LoadRequest) -> Result<LoadRequest, IngestError> {
    let catalog = Catalog::open(&request.data_dir).await?;
    let request = as_this_table(&catalog, request).await;
    catalog.close().await;
    request
}

/// The same by an open catalog.
pub(crate) async fn as_this_table(
    catalog: &Catalog,
    request: LoadRequest,
) -> Result<LoadRequest, IngestError> {
    let full_name = format!("{}.{}", request.database, request.table);
    if request.replace {
        return Err(IngestError::Options(
            "--append and --replace exclude each other: give one of them".to_owned(),
        ));
    }
    let found = catalog.table(&request.database, &request.table).await?;
    let table = found.ok_or(CatalogError::NoTable { table: full_name })?;
    adopt(request, &table)
}

/// The same of a table that was found.
pub(crate) fn adopt(mut request: LoadRequest, table: &Table) -> Result<LoadRequest, IngestError> {
    reject_options_of_new_tables(&request)?;
    let spec = &table.spec;
    let name = &spec.name;
    let declared = request.declared.as_ref();
    if declared.is_some_and(|it| *it != spec.columns) {
        let table = format!("{}.{name}", spec.database);
        return Err(CatalogError::TableChanged { table }.into());
    }
    if request.kind.is_some_and(|kind| kind != spec.kind) {
        return Err(differs(name, "--kind", &spec.kind.to_string()));
    }
    let keys: Vec<String> = match spec.directors.is_empty() {
        true => spec.key.iter().cloned().collect(),
        false => spec.directors.iter().map(|it| it.key.clone()).collect(),
    };
    for given in &mut request.key {
        // A key that is a text is named by the text.
        let has_numbers = |column: &&Column| {
            let texts = column.text_key_of();
            texts.is_some_and(|texts| fold_name(&texts) == fold_name(given))
        };
        if let Some(numbers) = spec.columns.iter().find(has_numbers) {
            *given = numbers.name.clone();
        }
    }
    let directors: Vec<String> = spec.directors.iter().map(|it| it.table.clone()).collect();
    let own_key = spec.key.clone().filter(|_| !directors.is_empty());
    let position = spec.position.as_ref();
    let (ra, dec) = (position.map(|it| &it.ra), position.map(|it| &it.dec));
    for (option, given, has) in [
        ("--key", &request.key, &keys),
        ("--director", &request.directors, &directors),
        (
            "--ra",
            &Vec::from_iter(request.ra.clone()),
            &Vec::from_iter(ra.cloned()),
        ),
        (
            "--dec",
            &Vec::from_iter(request.dec.clone()),
            &Vec::from_iter(dec.cloned()),
        ),
        (
            "--own-key",
            &Vec::from_iter(request.own_key.clone()),
            &Vec::from_iter(own_key.clone()),
        ),
    ] {
        let same = given.len() == has.len()
            && (given.iter().zip(has)).all(|(one, other)| fold_name(one) == fold_name(other));
        if !given.is_empty() && !same {
            return Err(differs(name, option, &has.join(",")));
        }
    }
    (request.ra, request.dec) = (ra.cloned(), dec.cloned());
    request.kind = Some(spec.kind);
    request.key = keys;
    request.directors = directors;
    let elsewhere = spec.directors.first().and_then(|it| it.elsewhere.as_ref());
    request.director_database = elsewhere.map(|it| it.name.clone());
    request.own_key = own_key;
    request.scan_rating = Some(spec.scan_rating);
    request.database = spec.database.clone();
    request.table = name.clone();
    let mut columns = spec.columns.clone();
    if let Some(path) = &request.new_columns {
        columns.extend(new_columns(path, spec)?);
    }
    request.declared = Some(columns);
    Ok(request)
}

/// The columns that a file declares, which a table is to get.
fn new_columns(path: &Path, spec: &TableSpec) -> Result<Vec<Column>, IngestError> {
    let wrong = |what: String| {
        let name = &spec.name;
        IngestError::Options(format!("--new-columns: {name} cannot get {what}"))
    };
    if spec.kind == TableKind::Match {
        return Err(wrong("columns: it is a match table".to_owned()));
    }
    let columns = read_schema(path, &spec.name)?.columns;
    for column in &columns {
        let name = &column.name;
        if spec.column(name).is_some() {
            return Err(wrong(format!(
                "the column {name}: it has one; leave it out of {}",
                path.display()
            )));
        }
        if !column.nullable {
            return Err(wrong(format!(
                "the column {name}: it is NOT NULL, and the rows that are there do not have it"
            )));
        }
    }
    Ok(columns)
}

/// The table that a load appends to, with the columns that it will have; `None` if it is not as it was when the load was planned.
pub(crate) fn with_new_columns(request: &LoadRequest, mut found: Table) -> Option<Table> {
    let declared = request.declared.as_ref()?;
    let has = &found.spec.columns;
    let fits = match request.new_columns {
        Some(_) => declared.starts_with(has),
        None => declared == has,
    };
    found.spec.columns = declared.clone();
    fits.then_some(found)
}

/// Makes a part visible, with the columns that its table gets with it. The load has the table's lock.
pub(crate) async fn publish(catalog: &Catalog, append: Append<'_>) -> Result<(), CatalogError> {
    let spec = &append.table.spec;
    let found = catalog.table(&spec.database, &spec.name).await?;
    let new = found.as_ref().and_then(|before| {
        let columns = spec.columns.get(before.spec.columns.len()..)?;
        (!columns.is_empty()).then_some(NewColumns {
            table: before,
            columns,
        })
    });
    match new {
        Some(new) => catalog.append_all(&[append], &[new], &[]).await,
        None => catalog.append(append).await,
    }
}

fn reject_options_of_new_tables(request: &LoadRequest) -> Result<(), IngestError> {
    let given = [
        ("--schema", request.schema.is_some()),
        ("--text", !request.text_columns.is_empty()),
        ("--nullable", !request.nullable.is_empty()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(IngestError::Options(format!(
            "{option} says what the columns of a new table are: with --append they are those of the table"
        ))),
        None => Ok(()),
    }
}

fn differs(table: &str, option: &str, has: &str) -> IngestError {
    let has = if has.is_empty() { "none" } else { has };
    IngestError::Options(format!(
        "{option} does not fit {table}, to which rows are appended: it has {has}; leave the option out"
    ))
}

/// Sees that the directors by which rows are appended have placed the rows that the table has, too.
pub(crate) fn same_placements(table: &Table, directors: &Directors) -> Result<(), IngestError> {
    for (reference, director) in table.spec.directors.iter().zip(directors.tables()) {
        if let Some(then) = &reference.elsewhere {
            let now = &director.database;
            if (then.stripes, then.sub_stripes) != (now.stripes, now.sub_stripes) {
                let (table, database) = (&table.spec.name, &then.name);
                return Err(IngestError::Options(format!(
                    "{database} was cut otherwise when {table} was made: rows cannot be appended to it; load {table} anew (--replace)"
                )));
            }
        }
        // A match table whose pairs are not taken for placed by the director any more has nothing to lose.
        if reference
            .placement
            .is_some_and(|it| it != director.placement)
        {
            let (table, director) = (&table.spec.name, &director.spec.name);
            return Err(IngestError::Options(format!(
                "{director} was loaded anew after {table}, whose rows are where the former {director} had its own: rows cannot be \
                 appended to it; load {table} anew (--replace)"
            )));
        }
    }
    Ok(())
}

/// What is said where a part of a director may bring keys that pairs of match tables lacked, or one of a child keys that pairs are of.
pub(crate) fn unsettled_note(appended_to: &Table, tables: &[String]) -> Option<String> {
    let (names, have) = match tables {
        [] => return None,
        [only] => (only.clone(), "has"),
        several => (several.join(", "), "have"),
    };
    let of = &appended_to.spec.name;
    Some(match appended_to.spec.kind {
        TableKind::Child => format!(
            "{names} {have} pairs of rows of {of}, which has more rows now: answers stay right, but joins of {of} with these pairs are \
             slower until they are loaded anew"
        ),
        _ => format!(
            "{names} {have} pairs with keys that the director did not have when they were loaded: answers stay right, but joins on \
             these keys are slower until it is loaded anew"
        ),
    })
}

/// What is said where the table, to which so many more parts are appended, has many then.
pub(crate) fn many_parts_note(table: &Table, more: usize, data_dir: &Path) -> Option<String> {
    let parts = table.parts.len() + more;
    let (database, name) = (&table.spec.database, &table.spec.name);
    (parts > MANY_PARTS).then(|| {
        format!(
            "{name} has {parts} parts now, each of which queries open: `meridian compact --data {} --db {database} --table {name}` \
             merges the small ones",
            data_dir.display()
        )
    })
}

/// Does not take a table for placed by those of its directors that are marked.
pub(crate) fn forget_placements(spec: &mut TableSpec, marked: &[bool]) {
    for (reference, marked) in spec.directors.iter_mut().zip(marked) {
        if *marked {
            reference.placement = None;
        }
    }
}
