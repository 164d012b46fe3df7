//! What has been typed of a statement so far: whether it is complete, and what is still open in it.

use sql::Dialect;

/// What is open at the end of a text, so that a semicolon there would end nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenPart {
    /// Nothing: the statement only lacks its semicolon.
    Statement,
    /// A text or a name between quotes of this character.
    Quote(char),
    /// A comment between `/*` and `*/`.
    Comment,
}

impl OpenPart {
    /// The part that is open at the end of a text.
    pub fn of(dialect: Dialect, text: &str) -> Self {
        let is_mysql = dialect == Dialect::MySql;
        let mut open = Self::Statement;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match (open, c) {
                (Self::Comment, '*') if rest.next_if_eq(&'/').is_some() => open = Self::Statement,
                (Self::Comment, _) => {}
                // The character after a backslash is part of the text. Names in backticks have none.
                (Self::Quote('\'' | '"'), '\\') if is_mysql => drop(rest.next()),
                // A doubled quote closes and opens again.
                (Self::Quote(quote), _) if quote == c => open = Self::Statement,
                (Self::Quote(_), _) => {}
                (Self::Statement, '\'' | '"') => open = Self::Quote(c),
                (Self::Statement, '`') if is_mysql => open = Self::Quote(c),
                (Self::Statement, '/') if rest.next_if_eq(&'*').is_some() => open = Self::Comment,
                (Self::Statement, '#') if is_mysql => skip_line(&mut rest),
                (Self::Statement, '-') if rest.next_if_eq(&'-').is_some() => skip_line(&mut rest),
                (Self::Statement, _) => {}
            }
        }
        open
    }

    /// The sign before the next line.
    fn sign(self) -> String {
        match self {
            Self::Statement => "->".to_owned(),
            Self::Quote(quote) => format!("{quote}>"),
            Self::Comment => "*>".to_owned(),
        }
    }
}

fn skip_line(rest: &mut impl Iterator<Item = char>) {
    let _ = rest.find(|c| *c == '\n');
}

/// What stands before the line to be typed: the database before a statement's first line, a sign for what is open before the others.
pub fn prompt(database: Option<&str>, dialect: Dialect, typed: &str) -> String {
    let first = format!("{}> ", database.unwrap_or("meridian"));
    if typed.is_empty() {
        return first;
    }
    let width = first.chars().count() - 1;
    format!("{:>width$} ", OpenPart::of(dialect, typed).sign())
}

/// Whether the text is nothing but space and comments, so that the next line begins a statement.
pub fn is_blank(dialect: Dialect, typed: &str) -> bool {
    match dialect {
        Dialect::MySql => {
            sql::mysql::split_statements(typed).is_empty()
                && OpenPart::of(dialect, typed) == OpenPart::Statement
        }
        Dialect::Adql => typed.trim().is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_quotes_and_comments_are_known() {
        use OpenPart::{Comment, Quote, Statement};
        for (text, open) in [
            ("SELECT 1", Statement),
            ("SELECT 'it''s", Quote('\'')),
            ("SELECT 'it''s'", Statement),
            (r"SELECT 'a\'", Quote('\'')),
            ("SELECT \"a;\n", Quote('"')),
            ("SELECT `a", Quote('`')),
            ("SELECT 1 -- it's\n", Statement),
            ("SELECT 1 # it's", Statement),
            ("SELECT 1 /* it's", Comment),
            ("SELECT 1 /* it's */ + 1", Statement),
        ] {
            assert_eq!(OpenPart::of(Dialect::MySql, text), open, "{text}");
        }
        for (text, open) in [
            (r"SELECT 'a\'", Statement),
            ("SELECT \"a", Quote('"')),
            ("SELECT 1 -- `", Statement),
        ] {
            assert_eq!(OpenPart::of(Dialect::Adql, text), open, "{text}");
        }
    }

    #[test]
    fn prompts_are_as_wide_as_the_first_one() {
        let prompt = |typed| prompt(Some("sky"), Dialect::MySql, typed);
        assert_eq!(prompt(""), "sky> ");
        assert_eq!(prompt("SELECT"), "  -> ");
        assert_eq!(prompt("SELECT 'a"), "  '> ");
        assert_eq!(prompt("/* a"), "  *> ");
    }
}
