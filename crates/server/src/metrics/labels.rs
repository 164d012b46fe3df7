//! The labels of the metrics.

use sql::ErrorCode;
use sql::mysql::first_word;

use crate::ClientError;

/// The values of a label.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $word:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$about])* $word,)*
        }

        impl $name {
            /// All values, each at the index of its discriminant.
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$word),*];

            /// The value as it is written.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$word => $label,)*
                }
            }
        }
    };
}

labels! {
    /// The protocol of a connection.
    Protocol {
        /// MySQL's protocol.
        Mysql = "mysql",
        /// HTTP.
        Http = "http",
    }
}

labels! {
    /// The kind of a statement or request.
    StatementKind {
        /// A query in SQL.
        Select = "select",
        /// SHOW.
        Show = "show",
        /// EXPLAIN or DESCRIBE.
        Explain = "explain",
        /// SET.
        Set = "set",
        /// USE.
        Use = "use",
        /// KILL.
        Kill = "kill",
        /// The begin or end of a transaction, which has no effect.
        Transaction = "transaction",
        /// The preparation of a statement.
        Prepare = "prepare",
        /// A cone search.
        Cone = "cone",
        /// A cone search around many positions.
        Multicone = "multicone",
        /// Any other statement; most of them are rejected.
        Other = "other",
    }
}

labels! {
    /// The outcome of a statement.
    QueryOutcome {
        /// It succeeded.
        Succeeded = "ok",
        /// The statement is wrong, or what it requests does not exist.
        Rejected = "rejected",
        /// KILL, the time limit or the server's shutdown stopped it.
        Stopped = "stopped",
        /// The client hung up or did not read on.
        Disconnected = "disconnected",
        /// The server failed to execute a correct statement.
        Failed = "failed",
    }
}

/// First words of statements, the most frequent first, and their kinds. A statement that begins with a parenthesis has no first word.
const WORDS: [(&str, StatementKind); 20] = [
    ("select", StatementKind::Select),
    ("set", StatementKind::Set),
    ("show", StatementKind::Show),
    ("", StatementKind::Select),
    ("with", StatementKind::Select),
    ("values", StatementKind::Select),
    ("table", StatementKind::Select),
    ("explain", StatementKind::Explain),
    ("describe", StatementKind::Explain),
    ("desc", StatementKind::Explain),
    ("use", StatementKind::Use),
    ("kill", StatementKind::Kill),
    ("begin", StatementKind::Transaction),
    ("start", StatementKind::Transaction),
    ("commit", StatementKind::Transaction),
    ("rollback", StatementKind::Transaction),
    ("savepoint", StatementKind::Transaction),
    ("release", StatementKind::Transaction),
    ("lock", StatementKind::Transaction),
    ("unlock", StatementKind::Transaction),
];

impl StatementKind {
    /// The kind of a statement, by its first word. Whether the statement can be parsed turns out later.
    pub fn of(statement: &str) -> Self {
        let first = first_word(statement);
        let known = WORDS
            .iter()
            .find(|(word, _)| first.eq_ignore_ascii_case(word));
        known.map_or(Self::Other, |(_, kind)| *kind)
    }
}

impl QueryOutcome {
    /// The outcome of work.
    pub fn of_work<T>(done: &Result<T, ClientError>) -> Self {
        done.as_ref().err().map_or(Self::Succeeded, Self::of)
    }

    /// The outcome of a statement that ended with an error.
    pub fn of(error: &ClientError) -> Self {
        match error.code {
            ErrorCode::INTERRUPTED | ErrorCode::TIME_LIMIT | ErrorCode::SERVER_ENDS => {
                Self::Stopped
            }
            ErrorCode::STORAGE
            | ErrorCode::OUT_OF_RESOURCES
            | ErrorCode::TEMPORARY_FULL
            | ErrorCode::INTERNAL => Self::Failed,
            _ => Self::Rejected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_the_first_word() {
        for (statement, kind) in [
            ("SELECT 1", StatementKind::Select),
            (" (select 1) union (select 2)", StatementKind::Select),
            (
                "/* driver 8.0 */ -- two\n With a AS (SELECT 1) SELECT * FROM a",
                StatementKind::Select,
            ),
            ("show tables", StatementKind::Show),
            ("desc Object", StatementKind::Explain),
            ("SET NAMES utf8mb4", StatementKind::Set),
            ("use sky", StatementKind::Use),
            ("kill query 3", StatementKind::Kill),
            ("START TRANSACTION", StatementKind::Transaction),
            ("DROP TABLE Object", StatementKind::Other),
            ("selected", StatementKind::Other),
            ("", StatementKind::Select),
        ] {
            assert_eq!(StatementKind::of(statement), kind, "{statement}");
        }
    }

    #[test]
    fn whose_fault_it_is_follows_from_the_number() {
        for (code, ending) in [
            (ErrorCode::NO_COLUMN, QueryOutcome::Rejected),
            (ErrorCode::OTHER, QueryOutcome::Rejected),
            (ErrorCode::INTERRUPTED, QueryOutcome::Stopped),
            (ErrorCode::TIME_LIMIT, QueryOutcome::Stopped),
            (ErrorCode::STORAGE, QueryOutcome::Failed),
            (ErrorCode::INTERNAL, QueryOutcome::Failed),
        ] {
            assert_eq!(
                QueryOutcome::of(&ClientError::new(code, "")),
                ending,
                "{code}"
            );
        }
    }

    #[test]
    fn every_label_stands_at_the_place_of_its_number() {
        assert!(
            (0..)
                .zip(StatementKind::ALL)
                .all(|(at, kind)| kind as usize == at)
        );
        assert!(
            (0..)
                .zip(QueryOutcome::ALL)
                .all(|(at, ending)| ending as usize == at)
        );
        assert!(
            (0..)
                .zip(Protocol::ALL)
                .all(|(at, protocol)| protocol as usize == at)
        );
    }
}
