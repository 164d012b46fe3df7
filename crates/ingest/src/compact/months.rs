//! Parts of databases that are published night by night: the parts of each month become one.
//!
//! While a month lasts, its parts are merged by size among themselves. When it is over, all of them are merged once more, into one part
//! that is sorted like every other: within each chunk by sub-chunk and key, so that a light curve or a small cone reads one run of rows
//! of the month. From then on no row of it is written anew, however many months come. Only a table that has more than [`MOST_PARTS`] parts
//! all the same, because nothing takes the place of its months, has the smallest of them merged.
//!
//! A part is of the month in which it was published; one that was merged, of the last of its parts.

use std::fmt;
use std::ops::Range;

use catalog::{Part, fold_name};

use super::policy;
use super::policy::MOST_PARTS;

/// A month of a year, in UTC.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month(String);

impl Month {
    /// `2026-11`; `None` if the text is no month.
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_right = year.len() == 4
            && month.len() == 2
            && is_number(year)
            && is_number(month)
            && ("01"..="12").contains(&month);
        is_right.then(|| Self(text.to_owned()))
    }

    /// The month of a time in ISO 8601, such as `2026-11-28T08:00:00Z`.
    pub fn of(time: &str) -> Self {
        Self(time.chars().take("2026-11".len()).collect())
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which databases have one part for each month of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MonthSort {
    /// The databases, in any case. Tables of others are merged by size alone.
    pub databases: Vec<String>,
    /// Whether months that are over are merged and nothing else is.
    pub only: bool,
    /// The only month that is merged then; each that is over if absent.
    pub month: Option<Month>,
}

impl MonthSort {
    /// Itself, if it is about a database.
    pub(super) fn of(&self, database: &str) -> Option<&Self> {
        let mut names = self.databases.iter();
        let is_among = names.any(|name| fold_name(name) == fold_name(database));
        is_among.then_some(self)
    }
}

/// Parts that follow each other and become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergeRun {
    /// Their places in the list.
    pub parts: Range<usize>,
    /// The month of which they are all parts, if that is why.
    pub month: Option<Month>,
}

impl MergeRun {
    pub(super) fn by_size(parts: Range<usize>) -> Self {
        Self { parts, month: None }
    }
}

/// The runs of parts that are to be merged, the months that are over first; `few` if their number is no reason to merge any.
pub(super) fn runs_to_merge(
    parts: &[Part],
    this_month: &Month,
    wanted: &MonthSort,
    few: bool,
) -> Vec<MergeRun> {
    let months = months_of(parts);
    let is_wanted = |month: &Month| wanted.month.as_ref().is_none_or(|it| it == month);
    let mut runs = Vec::new();
    let mut current = parts.len()..parts.len();
    for (month, run) in months {
        if month >= *this_month {
            current.start = current.start.min(run.start);
        } else if run.len() > 1 && is_wanted(&month) {
            runs.push(MergeRun {
                parts: run,
                month: Some(month),
            });
        }
    }
    if wanted.only || few {
        return runs;
    }
    let bytes: Vec<u64> = parts.iter().map(|part| part.bytes).collect();
    let first = current.start;
    let by_size = policy::runs_to_merge(&bytes[current]).into_iter();
    runs.extend(by_size.map(|run| MergeRun::by_size(first + run.start..first + run.end)));
    if runs.is_empty() && bytes.len() > MOST_PARTS {
        let smallest = policy::smallest_run(&bytes, bytes.len() - MOST_PARTS + 1);
        runs.extend(smallest.map(MergeRun::by_size));
    }
    runs
}

/// The months of a list, each with the places of its parts. A part is not of an earlier month than one before it in the list.
fn months_of(parts: &[Part]) -> Vec<(Month, Range<usize>)> {
    let mut months: Vec<(Month, Range<usize>)> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let month = Month::of(&part.loaded_at);
        match months.last_mut() {
            Some((last, run)) if month <= *last => run.end = at + 1,
            _ => months.push((month, at..at + 1)),
        }
    }
    months
}

#[cfg(test)]
mod tests {
    use catalog::LoadId;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn part(day: &str, mebibytes: u64) -> Part {
        Part {
            load: LoadId(1),
            rows: 1,
            bytes: mebibytes * MIB,
            null_keys: 0,
            orphan_rows: 0,
            loaded_at: format!("{day}T04:05:06Z"),
            source: String::new(),
            merged_from: Vec::new(),
        }
    }

    fn parts(days: &[&str]) -> Vec<Part> {
        days.iter().map(|day| part(day, 1)).collect()
    }

    fn november() -> Month {
        Month::parse("2026-11").unwrap_or_else(|| unreachable!("it is a month"))
    }

    /// The first and the last part of each run, with its month.
    fn runs(parts: &[Part], wanted: &MonthSort, few: bool) -> Vec<(usize, usize, String)> {
        let runs = runs_to_merge(parts, &november(), wanted, few).into_iter();
        let month = |run: &MergeRun| run.month.as_ref().map_or(String::new(), Month::to_string);
        runs.map(|run| (run.parts.start, run.parts.end - 1, month(&run)))
            .collect()
    }

    fn run(first: usize, last: usize, month: &str) -> (usize, usize, String) {
        (first, last, month.to_owned())
    }

    #[test]
    fn months_are_written_in_one_way() {
        for text in ["2026-01", "1999-12"] {
            assert_eq!(
                Month::parse(text).map(|it| it.to_string()).as_deref(),
                Some(text)
            );
        }
        for text in [
            "",
            "2026",
            "2026-1",
            "2026-00",
            "2026-13",
            "26-11",
            "2026-11-01",
            "2026-+1",
        ] {
            assert_eq!(Month::parse(text), None, "{text}");
        }
        assert_eq!(Month::of("2026-11-28T08:55:02Z"), november());
    }

    #[test]
    fn a_month_that_is_over_becomes_one_part_and_stays() {
        let months = MonthSort::default();
        let mut list = parts(&[
            "2026-09-30",
            "2026-10-01",
            "2026-10-02",
            "2026-10-31",
            "2026-11-01",
            "2026-11-02",
        ]);
        // Whether the table has many parts or few.
        for few in [true, false] {
            assert_eq!(runs(&list, &months, few), [run(1, 3, "2026-10")]);
        }
        list.splice(1..4, [part("2026-10-31", 3)]);
        assert!(runs(&list, &months, false).is_empty());
        // Months are not merged with each other, of whatever size they are.
        let year =
            ["01", "02", "03", "04", "05", "06"].map(|month| part(&format!("2026-{month}-28"), 7));
        assert!(runs(&year, &months, false).is_empty());
    }

    #[test]
    fn parts_of_the_current_month_are_merged_by_size() {
        let months = MonthSort::default();
        let list = parts(&[
            "2026-10-30",
            "2026-10-31",
            "2026-11-01",
            "2026-11-02",
            "2026-11-03",
            "2026-11-04",
        ]);
        assert_eq!(
            runs(&list, &months, false),
            [run(0, 1, "2026-10"), run(2, 5, "")]
        );
        assert_eq!(runs(&list, &months, true), [run(0, 1, "2026-10")]);
        let only = MonthSort {
            only: true,
            ..months
        };
        assert_eq!(runs(&list, &only, false), [run(0, 1, "2026-10")]);
        assert_eq!(runs(&list[2..], &only, false), []);
    }

    #[test]
    fn one_month_of_several() {
        let list = parts(&["2026-09-01", "2026-09-02", "2026-10-01", "2026-10-02"]);
        let september = MonthSort {
            only: true,
            month: Month::parse("2026-09"),
            ..MonthSort::default()
        };
        assert_eq!(runs(&list, &september, false), [run(0, 1, "2026-09")]);
    }

    /// A server whose clock was set back publishes behind what is of a later month.
    #[test]
    fn the_list_decides_where_clocks_differ() {
        let list = parts(&[
            "2026-10-31",
            "2026-10-30",
            "2026-11-02",
            "2026-10-31",
            "2026-12-01",
        ]);
        assert_eq!(
            runs(&list, &MonthSort::default(), false),
            [run(0, 1, "2026-10")]
        );
    }

    #[test]
    fn a_table_never_has_more_parts_than_a_few_dozen() {
        let months = (0..MOST_PARTS + 3).map(|month| {
            let (year, month) = (2000 + month / 12, month % 12 + 1);
            part(&format!("{year}-{month:02}-03"), 100 - 3 * month as u64)
        });
        let list: Vec<Part> = months.collect();
        let found = runs(&list, &MonthSort::default(), false);
        assert_eq!(found.len(), 1);
        let (first, last, _) = &found[0];
        assert_eq!(list.len() - (last - first), MOST_PARTS);
        // Asked for months alone, it is left as it is.
        let only = MonthSort {
            only: true,
            ..MonthSort::default()
        };
        assert!(runs(&list, &only, false).is_empty());
    }

    /// Editions of a year, with a compaction whenever there are many parts: how often a row is written anew, and how many parts there are.
    #[test]
    fn rows_are_rewritten_less_often_than_without_months() {
        let written = |months: bool| {
            let (mut list, mut written, mut all): (Vec<Part>, u64, u64) = (Vec::new(), 0, 0);
            for day in 0..336 {
                let month = day / 28 + 1;
                let this_month = Month(format!("2026-{month:02}"));
                for _ in 0..20 {
                    list.push(part(&format!("{this_month}-01"), 1));
                    all += MIB;
                    loop {
                        let few = list.len() <= MOST_PARTS;
                        let runs = match months {
                            true => runs_to_merge(&list, &this_month, &MonthSort::default(), few),
                            false if few => Vec::new(),
                            false => {
                                let bytes: Vec<u64> = list.iter().map(|it| it.bytes).collect();
                                let runs = policy::runs_to_merge(&bytes).into_iter();
                                runs.map(MergeRun::by_size).collect()
                            }
                        };
                        let Some(run) = runs.into_iter().next() else {
                            break;
                        };
                        let mut merged = list[run.parts.end - 1].clone();
                        merged.bytes = list[run.parts.clone()].iter().map(|it| it.bytes).sum();
                        written += merged.bytes;
                        list.splice(run.parts, [merged]);
                    }
                    assert!(list.len() <= MOST_PARTS);
                }
            }
            written as f64 / all as f64
        };
        let (with, without) = (written(true), written(false));
        assert!(with < without && with < 6.0, "{with} {without}");
    }
}
