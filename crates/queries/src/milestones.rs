//! Milestones of a query as they are written down: a line each.

use std::fmt::Write;

use engine::Milestone;
use engine::milestones::merged;

/// Milestones of a query that has ended, at most: all queries are in memory.
const MOST_KEPT: usize = 16;

/// Those of a query that has ended.
pub(crate) fn kept(milestones: &[Milestone]) -> Vec<Milestone> {
    merged(milestones.to_vec(), MOST_KEPT)
}

/// Phase, pieces, those that are done, the four moments, and at the end, because it may have spaces, who ran them.
pub(crate) fn written(milestones: &[Milestone]) -> String {
    let mut text = String::new();
    for it in milestones {
        let moment = |at: Option<i64>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let [started, rows, committed] = [it.started, it.first_rows, it.committed].map(moment);
        // A text takes whatever is written.
        let _ = writeln!(
            text,
            "{} {} {} {} {started} {rows} {committed} {}",
            it.phase, it.pieces, it.pieces_done, it.handed_out, it.runner
        );
    }
    text
}

/// What was written; a line of a later version that cannot be read is left out.
pub(crate) fn read(text: &str) -> Vec<Milestone> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Milestone> {
    let mut words = line.splitn(8, ' ');
    let mut number = || words.next();
    let optional = |word: &str| match word {
        "-" => Some(None),
        _ => word.parse().ok().map(Some),
    };
    Some(Milestone {
        phase: number()?.parse().ok()?,
        pieces: number()?.parse().ok()?,
        pieces_done: number()?.parse().ok()?,
        handed_out: number()?.parse().ok()?,
        started: optional(number()?)?,
        first_rows: optional(number()?)?,
        committed: optional(number()?)?,
        runner: number()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let one = Milestone {
            phase: 2,
            runner: "a worker".to_owned(),
            pieces: 7,
            pieces_done: 6,
            handed_out: 1_700_000_000_000_000,
            started: Some(1_700_000_000_000_001),
            first_rows: None,
            committed: Some(1_700_000_000_000_009),
        };
        let many = vec![
            one.clone(),
            Milestone {
                started: None,
                committed: None,
                ..one
            },
        ];
        assert_eq!(read(&written(&many)), many);
        assert_eq!(read(""), []);
        assert_eq!(read("of a later version"), []);
        let long: Vec<Milestone> = many.iter().cycle().take(100).cloned().collect();
        let kept = kept(&long);
        assert!(kept.len() <= MOST_KEPT);
        assert_eq!(kept.iter().map(|it| it.pieces).sum::<u64>(), 700);
    }
}
