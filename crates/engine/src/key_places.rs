//! Where keys are, by the runs of a table's index.

use sky::Location;
use store::DirectorIndex;

use crate::EngineError;

/// A run of an index.
#[derive(Debug)]
pub(crate) struct IndexRun {
    /// The part that it is of, by its place in the list.
    pub part: usize,
    /// The run.
    pub index: DirectorIndex,
}

/// Where the rows of a key are.
#[derive(Debug)]
pub(crate) struct KeyPlaces {
    /// The places.
    pub places: Vec<Location>,
    /// The part that has all of them, by its place in the list; `None` if it takes looking into each.
    pub part: Option<usize>,
}

/// A key that an index has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundKey {
    /// Where its rows are.
    pub location: Location,
    /// The part that has it, by its place in the list.
    pub part: usize,
}

/// Where the keys are.
pub(crate) fn locations(found: &[Option<FoundKey>]) -> impl Iterator<Item = Option<Location>> {
    found.iter().map(|found| found.map(|it| it.location))
}

/// Where keys are, by the runs of an index. A key that is in several of them (an orphan of several parts) is in one place. A run that
/// does not have a key says so from memory.
pub(crate) fn lookup(
    runs: &[IndexRun],
    keys: &[i64],
) -> Result<Vec<Option<FoundKey>>, EngineError> {
    let mut found = vec![None; keys.len()];
    let has_several = runs.len() > 1;
    for IndexRun { part, index } in runs {
        let is_asked =
            |at: &usize| found[*at].is_none() && (!has_several || index.may_have(keys[*at]));
        let asked: Vec<usize> = (0..keys.len()).filter(is_asked).collect();
        if asked.is_empty() {
            continue;
        }
        let of_run: Vec<i64> = asked.iter().map(|at| keys[*at]).collect();
        for (at, entry) in asked.into_iter().zip(index.lookup(&of_run)?) {
            found[at] = entry.map(|it| FoundKey {
                location: it.location,
                part: *part,
            });
        }
    }
    Ok(found)
}
