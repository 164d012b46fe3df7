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

            /// The code of this number; [`Self::OTHER`] if there is none.
            pub fn of_number(number: u16) -> Self {
                let known = [$(Self::$name),*];
                known.into_iter().find(|it| it.number == number).unwrap_or(Self::OTHER)
            }
        }
    };
}

codes! {
    /// As many connections as there may be (`ER_CON_COUNT_ERROR`).
    TOO_MANY_CONNECTIONS = 1040, "08004";
    /// The two sides do not understand each other from the start (`ER_HANDSHAKE_ERROR`).
    HANDSHAKE = 1043, "08S01";
    /// A database in which whoever asks may read nothing (`ER_DBACCESS_DENIED_ERROR`).
    DATABASE_DENIED = 1044, "42000";
    /// No user of this name has this password (`ER_ACCESS_DENIED_ERROR`).
    LOGIN_DENIED = 1045, "28000";
    /// A client that knows none of the ways to log in that the server takes (`ER_NOT_SUPPORTED_AUTH_MODE`).
    NO_COMMON_PLUGIN = 1251, "08004";
    /// A plugin for passwords that there is not, or that is not switched on (`ER_PLUGIN_IS_NOT_LOADED`).
    PLUGIN_NOT_LOADED = 1524, "HY000";
    /// So many logins have failed that no other one is tried for some time (`ER_USER_ACCESS_DENIED_FOR_USER_ACCOUNT_BLOCKED_BY_PASSWORD_LOCK`).
    LOGIN_BLOCKED = 3955, "HY000";
    /// A table is named without its database, and none is chosen (`ER_NO_DB_ERROR`).
    NO_DATABASE_CHOSEN = 1046, "3D000";
    /// No such command in the protocol (`ER_UNKNOWN_COM_ERROR`).
    UNKNOWN_COMMAND = 1047, "08S01";
    /// No database has this name (`ER_BAD_DB_ERROR`).
    NO_DATABASE = 1049, "42000";
    /// The server ends (`ER_SERVER_SHUTDOWN`).
    SERVER_ENDS = 1053, "08S01";
    /// A column is in several tables (`ER_NON_UNIQ_ERROR`).
    AMBIGUOUS_COLUMN = 1052, "23000";
    /// No table has this column (`ER_BAD_FIELD_ERROR`).
    NO_COLUMN = 1054, "42S22";
    /// A column that is to be dropped and is not there (`ER_CANT_DROP_FIELD_OR_KEY`).
    NO_COLUMN_TO_DROP = 1091, "42000";
    /// The last column of a table (`ER_CANT_REMOVE_ALL_FIELDS`).
    NO_COLUMNS_LEFT = 1090, "42000";
    /// Others change a table all the time (`ER_LOCK_WAIT_TIMEOUT`).
    LOCK_WAIT = 1205, "HY000";
    /// A text that is no value of its column's type (`ER_TRUNCATED_WRONG_VALUE_FOR_FIELD`).
    WRONG_ROW = 1366, "HY000";
    /// A text that begins with a value of its column's type and goes on (`WARN_DATA_TRUNCATED`).
    DATA_TRUNCATED = 1265, "01000";
    /// A number that its column cannot hold (`ER_WARN_DATA_OUT_OF_RANGE`).
    VALUE_OUT_OF_RANGE = 1264, "22003";
    /// A text that is longer than its column takes (`ER_DATA_TOO_LONG`).
    DATA_TOO_LONG = 1406, "22001";
    /// NULL in a column that has none (`ER_BAD_NULL_ERROR`).
    NULL_VALUE = 1048, "23000";
    /// A row with a key that another row of the table has (`ER_DUP_ENTRY`).
    DUPLICATE_KEY = 1062, "23000";
    /// A table that others belong to (`ER_FK_CANNOT_DROP_PARENT`).
    HAS_CHILDREN = 3730, "HY000";
    /// NULL for a column that has none, which got another value (`ER_WARN_NULL_TO_NOTNULL`).
    NULL_TO_NOT_NULL = 1263, "22004";
    /// What separates the fields of a file that cannot be (`ER_WRONG_FIELD_TERMINATORS`).
    WRONG_SEPARATORS = 1083, "42000";
    /// A line of a file that has fewer fields than columns (`ER_WARN_TOO_FEW_RECORDS`).
    TOO_FEW_FIELDS = 1261, "01000";
    /// A line of a file that has more fields than columns (`ER_WARN_TOO_MANY_RECORDS`).
    TOO_MANY_FIELDS = 1262, "01000";
    /// A column that gets no value and has no default (`ER_NO_DEFAULT_FOR_FIELD`).
    NO_DEFAULT = 1364, "HY000";
    /// A default that its column cannot hold (`ER_INVALID_DEFAULT`).
    INVALID_DEFAULT = 1067, "42000";
    /// A name stands for two columns of a derived table (`ER_DUP_FIELDNAME`).
    COLUMN_TWICE = 1060, "42S21";
    /// The text cannot be read (`ER_PARSE_ERROR`).
    SYNTAX = 1064, "42000";
    /// There is nothing but space and comments (`ER_EMPTY_QUERY`).
    NO_STATEMENT = 1065, "42000";
    /// Two tables of a FROM have one name (`ER_NONUNIQ_TABLE`).
    TABLE_TWICE = 1066, "42000";
    /// No connection has this number (`ER_NO_SUCH_THREAD`).
    NO_CONNECTION = 1094, "HY000";
    /// Somebody else's connection (`ER_KILL_DENIED_ERROR`).
    NOT_OWNER = 1095, "HY000";
    /// A result that is larger than what is stored of one query (`ER_TOO_BIG_SELECT`).
    RESULT_TOO_LARGE = 1104, "42000";
    /// A character set that is not converted (`ER_UNKNOWN_CHARACTER_SET`).
    UNKNOWN_CHARACTER_SET = 1115, "42000";
    /// Text that is not a value of the type that is needed (`ER_WRONG_VALUE`).
    WRONG_VALUE = 1525, "HY000";
    /// A column that an INSERT names twice (`ER_FIELD_SPECIFIED_TWICE`).
    NAMED_TWICE = 1110, "42000";
    /// There is no room for more temporary files (`ER_RECORD_FILE_FULL`).
    TEMPORARY_FULL = 1114, "HY000";
    /// A table that is read in a former state and has none (`ER_VERS_NOT_VERSIONED` of MariaDB).
    NOT_VERSIONED = 4124, "HY000";
    /// Memory or another resource is used up (`ER_OUT_OF_RESOURCES`).
    OUT_OF_RESOURCES = 1041, "HY000";
    /// A mistake of the server's (`ER_INTERNAL_ERROR`).
    INTERNAL = 1815, "HY000";
    /// None of the others (`ER_UNKNOWN_ERROR`).
    OTHER = 1105, "HY000";
    /// A table of this name is there already (`ER_TABLE_EXISTS_ERROR`).
    TABLE_EXISTS = 1050, "42S01";
    /// No table of this name is in the FROM, or there to be dropped (`ER_BAD_TABLE_ERROR`).
    UNKNOWN_TABLE = 1051, "42S02";
    /// More or fewer values than columns (`ER_WRONG_VALUE_COUNT_ON_ROW`).
    WRONG_VALUE_COUNT = 1136, "21S01";
    /// An aggregate where none may be (`ER_INVALID_GROUP_FUNC_USE`).
    MISPLACED_AGGREGATE = 1111, "HY000";
    /// A column beside an aggregate without GROUP BY (`ER_MIX_OF_GROUP_FUNC_AND_FIELDS`).
    MISSING_GROUP_BY = 1140, "42000";
    /// An ORDER BY of a SELECT DISTINCT by what is not in its list (`ER_FIELD_IN_ORDER_NOT_SELECT`).
    ORDER_NOT_SELECTED = 3065, "HY000";
    /// A column in HAVING that is not grouped by (`ER_NON_GROUPING_FIELD_USED`).
    UNGROUPED_IN_HAVING = 1463, "42000";
    /// A table that whoever asks may not read (`ER_TABLEACCESS_DENIED_ERROR`).
    TABLE_DENIED = 1142, "42000";
    /// A plan that tells of tables that whoever asks may not read (`ER_VIEW_NO_EXPLAIN`).
    VIEW_NOT_EXPLAINED = 1345, "HY000";
    /// A view that would depend on who reads it (`ER_VIEW_SELECT_VARIABLE`).
    VIEW_OF_CONNECTION = 1351, "HY000";
    /// A list of a view's columns that has not as many as its query (`ER_VIEW_WRONG_LIST`).
    VIEW_WRONG_LIST = 1353, "HY000";
    /// A view that cannot be read any more (`ER_VIEW_INVALID`).
    VIEW_INVALID = 1356, "HY000";
    /// A recursive WITH that repeats more often than it may (`ER_CTE_MAX_RECURSION_DEPTH`).
    RECURSION_TOO_DEEP = 3636, "HY000";
    /// `*` without a FROM (`ER_NO_TABLES_USED`).
    NO_TABLES_USED = 1096, "HY000";
    /// Several rows where variables take one (`ER_TOO_MANY_ROWS`).
    TOO_MANY_ROWS = 1172, "42000";
    /// No row for variables (`ER_SP_FETCH_NO_DATA`).
    NO_ROW = 1329, "02000";
    /// A text that GROUP_CONCAT has cut (`ER_CUT_VALUE_GROUP_CONCAT`).
    GROUP_CONCAT_CUT = 1260, "HY000";
    /// A view that reads itself (`ER_VIEW_RECURSIVE`).
    VIEW_RECURSIVE = 1462, "HY000";
    /// A name that no column can have (`ER_WRONG_COLUMN_NAME`).
    BAD_COLUMN_NAME = 1166, "42000";
    /// No table has this name (`ER_NO_SUCH_TABLE`).
    NO_TABLE = 1146, "42S02";
    /// More bytes than a packet may have (`ER_NET_PACKET_TOO_LARGE`).
    PACKET_TOO_LARGE = 1153, "08S01";
    /// A packet whose number is not the next (`ER_NET_PACKETS_OUT_OF_ORDER`).
    OUT_OF_ORDER = 1156, "08S01";
    /// A query that would take longer than it may (`ER_USER_LIMIT_REACHED`).
    LIMIT_REACHED = 1226, "42000";
    /// A packet that began to come and did not go on (`ER_NET_READ_INTERRUPTED`).
    STALLED = 1159, "08S01";
    /// No system variable has this name (`ER_UNKNOWN_SYSTEM_VARIABLE`).
    NO_VARIABLE = 1193, "HY000";
    /// Parameters that are not those of the prepared statement (`ER_WRONG_ARGUMENTS`).
    WRONG_PARAMETERS = 1210, "HY000";
    /// What only an administrator may do (`ER_SPECIFIC_ACCESS_DENIED_ERROR`).
    ACCESS_DENIED = 1227, "42000";
    /// A user who cannot be added, changed or removed (`ER_CANNOT_USER`).
    USER_FAILED = 1396, "HY000";
    /// A grant that is to be taken back and was never given (`ER_NONEXISTING_GRANT`).
    NO_GRANT = 1141, "42000";
    /// A password that cannot be used (`ER_NOT_VALID_PASSWORD`).
    BAD_PASSWORD = 1819, "HY000";
    /// A system variable cannot have this value (`ER_WRONG_VALUE_FOR_VAR`).
    WRONG_VARIABLE_VALUE = 1231, "42000";
    /// A system variable that says what is so (`ER_INCORRECT_GLOBAL_LOCAL_VAR`).
    FIXED_VARIABLE = 1238, "HY000";
    /// A statement that cannot be prepared (`ER_UNSUPPORTED_PS`).
    NOT_PREPARABLE = 1295, "HY000";
    /// No prepared statement has this number or name (`ER_UNKNOWN_STMT_HANDLER`).
    NO_PREPARED_STATEMENT = 1243, "HY000";
    /// A collation of another character set (`ER_COLLATION_CHARSET_MISMATCH`).
    WRONG_COLLATION = 1253, "42000";
    /// A collation of no character set that is known (`ER_UNKNOWN_COLLATION`).
    UNKNOWN_COLLATION = 1273, "HY000";
    /// A constant is not what its place needs, and taken for something else (`ER_TRUNCATED_WRONG_VALUE`).
    TRUNCATED_VALUE = 1292, "22007";
    /// A time zone other than UTC (`ER_UNKNOWN_TIME_ZONE`).
    UNKNOWN_TIME_ZONE = 1298, "HY000";
    /// Bytes that are no text (`ER_INVALID_CHARACTER_STRING`).
    NO_TEXT = 1300, "HY000";
    /// A number that no double is (`ER_ILLEGAL_VALUE_FOR_TYPE`).
    ILLEGAL_NUMBER = 1367, "22007";
    /// More parameters than a statement may have (`ER_PS_MANY_PARAM`).
    TOO_MANY_PARAMETERS = 1390, "HY000";
    /// Rows are requested of a statement that has none waiting (`ER_STMT_HAS_NO_OPEN_CURSOR`).
    NO_CURSOR = 1421, "HY000";
    /// More prepared statements than a connection may have (`ER_MAX_PREPARED_STMT_COUNT_REACHED`).
    TOO_MANY_PREPARED_STATEMENTS = 1461, "42000";
    /// A packet that is not what its first byte says (`ER_MALFORMED_PACKET`).
    MALFORMED_PACKET = 1835, "HY000";
    /// A statement took longer than it may (`ER_QUERY_TIMEOUT`).
    TIME_LIMIT = 3024, "HY000";
    /// Nothing was requested a long time (`ER_CLIENT_INTERACTION_TIMEOUT`).
    IDLE = 4031, "HY000";
    /// The two sides of a UNION differ in width (`ER_WRONG_NUMBER_OF_COLUMNS_IN_SELECT`).
    UNEQUAL_WIDTHS = 1222, "21000";
    /// A file of a client that sends none (`ER_CLIENT_LOCAL_FILES_DISABLED`).
    NO_LOCAL_FILES = 3948, "42000";
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
    /// A text that would be longer than a value may be (`ER_WARN_ALLOWED_PACKET_OVERFLOWED`).
    VALUE_TOO_LONG = 1301, "HY000";
    /// A statement was stopped (`ER_QUERY_INTERRUPTED`).
    INTERRUPTED = 1317, "70100";
    /// A function with other arguments than it takes (`ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT`).
    WRONG_ARGUMENTS = 1582, "42000";
    /// More digits of a second than there are (`ER_TOO_BIG_PRECISION`).
    TOO_PRECISE = 1426, "42000";
    /// A result beyond its type (`ER_DATA_OUT_OF_RANGE`).
    OUT_OF_RANGE = 1690, "22003";
    /// A text that is no time by its format (`ER_WRONG_VALUE_FOR_TYPE`).
    WRONG_FORMAT = 1411, "HY000";
    /// No plan is written like this (`ER_UNKNOWN_EXPLAIN_FORMAT`).
    UNKNOWN_EXPLAIN_FORMAT = 1791, "HY000";
    /// No window has this name (`ER_WINDOW_NO_SUCH_WINDOW`).
    NO_WINDOW = 3579, "HY000";
    /// A window that is made of another one, with PARTITION BY (`ER_WINDOW_NO_CHILD_PARTITIONING`).
    WINDOW_PARTITIONED = 3581, "HY000";
    /// A window that is made of one with a frame (`ER_WINDOW_NO_INHERIT_FRAME`).
    WINDOW_FRAMED = 3582, "HY000";
    /// A window that is made of another one, both with ORDER BY (`ER_WINDOW_NO_REDEFINE_ORDER_BY`).
    WINDOW_ORDERED = 3583, "HY000";
    /// Two windows have one name (`ER_WINDOW_DUPLICATE_NAME`).
    WINDOW_TWICE = 3591, "HY000";
    /// A pattern that cannot be read (`ER_REGEXP_RULE_SYNTAX`).
    PATTERN = 3688, "HY000";
    /// A pattern with an escape sequence that is none (`ER_REGEXP_BAD_ESCAPE_SEQUENCE`).
    PATTERN_ESCAPE = 3689, "HY000";
    /// A pattern with what is not built (`ER_REGEXP_UNIMPLEMENTED`).
    PATTERN_UNBUILT = 3690, "HY000";
    /// A pattern whose parentheses do not match (`ER_REGEXP_MISMATCHED_PAREN`).
    PATTERN_PARENTHESES = 3691, "HY000";
    /// A pattern with a count that cannot be read (`ER_REGEXP_BAD_INTERVAL`).
    PATTERN_COUNT = 3692, "HY000";
    /// A pattern with a count from more to less (`ER_REGEXP_MAX_LT_MIN`).
    PATTERN_COUNT_ORDER = 3693, "HY000";
    /// A pattern with a bracket that is open (`ER_REGEXP_MISSING_CLOSE_BRACKET`).
    PATTERN_BRACKET = 3696, "HY000";
    /// A pattern with a range of characters the wrong way round (`ER_REGEXP_INVALID_RANGE`).
    PATTERN_RANGE = 3697, "HY000";
    /// A pattern that takes too much memory (`ER_REGEXP_PATTERN_TOO_BIG`).
    PATTERN_TOO_BIG = 3700, "HY000";
    /// Files that cannot be read (`ER_GET_ERRNO`).
    STORAGE = 1030, "HY000";
}

/// Words of the engine's messages, and what they are about. The first that is found counts.
const WORDS: [(&[&str], ErrorCode); 26] = [
    // Before all others: they show patterns, which may have any words.
    (
        &["its parentheses do not match"],
        ErrorCode::PATTERN_PARENTHESES,
    ),
    (&["it has a backslash before"], ErrorCode::PATTERN_ESCAPE),
    (&["{min,max} is below its"], ErrorCode::PATTERN_COUNT_ORDER),
    (&["a {min,max} of it has no"], ErrorCode::PATTERN_COUNT),
    (&["a bracket [ of it is not"], ErrorCode::PATTERN_BRACKET),
    (&["a range of characters goes"], ErrorCode::PATTERN_RANGE),
    (&["references are not built"], ErrorCode::PATTERN_UNBUILT),
    (&["the pattern takes more than"], ErrorCode::PATTERN_TOO_BIG),
    (&["the pattern '"], ErrorCode::PATTERN),
    (
        &["a match type has the letters", "takes periods as"],
        ErrorCode::WRONG_PARAMETERS,
    ),
    (&["longer than a value may be"], ErrorCode::VALUE_TOO_LONG),
    (&["digits of a second"], ErrorCode::TOO_PRECISE),
    (&["more memory than"], ErrorCode::OUT_OF_RESOURCES),
    (&["does not read files"], ErrorCode::READ_ONLY),
    (&["cancelled"], ErrorCode::INTERRUPTED),
    (
        &[
            "overflow",
            "out of range",
            "beyond the range",
            "too large to store",
        ],
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
