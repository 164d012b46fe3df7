//! How many arguments functions take: a call with more or fewer is told so in one way, before anything becomes another function of it.

use datafusion::sql::sqlparser::ast::{Function, FunctionArguments};

use crate::{Dialect, ErrorCode, SqlError};

const MANY: usize = usize::MAX;

/// The least and the greatest number of arguments, and the functions of MySQL's dialect that take so many. What the grammar reads in a form
/// of its own (`TRIM`, `EXTRACT`, `CAST`, `POSITION`) is not here.
const OF_MYSQL: [(usize, usize, &str); 20] = [
    (
        0,
        0,
        "PI RAND UUID CURDATE UTC_DATE ROW_NUMBER RANK DENSE_RANK PERCENT_RANK CUME_DIST",
    ),
    (
        0,
        1,
        "NOW SYSDATE LOCALTIME LOCALTIMESTAMP CURRENT_TIMESTAMP CURTIME CURRENT_TIME UTC_TIMESTAMP UTC_TIME \
         UNIX_TIMESTAMP",
    ),
    (0, MANY, "JSON_ARRAY JSON_OBJECT"),
    (
        1,
        1,
        "ISNULL ABS SIGN SQRT EXP LN LOG2 LOG10 SIN COS TAN ASIN ACOS COT DEGREES RADIANS CRC32 BIT_COUNT LENGTH \
         CHAR_LENGTH CHARACTER_LENGTH UPPER LOWER UCASE LCASE LTRIM RTRIM REVERSE SPACE ASCII ORD HEX UNHEX BIN OCT MD5 \
         SHA SHA1 TO_BASE64 FROM_BASE64 QUOTE SOUNDEX INET_ATON INET_NTOA WEEKOFYEAR TO_SECONDS \
         YEAR QUARTER MONTH DAY DAYOFMONTH DAYOFWEEK WEEKDAY DAYOFYEAR HOUR MINUTE SECOND MICROSECOND DAYNAME MONTHNAME \
         LAST_DAY TO_DAYS FROM_DAYS DATE TIME SEC_TO_TIME TIME_TO_SEC JSON_UNQUOTE JSON_QUOTE JSON_VALID JSON_TYPE \
         JSON_DEPTH JSON_ARRAYAGG SLEEP SUM AVG MIN MAX STD STDDEV STDDEV_POP VARIANCE VAR_POP STDDEV_SAMP VAR_SAMP \
         BIT_AND BIT_OR BIT_XOR ANY_VALUE NTILE FIRST_VALUE LAST_VALUE",
    ),
    (
        1,
        2,
        "ROUND LOG ATAN WEEK YEARWEEK TIMESTAMP FROM_UNIXTIME JSON_LENGTH JSON_KEYS",
    ),
    (1, 3, "LAG LEAD"),
    (1, MANY, "COALESCE CONCAT CHAR COUNT GROUP_CONCAT"),
    (
        2,
        2,
        "IFNULL NULLIF NVL TRUNCATE MOD POW POWER ATAN2 LEFT RIGHT REPEAT INSTR STRCMP FORMAT FIND_IN_SET MAKEDATE DATEDIFF SHA2 PERIOD_ADD PERIOD_DIFF \
         DATE_ADD DATE_SUB ADDDATE SUBDATE DATE_FORMAT STR_TO_DATE TIMEDIFF ADDTIME SUBTIME TIME_FORMAT JSON_VALUE \
         JSON_OBJECTAGG NTH_VALUE",
    ),
    (
        2,
        3,
        "SUBSTRING SUBSTR MID LPAD RPAD LOCATE REGEXP_LIKE JSON_CONTAINS",
    ),
    (2, 5, "REGEXP_SUBSTR"),
    (2, 6, "REGEXP_INSTR"),
    (
        2,
        MANY,
        "GREATEST LEAST ELT FIELD MAKE_SET CONCAT_WS JSON_EXTRACT",
    ),
    (
        3,
        3,
        "IF NVL2 CONV REPLACE SUBSTRING_INDEX TIMESTAMPDIFF TIMESTAMPADD CONVERT_TZ MAKETIME",
    ),
    (3, 5, "EXPORT_SET"),
    (3, 6, "REGEXP_REPLACE"),
    (3, MANY, "JSON_CONTAINS_PATH"),
    (4, 4, "INSERT"),
    // These may be written without `scisql_`.
    (
        1,
        1,
        "fluxToAbMag abMagToFlux nanojanskyToAbMag abMagToNanojansky",
    ),
    (
        2,
        2,
        "fluxToAbMagSigma abMagToFluxSigma nanojanskyToAbMagSigma abMagToNanojanskySigma dnToFlux dnToAbMag fluxToDn \
         abMagToDn",
    ),
    (
        4,
        4,
        "angSep dnToFluxSigma dnToAbMagSigma fluxToDnSigma abMagToDnSigma",
    ),
];

/// The least and the greatest number of arguments of a function of MySQL's dialect, if something is known of it.
fn taken(name: &str) -> Option<(usize, usize)> {
    let plain = match name.get(..7) {
        Some(family) if family.eq_ignore_ascii_case("scisql_") => &name[7..],
        _ => name,
    };
    let is_it = |known: &str| known.eq_ignore_ascii_case(plain);
    let mut rows = OF_MYSQL.iter();
    let (least, most, _) = rows.find(|(_, _, names)| names.split(' ').any(is_it))?;
    Some((*least, *most))
}

/// The functions that take as many arguments in ADQL, which has descriptions of its own for others.
const OF_BOTH: [&str; 5] = ["COUNT", "SUM", "AVG", "MIN", "MAX"];

/// # Errors
/// A function of MySQL's dialect, or an aggregate of either, is called with another number of arguments than it takes.
pub(crate) fn check(dialect: Dialect, sql: &str, function: &Function) -> Result<(), SqlError> {
    let FunctionArguments::List(list) = &function.args else {
        return Ok(());
    };
    let name = function.name.to_string();
    let plain = name.trim_matches('`');
    let is_of_both = || OF_BOTH.iter().any(|it| it.eq_ignore_ascii_case(plain));
    let is_known = dialect == Dialect::MySql || is_of_both();
    let Some((least, most)) = taken(plain).filter(|_| is_known) else {
        return Ok(());
    };
    let given = list.args.len();
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(wrong_number(sql, plain, (least, most), given))
}

/// The error for a call with another number of arguments than the function takes.
pub(crate) fn wrong_number(
    sql: &str,
    name: &str,
    (least, most): (usize, usize),
    given: usize,
) -> SqlError {
    let takes = match (least, most) {
        (0, 0) => "no arguments".to_owned(),
        (1, 1) => "1 argument".to_owned(),
        (least, most) if least == most => format!("{least} arguments"),
        (0, 1) => "1 argument at most".to_owned(),
        (1, MANY) => "1 argument or more".to_owned(),
        (least, MANY) => format!("{least} arguments or more"),
        (least, most) if least + 1 == most => format!("{least} or {most} arguments"),
        (least, most) => format!("{least} to {most} arguments"),
    };
    let given = match given {
        0 => "none is given".to_owned(),
        1 => "1 is given".to_owned(),
        many => format!("{many} are given"),
    };
    // Another server's statement gets no other rows here, without a word.
    let hint = match name.eq_ignore_ascii_case("rand") {
        true => {
            "rows have no order here in which a seed would count them: for the same sample again write a condition on the key, as CRC32(key) % 100 = 0"
        }
        false => "docs/sql.md describes it",
    };
    let sentence = format!("{name} takes {takes}, and {given}; {hint}");
    SqlError::about(sql, &name.to_ascii_lowercase(), sentence).with_code(ErrorCode::WRONG_ARGUMENTS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::arrow::datatypes::DataType;

    use super::*;

    fn all() -> impl Iterator<Item = (usize, usize, &'static str)> {
        OF_MYSQL
            .iter()
            .flat_map(|(least, most, names)| names.split(' ').map(|name| (*least, *most, name)))
    }

    #[test]
    fn each_documented_function_is_known() {
        let known: BTreeSet<String> = all()
            .map(|(_, _, name)| name.to_ascii_lowercase())
            .collect();
        assert_eq!(known.len(), all().count(), "a name stands there twice");
        // Read by the grammar in forms of their own.
        let forms = ["ceil", "ceiling", "floor", "trim", "position", "extract"];
        for name in crate::functions::documented(Dialect::MySql) {
            let folded = name.to_ascii_lowercase();
            let plain = folded.trim_start_matches("scisql_");
            // Geometry, and tables that are functions, say themselves what they take.
            let says_itself = [
                "qserv_areaspec_",
                "s2ptin",
                "s2cpolytobin",
                "read_",
                "nearest",
                "crossmatch",
            ];
            let is_known = known.contains(plain) || forms.contains(&plain);
            assert!(
                is_known || says_itself.iter().any(|begin| plain.starts_with(begin)),
                "{name}"
            );
        }
    }

    /// Some functions of the engine's take more than MySQL's.
    #[test]
    fn functions_take_what_is_let_through() {
        // Calls of these are written as calls of others, or with one argument more.
        const REWRITTEN: &str =
            "NOW DATE TIME TIMESTAMP UNIX_TIMESTAMP FROM_UNIXTIME DATE_ADD BIT_AND BIT_OR BIT_XOR";
        let functions = crate::functions::all();
        let mut compared = 0;
        let is_rewritten = |name: &str| REWRITTEN.split(' ').any(|it| it == name);
        for (least, most, name) in all().filter(|(_, _, name)| !is_rewritten(name)) {
            let own = format!("mysql_{}", name.to_ascii_lowercase());
            let Some(function) = functions.iter().find(|it| it.name() == own) else {
                continue;
            };
            for count in least..=most.min(8) {
                let types = vec![DataType::Utf8; count];
                let told = function.inner().coerce_types(&types).err();
                let told = told.map(|error| error.to_string()).unwrap_or_default();
                assert!(!told.contains(" does not take "), "{name}: {told}");
                compared += 1;
            }
        }
        assert!(compared > 100, "{compared}");
    }
}
