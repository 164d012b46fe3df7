//! LOAD DATA LOCAL INFILE: a file of the client's becomes rows of a table.
//!
//! Source: *MySQL 8.0 Reference Manual*, 15.2.9, "LOAD DATA Statement".

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{Command, TableCommand, TargetTable, TokenReader};
use super::table_changes::ColumnAssignment;
use crate::connection::CharacterSet;
use crate::{ErrorCode, SqlError};

/// A LOAD DATA LOCAL INFILE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFile {
    /// The table that gets the rows.
    pub table: TargetTable,
    /// The file's name, which the client knows.
    pub file: String,
    /// The character set in which it is written; UTF-8 if none is named.
    pub character_set: Option<&'static CharacterSet>,
    /// How its rows are written.
    pub form: FileForm,
    /// What gets the fields, in their order. All columns if none are named.
    pub fields: Vec<LoadedField>,
    /// What columns get instead, one after another; the expressions may name columns and variables of the fields.
    pub assigned: Vec<ColumnAssignment>,
}

/// What gets a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadedField {
    /// A column.
    Column(String),
    /// A variable of the user's, without `@`.
    Variable(String),
}

impl LoadedField {
    /// The name of the column, if it is one.
    pub fn column(&self) -> Option<&str> {
        match self {
            Self::Column(name) => Some(name),
            Self::Variable(_) => None,
        }
    }
}

/// How the rows of a file are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileForm {
    /// What ends a field that is not the last of its line.
    pub field_end: String,
    /// The quote around fields, or some of them.
    pub quote: Option<char>,
    /// The character before one that is meant otherwise.
    pub escape: Option<char>,
    /// What ends a line.
    pub line_end: String,
    /// Lines before the rows.
    pub skipped: u64,
}

impl Default for FileForm {
    fn default() -> Self {
        Self {
            field_end: "\t".to_owned(),
            quote: None,
            escape: Some('\\'),
            line_end: "\n".to_owned(),
            skipped: 0,
        }
    }
}

impl TokenReader<'_> {
    /// `LOAD DATA LOCAL INFILE 'file' INTO TABLE name [CHARACTER SET set] [FIELDS ...] [LINES ...] [IGNORE n LINES] [(columns and
    /// variables)] [SET column = expression, ...]`.
    pub(super) fn read_load(&mut self) -> Result<Option<Command>, SqlError> {
        if !self.word("data") {
            return Ok(None);
        }
        let _ = self.word("low_priority") || self.word("concurrent");
        if !self.word("local") {
            let sentence = "LOAD DATA reads files of the client here: write LOAD DATA LOCAL INFILE, and let your client do it (--local-infile, local_infile=True)";
            return Err(SqlError::new(sentence).with_code(ErrorCode::READ_ONLY));
        }
        if !self.word("infile") {
            return Err(self.expected("INFILE"));
        }
        let file = self.text("the name of a file in quotes")?;
        // LOCAL means it: what a column cannot hold is adjusted with a warning.
        let _ = self.word("ignore");
        if self.word("replace") {
            return self.read_replace();
        }
        if !(self.word("into") && self.word("table")) {
            return Err(self.expected("INTO TABLE"));
        }
        let table = self.target()?;
        let character_set = self.character_set()?;
        let form = self.file_form()?;
        let fields = match self.sign(&Token::LParen) {
            true => self.loaded_fields()?,
            false => Vec::new(),
        };
        let assigned = match self.word("set") {
            true => self.assignments(&[])?,
            false => Vec::new(),
        };
        self.end()?;
        Ok(Some(Command::Table(TableCommand::LoadFile(Box::new(
            LoadedFile {
                table,
                file,
                character_set,
                form,
                fields,
                assigned,
            },
        )))))
    }

    fn character_set(&mut self) -> Result<Option<&'static CharacterSet>, SqlError> {
        if !(self.word("charset") || (self.word("character") && self.word("set"))) {
            return Ok(None);
        }
        let name = self
            .name("the name of a character set")?
            .to_ascii_lowercase();
        if ["utf8", "utf8mb3", "utf8mb4", "binary"].contains(&name.as_str()) {
            return Ok(None);
        }
        match CharacterSet::named(&name) {
            Some(set) => Ok(Some(set)),
            None => {
                let sentence =
                    format!("files in the character set {name} are not read: use utf8mb4");
                Err(SqlError::new(sentence).with_code(ErrorCode::UNKNOWN_CHARACTER_SET))
            }
        }
    }

    fn file_form(&mut self) -> Result<FileForm, SqlError> {
        let mut form = FileForm::default();
        if self.word("fields") || self.word("columns") {
            loop {
                if self.word("terminated") {
                    form.field_end = self.by_text()?;
                } else if self.word("optionally") {
                    if !self.word("enclosed") {
                        return Err(self.expected("ENCLOSED"));
                    }
                    form.quote = self.by_character("ENCLOSED BY")?;
                } else if self.word("enclosed") {
                    form.quote = self.by_character("ENCLOSED BY")?;
                } else if self.word("escaped") {
                    form.escape = self.by_character("ESCAPED BY")?;
                } else {
                    break;
                }
            }
        }
        if self.word("lines") {
            while self.word("terminated") {
                form.line_end = self.by_text()?;
            }
            if self.word("starting") {
                let sentence =
                    "LINES STARTING BY is not known here: write the file without such prefixes";
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
        }
        if form.field_end.is_empty() || form.line_end.is_empty() {
            let sentence =
                "fields of fixed widths are not read: give what ends a field and what ends a line";
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        if self.word("ignore") {
            form.skipped = self.number("a number of lines")?;
            if !(self.word("lines") || self.word("rows")) {
                return Err(self.expected("LINES"));
            }
        }
        Ok(form)
    }

    fn loaded_fields(&mut self) -> Result<Vec<LoadedField>, SqlError> {
        let mut fields = Vec::new();
        loop {
            fields.push(match self.user_variable() {
                Some(name) => LoadedField::Variable(name),
                None => LoadedField::Column(self.name("the name of a column")?),
            });
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        match self.sign(&Token::RParen) {
            true => Ok(fields),
            false => Err(self.expected(")")),
        }
    }

    fn by_text(&mut self) -> Result<String, SqlError> {
        if !self.word("by") {
            return Err(self.expected("BY"));
        }
        self.text("a text in quotes")
    }

    fn by_character(&mut self, clause: &str) -> Result<Option<char>, SqlError> {
        let text = self.by_text()?;
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (only, None) if only.is_none_or(|only| only.is_ascii()) => Ok(only),
            _ => {
                let sentence = format!("{clause} takes one character of ASCII, or none");
                Err(SqlError::new(sentence).with_code(ErrorCode::WRONG_SEPARATORS))
            }
        }
    }

    fn text(&mut self, what: &str) -> Result<String, SqlError> {
        let text = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::DoubleQuotedString(text)) => text.clone(),
            _ => return Err(self.expected(what)),
        };
        self.at += 1;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::command;
    use super::*;

    fn read(text: &str) -> LoadedFile {
        match command(text) {
            Ok(Some(Command::Table(TableCommand::LoadFile(file)))) => *file,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn files_are_loaded() {
        let plain = read("LOAD DATA LOCAL INFILE 'a.txt' IGNORE INTO TABLE ann.t");
        assert_eq!(plain.file, "a.txt");
        assert_eq!((plain.form, plain.fields.len()), (FileForm::default(), 0));
        assert_eq!(plain.table.database.as_deref(), Some("ann"));
        let all = read(
            r#"load data concurrent local infile "b.csv" into table t character set latin1 fields terminated by ',' optionally enclosed by '"' escaped by '' lines terminated by '\r\n' ignore 1 lines (a, @skipped, `b c`)"#,
        );
        assert_eq!(
            all.form,
            FileForm {
                field_end: ",".to_owned(),
                quote: Some('"'),
                escape: None,
                line_end: "\r\n".to_owned(),
                skipped: 1,
            }
        );
        let fields = [
            LoadedField::Column("a".to_owned()),
            LoadedField::Variable("skipped".to_owned()),
            LoadedField::Column("b c".to_owned()),
        ];
        assert_eq!((all.fields, all.assigned), (fields.to_vec(), vec![]));
        assert_eq!(all.character_set.map(|set| set.name), Some("latin1"));
        let set = read(
            "LOAD DATA LOCAL INFILE 'a' INTO TABLE t (a, @b) SET t.c = CONCAT(@b, ', '), d = DEFAULT",
        );
        let assigned = |column: &str, value: &str| (column.to_owned(), value.to_owned());
        assert_eq!(
            set.assigned,
            [assigned("c", "CONCAT(@b, ', ')"), assigned("d", "DEFAULT")]
        );
        let escaped = read(
            r"LOAD DATA LOCAL INFILE 'a' INTO TABLE t COLUMNS ESCAPED BY '\\' TERMINATED BY '\t'",
        );
        assert_eq!(escaped.form, FileForm::default());
    }

    #[test]
    fn what_is_not_read_is_told() {
        for (text, number) in [
            ("LOAD DATA INFILE 'a' INTO TABLE t", 1290),
            ("LOAD DATA LOCAL INFILE 'a' REPLACE INTO TABLE t", 1235),
            ("LOAD DATA LOCAL INFILE a INTO TABLE t", 1064),
            ("LOAD DATA LOCAL INFILE 'a' INTO t", 1064),
            ("LOAD DATA LOCAL INFILE 'a' INTO TABLE t SET a", 1064),
            ("LOAD DATA LOCAL INFILE 'a' INTO TABLE t SET @a = 1", 1064),
            ("LOAD DATA LOCAL INFILE 'a' INTO TABLE t SET a = 1) b", 1064),
            (
                "LOAD DATA LOCAL INFILE 'a' INTO TABLE t FIELDS ENCLOSED BY 'ab'",
                1083,
            ),
            (
                "LOAD DATA LOCAL INFILE 'a' INTO TABLE t FIELDS TERMINATED BY ''",
                1235,
            ),
            (
                "LOAD DATA LOCAL INFILE 'a' INTO TABLE t CHARACTER SET klingon",
                1115,
            ),
            ("LOAD DATA LOCAL INFILE 'a' INTO TABLE t x", 1064),
        ] {
            let error = command(text).unwrap_err();
            assert_eq!(error.code().number, number, "{text}: {error}");
        }
    }
}
