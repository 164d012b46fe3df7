//! The numbers and states that MySQL gives to mistakes: drivers and programs go by them, people by the sentence.
//!
//! Numbers: *MySQL Error Message Reference*, chapter "Server Error Message Reference"; states: ISO/IEC 9075.

use std::fmt;

/// An error's number in MySQL and its SQLSTATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode {
    /// MySQL's number.
    pub number: u16,
    /// Five characters, of which the first two are the class.
    pub state: &'static str,
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number, self.state)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $state:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self { number: $number, state: $state };)*
        }
    };
}

codes! {
    /// No database has this name (`ER_BAD_DB_ERROR`).
    NO_DATABASE = 1049, "42000";
    /// A column is in several tables (`ER_NON_UNIQ_ERROR`).
    AMBIGUOUS_COLUMN = 1052, "23000";
    /// No table has this column (`ER_BAD_FIELD_ERROR`).
    NO_COLUMN = 1054, "42S22";
    /// A name stands for two columns of a derived table (`ER_DUP_FIELDNAME`).
    COLUMN_TWICE = 1060, "42S21";
    /// The text cannot be read (`ER_PARSE_ERROR`).
    SYNTAX = 1064, "42000";
    /// There is nothing but space and comments (`ER_EMPTY_QUERY`).
    NO_STATEMENT = 1065, "42000";
    /// Two tables of a FROM have one name (`ER_NONUNIQ_TABLE`).
    TABLE_TWICE = 1066, "42000";
    /// Text that is not a value of the type that is needed (`ER_WRONG_VALUE`).
    WRONG_VALUE = 1525, "HY000";
    /// Memory or another resource is used up (`ER_OUT_OF_RESOURCES`).
    OUT_OF_RESOURCES = 1041, "HY000";
    /// None of the others (`ER_UNKNOWN_ERROR`).
    OTHER = 1105, "HY000";
    /// An aggregate where none may be (`ER_INVALID_GROUP_FUNC_USE`).
    MISPLACED_AGGREGATE = 1111, "HY000";
    /// No table has this name (`ER_NO_SUCH_TABLE`).
    NO_TABLE = 1146, "42S02";
    /// The two sides of a UNION differ in width (`ER_WRONG_NUMBER_OF_COLUMNS_IN_SELECT`).
    UNEQUAL_WIDTHS = 1222, "21000";
    /// Not built (`ER_NOT_SUPPORTED_YET`).
    NOT_SUPPORTED = 1235, "42000";
    /// A row where a value is needed (`ER_OPERAND_COLUMNS`).
    ONE_COLUMN = 1241, "21000";
    /// A subquery that stands for a value gives several rows (`ER_SUBQUERY_NO_1_ROW`).
    ONE_ROW = 1242, "21000";
    /// Data are only read here (`ER_OPTION_PREVENTS_STATEMENT`).
    READ_ONLY = 1290, "HY000";
    /// No function has this name (`ER_SP_DOES_NOT_EXIST`).
    NO_FUNCTION = 1305, "42000";
    /// A statement was stopped (`ER_QUERY_INTERRUPTED`).
    INTERRUPTED = 1317, "70100";
    /// A function with other arguments than it takes (`ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT`).
    WRONG_ARGUMENTS = 1582, "42000";
    /// A result beyond its type (`ER_DATA_OUT_OF_RANGE`).
    OUT_OF_RANGE = 1690, "22003";
    /// Files that cannot be read (`ER_GET_ERRNO`).
    STORAGE = 1030, "HY000";
}

/// Words of the engine's messages, and what they are about. The first that is found counts.
const WORDS: [(&[&str], ErrorCode); 13] = [
    (&["more memory than"], ErrorCode::OUT_OF_RESOURCES),
    (&["cancelled"], ErrorCode::INTERRUPTED),
    (
        &["overflow", "out of range", "beyond the range"],
        ErrorCode::OUT_OF_RANGE,
    ),
    (&["different number of columns"], ErrorCode::UNEQUAL_WIDTHS),
    (
        &[
            "should only return one column",
            "must return only one column",
            "too many columns! the query",
        ],
        ErrorCode::ONE_COLUMN,
    ),
    (
        &["more than one row", "returned more than"],
        ErrorCode::ONE_ROW,
    ),
    (
        &["non-unique", "not unique", "duplicate table"],
        ErrorCode::TABLE_TWICE,
    ),
    (
        &["duplicate", "unique expression names"],
        ErrorCode::COLUMN_TWICE,
    ),
    (
        &[
            "aggregates within aggregates",
            "aggregate functions are not allowed",
        ],
        ErrorCode::MISPLACED_AGGREGATE,
    ),
    (
        &[
            "does not support zero arguments",
            "expects",
            "expected",
            "takes",
            "arguments",
            "argument types",
            "requires",
        ],
        ErrorCode::WRONG_ARGUMENTS,
    ),
    (&["limit must be", "offset must be"], ErrorCode::SYNTAX),
    (
        &["cannot cast", "cannot parse", "error parsing"],
        ErrorCode::WRONG_VALUE,
    ),
    (
        &["not supported", "not implemented", "unsupported", "not yet"],
        ErrorCode::NOT_SUPPORTED,
    ),
];

impl ErrorCode {
    /// The code of an engine's message, by its words.
    pub fn of_message(message: &str) -> Self {
        let message = message.to_ascii_lowercase();
        let found = |words: &&[&str]| words.iter().any(|word| message.contains(word));
        let known = WORDS.iter().find(|(words, _)| found(words));
        known.map_or(Self::OTHER, |(_, code)| *code)
    }
}
