//! What stands before the rows of a text file beside its header: comments, rulers; and whether blanks separate its fields.

use std::path::Path;

use super::dialect::Comments;
use crate::error::IngestError;

/// The character that begins comments where nothing else is said.
const COMMENT: u8 = b'#';
/// Lines that are looked at to find out whether blanks separate fields.
const LINES: usize = 200;
/// Lines among which a ruler is looked for: the header, a line of units, the ruler.
const LINES_TO_RULER: usize = 3;

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n')
}

/// The comments of a file that begins so. A file that begins with one has comments, unless all of its lines begin so: then that is part
/// of their first fields. In others only a line that cannot be a row is one.
pub(super) fn guessed_comments(sample: &[u8]) -> Comments {
    let begins = |line: &[u8]| line.first() == Some(&COMMENT);
    let mut lines = lines(sample).filter(|line| !line.trim_ascii().is_empty());
    let has_comment = lines.next().is_some_and(begins);
    match has_comment && lines.any(|line| !begins(line)) {
        true => Comments::Lines(COMMENT),
        false => Comments::NoRows(COMMENT),
    }
}

/// The comment lines at the beginning of a file, and the byte behind them. Empty lines behind a comment belong to them.
pub(super) fn leading_comments(sample: &[u8], comments: Comments) -> (Vec<&[u8]>, usize) {
    let mut found = Vec::new();
    let mut end = 0;
    let Comments::Lines(comment) = comments else {
        return (found, end);
    };
    for line in sample.split_inclusive(|byte| *byte == b'\n') {
        let is_comment = line.first() == Some(&comment);
        if !is_comment && (found.is_empty() || !line.trim_ascii().is_empty()) {
            break;
        }
        if is_comment {
            found.push(line.trim_ascii_end());
        }
        end += line.len();
    }
    (found, end)
}

/// The number of the line, counted from 0, that is a ruler between the header and the rows: dashes and the like alone. There may be a
/// line of units before it, which has no numbers, as a row has.
pub(super) fn ruler(body: &[u8]) -> Option<usize> {
    let ruler = lines(body).take(LINES_TO_RULER).position(is_ruler)?;
    let mut between = lines(body).take(ruler).skip(1);
    (!between.any(has_number)).then_some(ruler)
}

fn has_number(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '|'));
    words.any(|word| word.parse::<f64>().is_ok())
}

fn is_ruler(line: &[u8]) -> bool {
    let of_ruler = |byte: &u8| b"-=+|;, \t\r".contains(byte);
    // Two dashes may stand for NULL.
    let is_drawn = |three: &[u8]| three == b"---" || three == b"===";
    line.iter().all(of_ruler) && line.windows(3).any(is_drawn)
}

/// How blanks divide the lines of a file in which no delimiter stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blanks {
    /// Each line has as many fields as the first.
    Separate,
    /// They are part of texts.
    DoNot,
    /// The lines are made of numbers mostly, and have different numbers of fields.
    Unevenly { fewest: usize, most: usize },
}

/// Finds out how blanks divide the first lines of a file.
pub(super) fn blanks(body: &[u8]) -> Blanks {
    let words = |line: &[u8]| count_words(line);
    // The last one may be cut.
    let whole = body
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap_or(body.len());
    let is_row = |line: &&[u8]| {
        !line.trim_ascii().is_empty() && line.first() != Some(&COMMENT) && !is_ruler(line)
    };
    let lines: Vec<&[u8]> = lines(&body[..whole]).filter(is_row).take(LINES).collect();
    let Some((first, rest)) = lines.split_first() else {
        return Blanks::DoNot;
    };
    let width = words(first).0;
    if width < 2 {
        return Blanks::DoNot;
    }
    let (all, numbers) = (rest.iter().map(|line| words(line)))
        .fold((0, 0), |sum, line| (sum.0 + line.0, sum.1 + line.1));
    let widths = || lines.iter().map(|line| words(line).0);
    let (fewest, most) = (widths().min().unwrap_or(0), widths().max().unwrap_or(0));
    match fewest == most {
        // Texts of as many words each are rare, and have no numbers.
        true if numbers > 0 || rest.is_empty() && words(first).1 > 0 => Blanks::Separate,
        false if numbers * 2 > all => Blanks::Unevenly { fewest, most },
        _ => Blanks::DoNot,
    }
}

/// How many words a line has between blanks, and how many of them are numbers. What stands in double quotes is one word.
fn count_words(line: &[u8]) -> (usize, usize) {
    let (mut words, mut numbers) = (0, 0);
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        let end = match rest.strip_prefix(b"\"") {
            Some(inner) => memchr::memchr(b'"', inner).map(|end| end + 2),
            None => rest.iter().position(u8::is_ascii_whitespace),
        };
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let text = str::from_utf8(word).unwrap_or_default();
        words += 1;
        numbers += usize::from(text.parse::<f64>().is_ok());
        rest = behind.trim_ascii_start();
    }
    (words, numbers)
}

/// The words of the first line, for a message.
pub(super) fn words_of_first_line(body: &[u8]) -> String {
    let first = lines(body).next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let separators = |c: char| c.is_whitespace() || c == '|';
    let words = first.split(separators).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(", ")
}

/// Rejects a table whose header alone has its columns between bars.
pub(super) fn reject_undelimited_rows(path: &Path, body: &[u8]) -> Result<(), IngestError> {
    let has_bar = |line: &[u8]| line.contains(&b'|');
    let mut rows = lines(body).skip_while(|line| has_bar(line) || is_ruler(line));
    let first_row = rows.next().filter(|line| !line.trim_ascii().is_empty());
    if first_row.is_none() || lines(body).filter(|line| has_bar(line)).count() > LINES_TO_RULER + 1
    {
        return Ok(());
    }
    let reason = format!(
        "its header has bars between the columns ({}) and its rows have none, as in an IPAC table of columns of fixed width: \
         convert it to CSV, ECSV or VOTable",
        words_of_first_line(body)
    );
    Err(IngestError::layout(path, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_known_by_the_first_line() {
        for (sample, comments) in [
            (&b"# made by hand\nid,ra\n1,2\n"[..], Comments::Lines(b'#')),
            (b"id,ra\n1,2\n#3,4\n", Comments::NoRows(b'#')),
            (b"#1,2\n#3,4\n", Comments::NoRows(b'#')),
        ] {
            assert_eq!(guessed_comments(sample), comments);
        }
    }

    #[test]
    fn leading_comments_end_where_the_table_begins() {
        let sample = b"# a\n\n#b\r\nid,ra\n# c\n";
        let (found, end) = leading_comments(sample, Comments::Lines(b'#'));
        assert_eq!(found, [&b"# a"[..], b"#b"]);
        assert_eq!(&sample[end..], b"id,ra\n# c\n");
        assert_eq!(leading_comments(sample, Comments::Nowhere).1, 0);
    }

    #[test]
    fn blanks_separate_numbers_and_not_the_words_of_texts() {
        for (body, expected) in [
            ("id ra dec\n1 2.5 3\n  2   3.5  4  \n", Blanks::Separate),
            ("1 2.5 3\n", Blanks::Separate),
            ("id name\n1 \"alpha Cen\"\n", Blanks::Separate),
            ("star name\nalpha Cen\nbeta Ori\n", Blanks::DoNot),
            ("name\nalpha Cen\n", Blanks::DoNot),
            (
                "id ra mag\n1 2.5 3\n2 3.5\n",
                Blanks::Unevenly { fewest: 2, most: 3 },
            ),
        ] {
            assert_eq!(blanks(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn rulers_are_lines_without_words() {
        for (body, at) in [
            ("id | ra\n---+---\n1 | 2\n", Some(1)),
            ("RA;DE\ndeg;deg\n---;---\n1;2\n", Some(2)),
            ("id,ra\n-1,-2\n--,--\n", None),
            ("id,ra\n1,2\n---,---\n", None),
            ("id,ra\n1,2\n", None),
        ] {
            assert_eq!(ruler(body.as_bytes()), at, "{body}");
        }
    }
}
