//! Lists with aligned columns, for people.

/// Rows of texts, the headings first, as lines whose columns are aligned: those of numbers to the right.
pub fn aligned(rows: &[Vec<String>], is_number: impl Fn(usize) -> bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let fields = rows.iter().filter_map(|row| row.get(column));
        fields.map(|field| field.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let padded = row.iter().zip(&widths).enumerate();
        let padded = padded.map(|(column, (field, width))| match is_number(column) {
            true => format!("{field:>width$}"),
            false => format!("{field:<width$}"),
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let row = |fields: [&str; 3]| fields.map(str::to_owned).to_vec();
        let rows = [row(["n", "name", ""]), row(["17", "é", ""])];
        assert_eq!(aligned(&rows, |column| column == 0), " n  name\n17  é\n");
        assert_eq!(aligned(&[], |_| false), "");
    }
}
