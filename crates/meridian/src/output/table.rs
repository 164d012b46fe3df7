//! Aligned columns for people.

use std::io::{IsTerminal, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::{Layout, Output, Sink, still_read};
use crate::failure::Failure;

/// Rows from which the widths of the columns are taken; those after them are aligned as far as they fit.
const ROWS_MEASURED: usize = 1000;
/// Width of a terminal that does not tell.
const USUAL_WIDTH: usize = 120;

/// An aligned table; on a terminal too narrow for it, a block for each row with a line for each column.
pub struct Table {
    sink: Sink,
    headings: Vec<String>,
    numeric: Vec<bool>,
    waiting: Vec<Vec<String>>,
    layout: Layout,
    /// Whether it is shown on a terminal if standard output is one.
    on_screen: bool,
    laid_out: Option<LaidOut>,
    rows: u64,
}

enum LaidOut {
    Columns(Vec<usize>),
    Blocks { heading: usize },
}

impl Table {
    /// A table of a result with these columns. `on_screen` says whether it goes to standard output, whose width then counts.
    pub fn new(sink: Sink, schema: &Schema, layout: Layout, on_screen: bool) -> Self {
        Self {
            headings: schema
                .fields()
                .iter()
                .map(|field| field.name().replace('\n', " "))
                .collect(),
            numeric: schema
                .fields()
                .iter()
                .map(|field| field.data_type().is_numeric())
                .collect(),
            sink,
            waiting: Vec::new(),
            layout,
            on_screen,
            laid_out: None,
            rows: 0,
        }
    }

    fn lay_out(&mut self) -> Result<bool, Failure> {
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| width(heading)).collect();
        for row in &self.waiting {
            for (column, text) in widths.iter_mut().zip(row) {
                *column = text.lines().map(width).max().unwrap_or(0).max(*column);
            }
        }
        let total: usize = widths.iter().map(|w| w + 3).sum();
        let is_narrow = || {
            let on_terminal = self.on_screen && std::io::stdout().is_terminal();
            on_terminal && total > terminal_width() && self.headings.len() > 1
        };
        let in_blocks = match self.layout {
            Layout::AsItFits => is_narrow(),
            Layout::Blocks => true,
            Layout::Lines => false,
        };
        if in_blocks {
            let heading = self
                .headings
                .iter()
                .map(|heading| width(heading))
                .max()
                .unwrap_or(0);
            self.laid_out = Some(LaidOut::Blocks { heading });
        } else {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            self.laid_out = Some(LaidOut::Columns(widths));
            let headings = self.headings.clone();
            self.line(&headings)?;
            self.text(&format!("{}\n", rule.join("-+-")))?;
        }
        let waiting = std::mem::take(&mut self.waiting);
        for row in waiting {
            if !self.row(&row)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn row(&mut self, row: &[String]) -> Result<bool, Failure> {
        self.rows += 1;
        match &self.laid_out {
            Some(LaidOut::Blocks { heading }) => {
                let mut block = format!("-[ row {} ]{}\n", self.rows, "-".repeat(*heading));
                for (name, value) in self.headings.iter().zip(row) {
                    block.push_str(&format!("{} | {value}\n", padded(name, *heading, false)));
                }
                self.text(&block)
            }
            // A text with several lines takes several lines.
            _ if row.iter().any(|text| text.contains('\n')) => {
                let lines = row
                    .iter()
                    .map(|text| text.lines().count())
                    .max()
                    .unwrap_or(1);
                for line in 0..lines {
                    let part: Vec<String> = row
                        .iter()
                        .map(|text| text.lines().nth(line).unwrap_or("").to_owned())
                        .collect();
                    if !self.line(&part)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => self.line(row),
        }
    }

    fn line(&mut self, row: &[String]) -> Result<bool, Failure> {
        let Some(LaidOut::Columns(widths)) = &self.laid_out else {
            return Ok(true);
        };
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .zip(&self.numeric)
            .map(|((text, width), numeric)| padded(text, *width, *numeric))
            .collect();
        let line = cells.join(" | ");
        self.text(&format!("{}\n", line.trim_end()))
    }

    fn text(&mut self, text: &str) -> Result<bool, Failure> {
        still_read(self.sink.write_all(text.as_bytes()))
    }
}

impl Output for Table {
    fn write(&mut self, batch: &RecordBatch) -> Result<bool, Failure> {
        let options = FormatOptions::default().with_null("NULL");
        let columns = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let row = columns
                .iter()
                .map(|column| column.value(row).try_to_string())
                .collect::<Result<Vec<_>, _>>()?;
            if self.laid_out.is_some() {
                if !self.row(&row)? {
                    return Ok(false);
                }
                continue;
            }
            self.waiting.push(row);
            if self.waiting.len() == ROWS_MEASURED && !self.lay_out()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        if self.laid_out.is_none() {
            self.lay_out()?;
        }
        self.sink.finish()
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Pads by hand: the standard formatter rejects widths above 65,535, and a plan may have lines that long.
fn padded(text: &str, to: usize, right: bool) -> String {
    let padding = " ".repeat(to.saturating_sub(width(text)));
    if right {
        padding + text
    } else {
        text.to_owned() + &padding
    }
}

fn terminal_width() -> usize {
    match std::env::var("COLUMNS").map(|columns| columns.parse()) {
        Ok(Ok(columns)) => columns,
        _ => match console::Term::stdout().size_checked() {
            Some((_, columns)) => usize::from(columns),
            None => USUAL_WIDTH,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An EXPLAIN of four thousand keys has a line of more than 65,535 characters, at which the standard formatter's
    /// padding panicked.
    #[test]
    fn very_long_lines_are_padded() {
        let long = "x".repeat(70_000);
        assert_eq!(padded(&long, 70_001, true).len(), 70_001);
        assert_eq!(padded("ab", 4, false), "ab  ");
        assert_eq!(padded("é", 3, true), "  é");
    }
}
