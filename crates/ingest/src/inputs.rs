//! What an input names: a file, the files of a pattern, those of a directory of Parquet, or those of a HATS catalogue.
//!
//! Files of one pattern or directory are one table cut into files: they have the same columns, and a file that differs is named. Of
//! files that are named one by one each may lack columns.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use catalog::{Column, TableKind};
use glob::{MatchOptions, PatternError, glob_with};
use remote_files::{Address, is_url};

use crate::error::IngestError;
use crate::format::{Names, TableFile};
use crate::hats::{self, HatsCatalogue};
use crate::progress::Progress;
use crate::remote_listing::Lookup;
use crate::request::LoadRequest;
use crate::spool::{display_name, is_stream};

/// The extensions of Parquet files that are looked for in a directory.
const PARQUET: [&str; 3] = ["parquet", "parq", "pq"];
/// How patterns are read.
pub(crate) const PATTERN_RULES: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};
/// What is said where nothing matches a pattern.
pub(crate) const NO_MATCH: &str = "no file matches this pattern (* and ? stand for characters of a name, ** for directories, [ab] for one of some characters)";
/// Directories within each other that are looked into.
const DEEPEST: usize = 32;
/// Names that a message shows.
const SHOWN: usize = 5;

/// What the files of a load were named by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedInputs {
    /// The inputs as they were given; empty until they have been looked at.
    given: Vec<PathBuf>,
    groups: Vec<FileGroup>,
    /// The columns of HATS catalogues that are no data.
    cells: Vec<String>,
}

/// Files that are one table cut into files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileGroup {
    /// Their places among the files.
    files: Range<usize>,
    /// The HATS catalogue whose files they are, and the rows that it says it has.
    whole: Option<(PathBuf, u64)>,
}

/// The files of an input.
pub(crate) struct InputFiles {
    pub files: Vec<PathBuf>,
    /// Whether they are one table cut into files.
    pub is_group: bool,
    pub hats: Option<HatsCatalogue>,
}

impl InputFiles {
    /// The files of an input, in the order of their names.
    ///
    /// # Errors
    /// No file matches a pattern, and a directory that has no Parquet files.
    pub fn of(input: &Path) -> Result<Self, IngestError> {
        let group = |files| Self {
            files,
            is_group: true,
            hats: None,
        };
        if input.is_dir() {
            if let Some(catalogue) = HatsCatalogue::find(input)? {
                let files = catalogue.files()?;
                return Ok(Self {
                    files,
                    is_group: true,
                    hats: Some(catalogue),
                });
            }
            return parquet_files(input).map(group);
        }
        if is_pattern(input) {
            return matching(input).map(group);
        }
        Ok(Self {
            files: vec![input.to_path_buf()],
            is_group: false,
            hats: None,
        })
    }
}

/// Whether an input is a pattern. A file of this very name is itself.
fn is_pattern(input: &Path) -> bool {
    let has_wildcard = (input.to_string_lossy()).contains(['*', '?', '[']);
    has_wildcard && std::fs::symlink_metadata(input).is_err()
}

/// The files that match a pattern.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, IngestError> {
    let text = pattern
        .to_str()
        .ok_or_else(|| IngestError::layout(pattern, "a pattern has to be UTF-8"))?;
    let found = glob_with(text, PATTERN_RULES).map_err(|error| no_pattern(pattern, &error))?;
    let mut files = Vec::new();
    for path in found {
        let path = path.map_err(|error| {
            let path = error.path().to_path_buf();
            IngestError::io("read", &path, error.into())
        })?;
        if !path.is_dir() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(IngestError::layout(pattern, NO_MATCH));
    }
    files.sort();
    Ok(files)
}

pub(crate) fn no_pattern(pattern: &Path, error: &PatternError) -> IngestError {
    let reason = format!(
        "it is no pattern: {} (character {})",
        error.msg,
        error.pos + 1
    );
    IngestError::layout(pattern, reason)
}

/// Whether a file is called as Parquet files are.
pub(crate) fn is_parquet(path: &Path) -> bool {
    let extension = path.extension().and_then(|it| it.to_str());
    extension.is_some_and(|it| PARQUET.iter().any(|known| it.eq_ignore_ascii_case(known)))
}

/// The Parquet files below a directory. Names that begin with a dot or an underscore are passed over, as elsewhere: they are no data.
fn parquet_files(dir: &Path) -> Result<Vec<PathBuf>, IngestError> {
    let mut files = files_below(dir)?;
    files.retain(|path| is_parquet(path));
    match files.is_empty() {
        false => Ok(files),
        true => Err(IngestError::layout(
            dir,
            "it is a directory without Parquet files: name the files in it, or a pattern in quotes, such as 'dir/*.csv'",
        )),
    }
}

/// The files below a directory, in the order of their names.
pub(crate) fn files_below(dir: &Path) -> Result<Vec<PathBuf>, IngestError> {
    fn visit(dir: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), IngestError> {
        if depth == DEEPEST {
            let reason = "it is too deep: its directories may lead into each other";
            return Err(IngestError::layout(dir, reason));
        }
        let failed = |error| IngestError::io("read", dir, error);
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(['.', '_']) {
                continue;
            }
            let path = entry.path();
            match path.is_dir() {
                true => visit(&path, depth + 1, files)?,
                false => files.push(path),
            }
        }
        Ok(())
    }
    let mut files = Vec::new();
    visit(dir, 0, &mut files)?;
    files.sort();
    Ok(files)
}

/// The request with files in the place of patterns and directories. What a HATS catalogue says of its position is taken where nothing is
/// said.
pub(crate) fn expanded(
    mut request: LoadRequest,
    progress: &Arc<Progress>,
) -> Result<LoadRequest, IngestError> {
    if request.made.is_some() || !request.inputs.given.is_empty() {
        return Ok(request);
    }
    let given = std::mem::take(&mut request.files);
    let mut inputs = NamedInputs::default();
    let window = window_of(&request);
    let remote = { request.remote.take() }.map(|remote| remote.of_load(progress, window));
    reject_repeated(&given, |input| shown_input(input, remote.is_some()))?;
    let mut lookup = remote.as_ref().map(Lookup::new);
    for input in &given {
        let at_url = lookup.as_mut().map(|lookup| lookup.files_of(input));
        let InputFiles {
            files,
            is_group,
            hats,
        } = match at_url.transpose()?.flatten() {
            Some(files) => files,
            None if display_name(input) == *input => InputFiles::of(input)?,
            // Standard input.
            None => InputFiles {
                files: vec![input.clone()],
                is_group: false,
                hats: None,
            },
        };
        let begin = request.files.len();
        request.files.extend(files);
        if is_group {
            inputs.groups.push(FileGroup {
                files: begin..request.files.len(),
                whole: hats.as_ref().and_then(HatsCatalogue::whole),
            });
        }
        if let Some(catalogue) = hats {
            adopt(&mut request, &catalogue);
            inputs.cells.push(catalogue.cell_column());
        }
    }
    reject_repeated(&request.files, Path::to_path_buf)?;
    // What was given may have a signature behind its name.
    inputs.given = { given.iter() }
        .map(|input| shown_input(input, remote.is_some()))
        .collect();
    request.inputs = inputs;
    let found = lookup.map(Lookup::found).unwrap_or_default();
    request.remote = remote.map(|remote| remote.with_files(found));
    Ok(request)
}

/// Sees that no file is there twice, by whatever names: all of its rows would be. What can be read only once is looked at when it is read.
fn reject_repeated(files: &[PathBuf], shown: impl Fn(&Path) -> PathBuf) -> Result<(), IngestError> {
    let mut seen: HashMap<PathBuf, &PathBuf> = HashMap::new();
    for file in files {
        if is_stream(file) {
            continue;
        }
        // A name that leads nowhere here is that of a file elsewhere, or of none.
        let place = file.canonicalize().unwrap_or_else(|_| file.clone());
        let Some(before) = seen.insert(place, file) else {
            continue;
        };
        let reason = match before == file {
            true => "it is named twice: name it once".to_owned(),
            false => format!(
                "it is the same file as {}, which is named before: name it once",
                shown(before).display()
            ),
        };
        return Err(IngestError::layout(&shown(file), reason));
    }
    Ok(())
}

/// Bytes of a row group of a file at a URL that are in memory at a time: several threads have one each, beside what the load needs.
fn window_of(request: &LoadRequest) -> u64 {
    let threads = request.thread_count() as u64;
    (request.memory_bytes() / 8 / threads).clamp(8 << 20, 128 << 20)
}

/// What messages and lists call an input.
fn shown_input(input: &Path, may_be_url: bool) -> PathBuf {
    let text = input.to_str().filter(|text| may_be_url && is_url(text));
    match text.and_then(|text| Address::parse(text).ok()) {
        Some(address) => address.to_string().into(),
        None => input.to_owned(),
    }
}

/// Takes the position of a HATS catalogue, where the request says nothing of it and the table has one.
fn adopt(request: &mut LoadRequest, catalogue: &HatsCatalogue) {
    let is_placed = !matches!(request.kind, Some(TableKind::Replicated | TableKind::Match))
        && request.directors.len() < 2;
    if let Some([ra, dec]) = catalogue.position()
        && is_placed
        && !request.append
        && request.ra.is_none()
        && request.dec.is_none()
    {
        (request.ra, request.dec) = (Some(ra), Some(dec));
    }
}

impl NamedInputs {
    /// The inputs as they were given, if they have been looked at.
    pub(crate) fn given(&self) -> &[PathBuf] {
        &self.given
    }

    /// Sees that files of one pattern or directory have the same columns, and that HATS catalogues are whole. `names` are the files' in
    /// messages.
    pub(crate) fn check(
        &self,
        files: &[Box<dyn TableFile>],
        names: &[PathBuf],
    ) -> Result<(), IngestError> {
        for group in &self.groups {
            let places = group.files.clone();
            let (Some(files), Some(names)) = (files.get(places.clone()), names.get(places)) else {
                continue;
            };
            check_same_columns(files, names)?;
            if let Some((catalogue, rows)) = &group.whole {
                hats::check_rows(catalogue, *rows, files)?;
            }
        }
        Ok(())
    }

    /// Leaves out the columns of HATS catalogues that number cells and are no data, but for those that play a part in the table. Returns
    /// what is worth knowing.
    pub(crate) fn leave_out_cells(
        &self,
        columns: &mut Vec<Column>,
        request: &LoadRequest,
    ) -> Option<String> {
        let wanted = [&request.ra, &request.dec, &request.own_key, &request.order];
        let wanted: Vec<&String> = wanted.into_iter().flatten().chain(&request.key).collect();
        let places = match self.cells.is_empty() {
            true => &[][..],
            false => &hats::PLACE_COLUMNS[..],
        };
        let has = |name: &str| columns.iter().any(|column| column.name == name);
        let has_places = places.iter().all(|name| has(name));
        let is_cell = |name: &str| {
            let is_place = has_places && places.contains(&name);
            (is_place || self.cells.iter().any(|cell| cell == name))
                && !wanted.iter().any(|it| it.eq_ignore_ascii_case(name))
        };
        let mut left_out = Vec::new();
        columns.retain(|column| {
            let is_cell = is_cell(&column.name);
            left_out.extend(is_cell.then(|| column.name.clone()));
            !is_cell
        });
        (!left_out.is_empty()).then(|| {
            format!(
                "left out: {} (numbers of the catalogue's cells; a --schema that names such a column keeps it)",
                left_out.join(", ")
            )
        })
    }
}

/// Sees that files have the same columns, in whatever order.
pub(crate) fn check_same_columns(
    files: &[Box<dyn TableFile>],
    names: &[PathBuf],
) -> Result<(), IngestError> {
    let mut all = files.iter().zip(names);
    let Some((first, first_name)) = all.next() else {
        return Ok(());
    };
    let expected = first.column_names()?;
    for (file, name) in all {
        if let Some(how) = difference(expected.as_deref(), file.column_names()?.as_deref()) {
            let reason = format!(
                "its columns are not those of {}: {how}; all files of a pattern or a directory have the same columns",
                first_name.display()
            );
            return Err(IngestError::layout(name, reason));
        }
    }
    Ok(())
}

/// How the columns of a file differ from those of another one; `None` for a file without a header.
fn difference(expected: Option<&[String]>, found: Option<&[String]>) -> Option<String> {
    let (expected, found) = match (expected, found) {
        (None, None) => return None,
        (Some(_), None) => return Some("it has no header".to_owned()),
        (None, Some(_)) => return Some("it has a header".to_owned()),
        (Some(expected), Some(found)) => (expected, found),
    };
    let lacking = missing(expected, found);
    let besides = missing(found, expected);
    match (lacking.is_empty(), besides.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("it lacks {}", listed(&lacking))),
        (true, false) => Some(format!("it has {} besides", listed(&besides))),
        (false, false) => Some(format!(
            "it lacks {} and has {} besides",
            listed(&lacking),
            listed(&besides)
        )),
    }
}

/// The names that are not among others.
fn missing<'a>(names: &'a [String], among: &[String]) -> Vec<&'a str> {
    let among = Names::of(among.iter().map(String::as_str));
    let names = names.iter().map(String::as_str);
    names
        .filter(|name| among.position(name).is_none())
        .collect()
}

fn listed(names: &[&str]) -> String {
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn patterns_are_expanded_in_the_order_of_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.csv", "a.csv", ".hidden.csv", "c.txt", "x[1].csv"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir_all(dir.path().join("d.csv/deep")).unwrap();
        std::fs::write(dir.path().join("d.csv/deep/e.csv"), "").unwrap();
        let found = |pattern: &str| {
            let found = InputFiles::of(&dir.path().join(pattern));
            found.map(|it| {
                let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
                (it.files.iter().map(name).collect::<Vec<_>>(), it.is_group)
            })
        };
        assert_eq!(
            found("[ab].csv").unwrap(),
            (names(&["a.csv", "b.csv"]), true)
        );
        assert_eq!(
            found("*.csv").unwrap().0,
            names(&["a.csv", "b.csv", "x[1].csv"])
        );
        assert_eq!(found("**/e.csv").unwrap().0, names(&["e.csv"]));
        // A file of this very name.
        assert_eq!(found("x[1].csv").unwrap(), (names(&["x[1].csv"]), false));
        for (pattern, sentence) in [
            ("*.fits", "no file matches"),
            ("a[.csv", "no pattern"),
            ("", "without Parquet"),
        ] {
            let error = found(pattern).unwrap_err().to_string();
            assert!(error.contains(sentence), "{pattern}: {error}");
        }
    }

    /// A row was said to have the key of another one, its own.
    #[test]
    fn files_that_are_named_twice_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a.csv"), "id\n1\n").unwrap();
        std::fs::write(at("b.csv"), "id\n1\n").unwrap();
        std::os::unix::fs::symlink("a.csv", at("c.csv")).unwrap();
        let told = |names: &[&str]| {
            let files: Vec<PathBuf> = names.iter().map(|name| at(name)).collect();
            let rejected = reject_repeated(&files, Path::to_path_buf).err();
            rejected.map(|error| error.to_string())
        };
        assert_eq!(told(&["a.csv", "b.csv", "none.csv"]), None);
        let twice = told(&["a.csv", "b.csv", "a.csv"]).unwrap();
        assert!(twice.ends_with("a.csv: it is named twice: name it once"));
        let linked = told(&["a.csv", "c.csv"]).unwrap();
        assert!(
            linked.contains("c.csv: it is the same file as") && linked.contains("a.csv, which")
        );
        assert!(told(&["b.csv", "./b.csv"]).is_some());
        let urls = ["s3://x/a.csv", "s3://x/b.csv", "s3://x/a.csv"].map(PathBuf::from);
        let reject = |files: &[PathBuf]| reject_repeated(files, Path::to_path_buf);
        assert!(reject(&urls[..2]).is_ok() && reject(&urls).is_err());
        // Its reader says so.
        assert!(reject(&["-".into(), "-".into()]).is_ok());
        let signed = ["https://x/a.csv?key=secret"; 2].map(PathBuf::from);
        let told = reject_repeated(&signed, |file| shown_input(file, true)).unwrap_err();
        assert!(!told.to_string().contains("secret"), "{told}");
    }

    #[test]
    fn columns_are_the_same_whatever_their_order_and_case() {
        let expected = names(&["id", "ra", "dec"]);
        let told = |found: &[&str]| difference(Some(&expected), Some(&names(found)));
        assert_eq!(told(&["dec", "RA", "Id"]), None);
        assert_eq!(told(&["id", "ra"]).unwrap(), "it lacks dec");
        assert_eq!(
            told(&["id", "ra", "x"]).unwrap(),
            "it lacks dec and has x besides"
        );
        assert_eq!(
            difference(Some(&expected), None).unwrap(),
            "it has no header"
        );
        assert_eq!(difference(None, None), None);
    }
}
