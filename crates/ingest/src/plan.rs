//! What a request means for the files at hand: the table's columns and the parts that some of them play.

mod keys;
mod notes;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use catalog::{Column, ColumnMetadata, ColumnType, Position, TableKind, TableMetadata, fold_name};
use store::LoadDir;

use self::keys::{
    NearlyIntegersOf, ONLY_DIRECTORS_HAVE_GENERATED_KEYS, add_key, check_keys, check_texts,
    integer_column, is_key, of_file, suggest_generated, with_text_keys,
};
use self::notes::{Notes, give_types};
use crate::directors::largest_key;
use crate::error::{FoundColumns, IngestError};
use crate::format::degrees::PositionsInDegrees;
use crate::format::generated_key::{FileWithKeys, KeyStart, files_behind};
use crate::format::text::TextLayout;
use crate::format::{self, FileColumns, TableFile};
use crate::place::child::ChildColumns;
use crate::position::{PositionColumns, find_column};
use crate::request::{LoadRequest, PositionUnit};
use crate::row_batch::travel_type;
use crate::schema::{DeclaredTable, read_schema};
use crate::sort::is_sortable;
use crate::text_keys::texts_of;

/// The parts that columns play.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Roles {
    Director {
        key: usize,
        positions: PositionColumns,
    },
    Child(ChildColumns),
    Match {
        keys: [usize; 2],
    },
    Replicated,
}

/// A table to be made of files.
pub(crate) struct TablePlan {
    pub kind: TableKind,
    /// The columns as the catalog will know them.
    pub columns: Vec<Column>,
    pub roles: Roles,
    pub files: Vec<Box<dyn TableFile>>,
    /// What is worth knowing about how the columns were found.
    pub notes: Vec<String>,
    /// What the files say of the columns.
    pub metadata: TableMetadata,
    /// Where generated keys begin.
    pub key_start: KeyStart,
    /// Whether the rows have generated keys.
    pub generates_keys: bool,
}

impl TablePlan {
    /// Looks at the files and the schema and checks the request, whose options are right, against them. `files` are
    /// the request's, or stand in their places.
    pub(crate) fn make(request: &LoadRequest, files: &[PathBuf]) -> Result<Self, IngestError> {
        let kind = request.effective_kind();
        let schema = request.schema.as_deref();
        let mut declared = schema
            .map(|path| read_schema(path, &request.table))
            .transpose()?;
        if let Some(columns) = &request.declared {
            declared = Some(DeclaredTable::of_columns(columns.clone()));
        }
        let layout = text_layout(request, declared.as_ref());
        // What makes a first line a header differs where columns are declared.
        let mut declared_columns = { declared.as_ref().filter(|_| !request.are_columns_found) }
            .map(DeclaredTable::in_files);
        if let Some(columns) = &mut declared_columns
            && request.generate_key
            && request.is_share
            && !request.append
        {
            // The plan of the whole load has added the key, which the files lack.
            columns.retain(|column| !is_key(request, &column.name));
        }
        let declared_columns = declared_columns.as_deref();
        let files = match &request.made {
            Some(made) => format::made::open(made),
            None => {
                let extension = request.extension.as_deref();
                let open_one = |file: &PathBuf| {
                    let remote = request.remote.as_ref().and_then(|it| it.get(file));
                    format::open_input(file, remote, &layout, declared_columns, extension)
                };
                format::open_all(files, request.remote.is_some(), open_one)?
            }
        };
        let names = request.input_names();
        request.inputs.check(&files, &names)?;
        let is_found = declared.is_none();
        let (mut columns, mut notes, nearly_integers) = match (declared, schema) {
            (Some(declared), Some(_)) => completed(request, declared.columns, &files, &names)?,
            (Some(declared), None) => (declared.columns, Notes::default(), vec![]),
            (None, _) => columns_of_files(request, &files, &names)?,
        };
        if request.dry_run {
            notes.tell_all();
        }
        if is_found {
            let left_out = request.inputs.leave_out_cells(&mut columns, request);
            notes.always.extend(left_out);
        }
        let found = notes.found.take();
        let of_file = |error: IngestError| match &found {
            Some(found) => error.of_file(found),
            None => error,
        };
        check_keys(request, &columns, &nearly_integers)?;
        notes.check_positions(request, &columns)?;
        let with_keys = with_text_keys(request, kind, &mut columns, &mut notes.always);
        let request = with_keys.as_ref().unwrap_or(request);
        if request.generate_key {
            add_key(request, kind, &files, &mut columns)?;
        }
        check_columns(&columns, &names[0])?;
        positions_as_floats(&mut columns, request);
        make_nullable(&mut columns, &request.nullable).map_err(of_file)?;
        let roles = Roles::find(request, kind, &columns).map_err(of_file)?;
        let mut director_key = None;
        if let Roles::Director { key, positions } = roles {
            for column in [key, positions.ra, positions.dec] {
                columns[column].nullable = false;
            }
            director_key = Some(key);
        }
        check_texts(&mut columns, director_key)?;
        let mut plan = Self {
            kind,
            metadata: said_by_files(&files, &columns),
            columns,
            roles,
            files,
            notes: notes.always,
            key_start: KeyStart::default(),
            generates_keys: request.generate_key,
        };
        plan.generate_keys(request);
        plan.notes.extend(plan.missing_key_note(request));
        plan.convert_positions(request)?;
        Ok(plan)
    }

    /// Lets positions be converted to degrees, if they are in another unit.
    fn convert_positions(&mut self, request: &LoadRequest) -> Result<(), IngestError> {
        let Some(positions) = self.positions() else {
            return match request.position_unit {
                Some(_) => Err(wrong("--position-unit is for tables with --ra and --dec")),
                None => Ok(()),
            };
        };
        let unit = request.position_unit.unwrap_or_default();
        if unit != PositionUnit::Degrees {
            for at in [positions.ra, positions.dec] {
                let name = fold_name(&self.columns[at].name);
                if let Some(said) = self.metadata.columns.get_mut(&name) {
                    said.unit = None;
                }
            }
        }
        let files = std::mem::take(&mut self.files).into_iter();
        let files = files.map(|file| PositionsInDegrees::of(file, positions, unit));
        self.files = files.collect();
        Ok(())
    }

    /// Lets the rows have generated keys, if that is requested.
    fn generate_keys(&mut self, request: &LoadRequest) {
        let (true, Roles::Director { key, .. }) = (request.generate_key, self.roles) else {
            return;
        };
        let files = std::mem::take(&mut self.files).into_iter();
        let start = || self.key_start.clone();
        let with_keys =
            |file| Box::new(FileWithKeys::new(file, key, start())) as Box<dyn TableFile>;
        self.files = files.map(with_keys).collect();
        self.notes.push(format!(
            "the column {} has generated keys: the line of each row, and beyond the first file of the table a multiple of 2^40 more",
            self.columns[key].name
        ));
    }

    /// Why rows have no key: the files of an append lack the column.
    fn missing_key_note(&self, request: &LoadRequest) -> Option<String> {
        let Roles::Director { key, .. } = self.roles else {
            return None;
        };
        let texts = texts_of(&self.columns, key);
        let key = &self.columns[texts.unwrap_or(key)].name;
        let header = self.files.first()?.header_names()?;
        let has_key = header.iter().any(|name| name.eq_ignore_ascii_case(key));
        (!has_key && !request.generate_key).then(|| match texts {
            Some(_) => format!("the files have no column {key}, which is the key"),
            None => format!("the files have no column {key}, which is the key: give --generate-key if the table's keys are generated"),
        })
    }

    /// Lets generated keys begin behind those of the parts in these directories.
    pub(crate) fn begin_keys_behind(&self, dirs: &[LoadDir]) -> Result<(), IngestError> {
        if self.generates_keys {
            self.key_start.set(files_behind(largest_key(dirs)?));
        }
        Ok(())
    }

    /// The columns as readers see them. What a director needs in every row may be NULL to them: the director's
    /// placement rejects such rows and says so in its own words.
    pub(crate) fn columns_to_read(&self) -> Vec<Column> {
        columns_to_read(&self.columns, self.roles)
    }

    /// The number of the position columns.
    pub(crate) fn positions(&self) -> Option<PositionColumns> {
        match self.roles {
            Roles::Director { positions, .. } => Some(positions),
            Roles::Child(columns) => columns.positions,
            Roles::Match { .. } | Roles::Replicated => None,
        }
    }

    /// The names of the position columns, as declared.
    pub(crate) fn position(&self) -> Option<Position> {
        self.positions().map(|p| Position {
            ra: self.columns[p.ra].name.clone(),
            dec: self.columns[p.dec].name.clone(),
        })
    }

    /// A director's key or a child's own key.
    pub(crate) fn key(&self) -> Option<String> {
        let key = match self.roles {
            Roles::Director { key, .. } => Some(key),
            Roles::Child(columns) => columns.own_key,
            Roles::Match { .. } | Roles::Replicated => None,
        };
        key.map(|key| self.columns[key].name.clone())
    }
}

/// Columns that play these parts, as readers see them: see [`TablePlan::columns_to_read`].
pub(crate) fn columns_to_read(columns: &[Column], roles: Roles) -> Vec<Column> {
    let mut columns = columns.to_vec();
    if let Roles::Director { key, positions } = roles {
        let texts = texts_of(&columns, key);
        for column in [key, positions.ra, positions.dec].into_iter().chain(texts) {
            columns[column].nullable = true;
        }
    }
    columns
}

fn wrong(sentence: impl Into<String>) -> IngestError {
    IngestError::Options(sentence.into())
}

/// The options that each kind needs and those that mean nothing for it.
pub(crate) fn check_options(request: &LoadRequest) -> Result<(), IngestError> {
    check_options_of_kind(request)?;
    if request.generate_key && request.effective_kind() != TableKind::Director {
        return Err(wrong(ONLY_DIRECTORS_HAVE_GENERATED_KEYS));
    }
    if request.effective_kind() == TableKind::Replicated && request.kind.is_none() {
        reject_half_a_director(request)?;
    }
    Ok(())
}

/// The same before the inputs are looked at: a HATS catalogue may say where the position is that a key lacks.
pub(crate) fn check_options_of_kind(request: &LoadRequest) -> Result<(), IngestError> {
    let kind = request.effective_kind();
    if request.input_names().is_empty() {
        return Err(IngestError::NoFiles);
    }
    if request.ra.is_some() != request.dec.is_some() {
        return Err(wrong(
            "--ra and --dec belong together: give both or neither",
        ));
    }
    let (keys, directors) = (request.key.len(), request.directors.len());
    let needed = match kind {
        TableKind::Director => (keys == 1 && request.ra.is_some() && directors == 0)
            .then_some(())
            .ok_or("a director needs --key COL (or --generate-key, if its rows have none), --ra COL and --dec COL, and no --director"),
        TableKind::Child => (keys == 1 && directors == 1)
            .then_some(())
            .ok_or("a child needs --director TABLE and --key COL, its column that holds the director's key"),
        TableKind::Match => (keys == 2 && directors == 2)
            .then_some(())
            .ok_or("a match table needs --director LEFT,RIGHT and --key LEFTKEY,RIGHTKEY"),
        TableKind::Replicated => (directors == 0)
            .then_some(())
            .ok_or("a replicated table has no --director: leave it out, or give --kind child"),
    };
    let may_have_position = request.kind.is_none() && kind == TableKind::Replicated;
    if request.generate_key && kind != TableKind::Director && !may_have_position {
        return Err(wrong(ONLY_DIRECTORS_HAVE_GENERATED_KEYS));
    }
    needed.map_err(wrong)?;
    if request.schema.is_some() && !request.text_columns.is_empty() {
        return Err(wrong(
            "--text is for columns whose types are inferred: declare the column as a text in the schema",
        ));
    }
    let is_child = kind == TableKind::Child;
    if !is_child && (request.own_key.is_some() || request.order.is_some()) {
        return Err(wrong("--own-key and --order are for child tables only"));
    }
    if kind == TableKind::Match && request.ra.is_some() {
        return Err(wrong(
            "a match table has no position of its own: leave out --ra and --dec",
        ));
    }
    Ok(())
}

/// A key or a position without the other is a director that lacks something, not a table that is to be kept whole.
fn reject_half_a_director(request: &LoadRequest) -> Result<(), IngestError> {
    let has_position = request.ra.is_some();
    if request.key.is_empty() && !has_position {
        return Ok(());
    }
    let (given, missing) = if has_position {
        (
            "--ra and --dec are",
            "--key COL, its unique key, or --generate-key",
        )
    } else {
        (
            "--key is",
            "--ra COL and --dec COL, or --director TABLE for a child",
        )
    };
    Err(wrong(format!(
        "{given} given alone: a table that is partitioned by position also needs {missing}; \
         --kind replicated makes one that is kept whole"
    )))
}

/// Options win over the schema, the schema over what is detected.
pub(crate) fn text_layout(request: &LoadRequest, declared: Option<&DeclaredTable>) -> TextLayout {
    let options = &request.text;
    TextLayout {
        delimiter: options.delimiter.or(declared.and_then(|d| d.delimiter)),
        quote: options.quote.or(declared.and_then(|d| d.quote)),
        escapes: options.escapes,
        blanks: options.blanks,
        nulls: match (options.nulls.is_empty(), declared) {
            (true, Some(declared)) => declared.nulls.clone(),
            _ => options.nulls.clone(),
        },
        header: options.header,
        comment: options.comment,
    }
}

/// The columns of a schema, and those that the header of the text file has beside them, whose types are inferred. (Where the header
/// lacks a declared column as well, one of the two is misspelled, which the reader says.)
fn completed(
    request: &LoadRequest,
    declared: Vec<Column>,
    files: &[Box<dyn TableFile>],
    names: &[PathBuf],
) -> Result<(Vec<Column>, Notes, Vec<NearlyIntegersOf>), IngestError> {
    let header = files.first().and_then(|file| file.header_names());
    let is_in_header = |column: &Column| {
        let header = header.unwrap_or_default().iter();
        header
            .clone()
            .any(|name| name.eq_ignore_ascii_case(&column.name))
    };
    let is_partial = header.is_some_and(|header| header.len() > declared.len());
    if !is_partial || !declared.iter().all(is_in_header) {
        return Ok((declared, Notes::default(), vec![]));
    }
    let mut found = first_with_rows(files, names)?;
    give_types(&mut found.1, request);
    let (mut odd, mut decided) = (found.1.odd, found.1.decided);
    let mut nearly_integers = found.1.nearly_integers;
    let columns = found.1.columns.into_iter().map(|column| {
        let same = |other: &&Column| other.name.eq_ignore_ascii_case(&column.name);
        let Some(declared) = declared.iter().find(same) else {
            return column;
        };
        odd.retain(|odd| odd.column != column.name);
        decided.retain(|decided| decided.column != column.name);
        nearly_integers.retain(|nearly| nearly.column != column.name);
        declared.clone()
    });
    let columns = columns.collect();
    let notes = Notes::of_file(found.0, &odd, decided);
    Ok((columns, notes, of_file(found.0, nearly_integers)))
}

/// The name of the first file that has rows, and what its columns were found to be.
fn first_with_rows<'a>(
    files: &[Box<dyn TableFile>],
    names: &'a [PathBuf],
) -> Result<(&'a Path, FileColumns), IngestError> {
    let with_rows = files.iter().position(|file| file.estimated_rows() > 0);
    let at = with_rows.unwrap_or(0);
    let (Some(file), Some(name)) = (files.get(at), names.get(at)) else {
        return Err(IngestError::NoFiles);
    };
    Ok((name, file.columns_found()?))
}

/// The columns of the first file that has rows, with those of `--text` as texts, and what is worth knowing about how
/// they were found. `names` are the files' in messages.
fn columns_of_files(
    request: &LoadRequest,
    files: &[Box<dyn TableFile>],
    names: &[PathBuf],
) -> Result<(Vec<Column>, Notes, Vec<NearlyIntegersOf>), IngestError> {
    let (name, mut found) = first_with_rows(files, names)?;
    let without_values = give_types(&mut found, request);
    let FileColumns {
        mut columns,
        mut odd,
        mut decided,
        mut nearly_integers,
        is_header_missing,
        doubt,
        ..
    } = found;
    let found = FoundColumns {
        file: name.to_path_buf(),
        names: columns.iter().map(|it| it.name.clone()).collect(),
        is_header_missing,
        doubt,
    };
    for text in &request.text_columns {
        let at = find_column(&columns, "--text", text).map_err(|error| error.of_file(&found))?;
        columns[at].ty = ColumnType::Text;
        odd.retain(|odd| odd.column != columns[at].name);
        decided.retain(|decided| decided.column != columns[at].name);
        nearly_integers.retain(|nearly| nearly.column != columns[at].name);
    }
    let mut notes = Notes::of_file(name, &odd, decided);
    notes.always.extend(without_values);
    notes.found = Some(found);
    Ok((columns, notes, of_file(name, nearly_integers)))
}

/// Names that queries could not tell apart, or that Meridian needs for itself.
fn check_columns(columns: &[Column], file: &Path) -> Result<(), IngestError> {
    for (i, column) in columns.iter().enumerate() {
        let name = &column.name;
        if columns[..i]
            .iter()
            .any(|other| other.name.eq_ignore_ascii_case(name))
        {
            return Err(IngestError::RepeatedColumn {
                path: file.to_owned(),
                name: name.clone(),
            });
        }
        if name.trim().is_empty() || name.starts_with("__") {
            let reason = format!(
                "the column name {name:?} cannot be used: it is empty or begins with two underscores"
            );
            return Err(IngestError::layout(file, reason));
        }
    }
    Ok(())
}

/// Whole degrees are inferred as integers; a position is a float all the same.
fn positions_as_floats(columns: &mut [Column], request: &LoadRequest) {
    for name in [&request.ra, &request.dec].into_iter().flatten() {
        let is_exact = |ty: ColumnType| ty.is_integer() || matches!(ty, ColumnType::Decimal { .. });
        let column = columns
            .iter_mut()
            .find(|c| c.name.eq_ignore_ascii_case(name));
        if let Some(column) = column.filter(|c| c.declared.is_none() && is_exact(c.ty)) {
            column.ty = ColumnType::Float64;
        }
    }
}

fn make_nullable(columns: &mut [Column], names: &[String]) -> Result<(), IngestError> {
    for name in names {
        if name.eq_ignore_ascii_case("all") {
            columns.iter_mut().for_each(|column| column.nullable = true);
            continue;
        }
        let at = find_column(columns, "--nullable", name)?;
        columns[at].nullable = true;
    }
    Ok(())
}

impl Roles {
    fn find(
        request: &LoadRequest,
        kind: TableKind,
        columns: &[Column],
    ) -> Result<Self, IngestError> {
        let position = request
            .ra
            .clone()
            .zip(request.dec.clone())
            .map(|(ra, dec)| Position { ra, dec });
        let find_positions = || {
            position
                .as_ref()
                .map(|p| PositionColumns::find(columns, p))
                .transpose()
        };
        Ok(match kind {
            TableKind::Director => Self::Director {
                key: integer_column(columns, "--key", &request.key[0])
                    .map_err(|error| suggest_generated(error, columns, &request.key[0]))?,
                positions: find_positions()?
                    .ok_or_else(|| wrong("a director needs --ra and --dec"))?,
            },
            TableKind::Child => Self::Child(child_columns(request, columns, find_positions()?)?),
            TableKind::Match => {
                let keys = [&request.key[0], &request.key[1]];
                Self::Match {
                    keys: [
                        integer_column(columns, "--key", keys[0])?,
                        integer_column(columns, "--key", keys[1])?,
                    ],
                }
            }
            TableKind::Replicated => Self::Replicated,
        })
    }
}

fn child_columns(
    request: &LoadRequest,
    columns: &[Column],
    positions: Option<PositionColumns>,
) -> Result<ChildColumns, IngestError> {
    let key = integer_column(columns, "--key", &request.key[0])?;
    let own_key = match &request.own_key {
        Some(name) => Some(integer_column(columns, "--own-key", name)?),
        None => (0..columns.len()).find(|c| *c != key && columns[*c].ty.is_integer()),
    };
    let order = match &request.order {
        None => own_key,
        Some(name) => {
            let at = find_column(columns, "--order", name)?;
            if !is_sortable(&travel_type(columns[at].ty)) {
                return Err(wrong(format!(
                    "--order {name:?} must be a number or a time"
                )));
            }
            Some(at)
        }
    };
    Ok(ChildColumns {
        key,
        own_key,
        order,
        positions,
    })
}
/// What the files of a load say of the table's columns: of each what the first file says that says anything.
fn said_by_files(files: &[Box<dyn TableFile>], columns: &[Column]) -> TableMetadata {
    let mut metadata = TableMetadata::default();
    let names: HashSet<String> = columns.iter().map(|it| fold_name(&it.name)).collect();
    for (name, said) in files.iter().flat_map(|file| file.descriptions()) {
        let name = fold_name(&name);
        let word = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let said = ColumnMetadata {
            description: word(said.description),
            unit: word(said.unit),
            ucd: word(said.ucd),
            utype: word(said.utype),
            xtype: word(said.xtype),
            ..ColumnMetadata::default()
        };
        if names.contains(&name) && said != ColumnMetadata::default() {
            metadata.columns.entry(name).or_insert(said);
        }
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The position of a header alone was of texts, so that it could not be loaded.
    #[test]
    fn columns_without_values_have_the_types_that_their_parts_need() {
        let text = |name: &str| Column {
            name: name.to_owned(),
            ty: ColumnType::Text,
            nullable: true,
            declared: None,
        };
        let mut found = FileColumns {
            columns: ["id", "RA", "dec", "name"].map(text).into(),
            has_no_values: true,
            ..FileColumns::default()
        };
        let request = LoadRequest {
            key: vec!["ID".into()],
            ra: Some("ra".into()),
            dec: Some("dec".into()),
            ..LoadRequest::new("data", "sky", "Star")
        };
        let note = give_types(&mut found, &request).unwrap();
        assert!(
            note.contains("id BIGINT, RA DOUBLE, dec DOUBLE, name TEXT"),
            "{note}"
        );
        // Types that values have are those of the values.
        let mut found = FileColumns {
            columns: ["id", "ra", "dec"].map(text).into(),
            ..FileColumns::default()
        };
        assert_eq!(give_types(&mut found, &request), None);
        assert_eq!(found.columns[0].ty, ColumnType::Text);
    }
}
