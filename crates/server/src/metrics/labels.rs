//! By what statements and connections are told apart when they are counted.

use sql::ErrorCode;
use sql::mysql::first_word;

use crate::Refusal;

/// A set of words that a label can be.
macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $word:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$about])* $word,)*
        }

        impl $name {
            /// All of them, each at the place of its number.
            pub const ALL: [Self; [$($label),*].len()] = [$(Self::$word),*];

            /// How it is written.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$word => $label,)*
                }
            }
        }
    };
}

labels! {
    /// How somebody came in.
    Door {
        /// MySQL's protocol.
        Mysql = "mysql",
        /// HTTP.
        Http = "http",
    }
}

labels! {
    /// What is asked.
    Kind {
        /// For rows, in SQL.
        Select = "select",
        /// What there is.
        Show = "show",
        /// What a table has or a statement would do.
        Explain = "explain",
        /// To change settings of the connection.
        Set = "set",
        /// To choose a database.
        Use = "use",
        /// To end something.
        Kill = "kill",
        /// To begin or end a transaction, in which nothing happens.
        Transaction = "transaction",
        /// To be told the columns of a statement that is asked later.
        Prepare = "prepare",
        /// For the rows around a position.
        Cone = "cone",
        /// For those around many positions.
        Multicone = "multicone",
        /// Anything else; most of it is refused.
        Other = "other",
    }
}

labels! {
    /// What a statement comes to.
    Ending {
        /// It was answered or done.
        Answered = "ok",
        /// It has a mistake in it, or asks for what is not to be had.
        Refused = "refused",
        /// By KILL, by its time limit, or because the server ended.
        Stopped = "stopped",
        /// Whoever asked had hung up or did not read on.
        Gone = "gone",
        /// Nothing is wrong with it, and yet the server could not.
        Failed = "failed",
    }
}

/// First words of statements, the most frequent first, and what they ask. One that begins with a parenthesis has none.
const WORDS: [(&str, Kind); 20] = [
    ("select", Kind::Select),
    ("set", Kind::Set),
    ("show", Kind::Show),
    ("", Kind::Select),
    ("with", Kind::Select),
    ("values", Kind::Select),
    ("table", Kind::Select),
    ("explain", Kind::Explain),
    ("describe", Kind::Explain),
    ("desc", Kind::Explain),
    ("use", Kind::Use),
    ("kill", Kind::Kill),
    ("begin", Kind::Transaction),
    ("start", Kind::Transaction),
    ("commit", Kind::Transaction),
    ("rollback", Kind::Transaction),
    ("savepoint", Kind::Transaction),
    ("release", Kind::Transaction),
    ("lock", Kind::Transaction),
    ("unlock", Kind::Transaction),
];

impl Kind {
    /// What a statement asks, by its first word: whether it can be read at all is found out later.
    pub fn of(statement: &str) -> Self {
        let first = first_word(statement);
        let known = WORDS
            .iter()
            .find(|(word, _)| first.eq_ignore_ascii_case(word));
        known.map_or(Self::Other, |(_, kind)| *kind)
    }
}

impl Ending {
    /// What work comes to.
    pub fn of_work<T>(done: &Result<T, Refusal>) -> Self {
        done.as_ref().err().map_or(Self::Answered, Self::of)
    }

    /// What a statement comes to that is answered with a refusal.
    pub fn of(refusal: &Refusal) -> Self {
        match refusal.code {
            ErrorCode::INTERRUPTED | ErrorCode::TIME_LIMIT | ErrorCode::SERVER_ENDS => {
                Self::Stopped
            }
            ErrorCode::STORAGE | ErrorCode::OUT_OF_RESOURCES | ErrorCode::INTERNAL => Self::Failed,
            _ => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_the_first_word() {
        for (statement, kind) in [
            ("SELECT 1", Kind::Select),
            (" (select 1) union (select 2)", Kind::Select),
            (
                "/* driver 8.0 */ -- two\n With a AS (SELECT 1) SELECT * FROM a",
                Kind::Select,
            ),
            ("show tables", Kind::Show),
            ("desc Object", Kind::Explain),
            ("SET NAMES utf8mb4", Kind::Set),
            ("use sky", Kind::Use),
            ("kill query 3", Kind::Kill),
            ("START TRANSACTION", Kind::Transaction),
            ("DROP TABLE Object", Kind::Other),
            ("selected", Kind::Other),
            ("", Kind::Select),
        ] {
            assert_eq!(Kind::of(statement), kind, "{statement}");
        }
    }

    #[test]
    fn whose_fault_it_is_follows_from_the_number() {
        for (code, ending) in [
            (ErrorCode::NO_COLUMN, Ending::Refused),
            (ErrorCode::OTHER, Ending::Refused),
            (ErrorCode::INTERRUPTED, Ending::Stopped),
            (ErrorCode::TIME_LIMIT, Ending::Stopped),
            (ErrorCode::STORAGE, Ending::Failed),
            (ErrorCode::INTERNAL, Ending::Failed),
        ] {
            assert_eq!(Ending::of(&Refusal::new(code, "")), ending, "{code}");
        }
    }

    #[test]
    fn every_label_stands_at_the_place_of_its_number() {
        assert!((0..).zip(Kind::ALL).all(|(at, kind)| kind as usize == at));
        assert!(
            (0..)
                .zip(Ending::ALL)
                .all(|(at, ending)| ending as usize == at)
        );
        assert!((0..).zip(Door::ALL).all(|(at, door)| door as usize == at));
    }
}
