//! The functions that docs/sql.md describes, by dialect: what completion offers and what a misspelled name may have meant.
//!
//! The query engine has more functions; a name that no document explains is never suggested.

use crate::Dialect;

/// Functions of MySQL's dialect, by the kinds of the table "Functions" of docs/sql.md.
const MYSQL: [(&str, &[&str]); 7] = [
    (
        "choice",
        &[
            "IF", "IFNULL", "NULLIF", "COALESCE", "ISNULL", "NVL", "NVL2", "GREATEST", "LEAST",
            "ELT", "FIELD",
        ],
    ),
    (
        "mathematics",
        &[
            "ABS",
            "SIGN",
            "CEIL",
            "CEILING",
            "FLOOR",
            "ROUND",
            "TRUNCATE",
            "MOD",
            "SQRT",
            "POW",
            "POWER",
            "EXP",
            "LN",
            "LOG",
            "LOG2",
            "LOG10",
            "SIN",
            "COS",
            "TAN",
            "ASIN",
            "ACOS",
            "ATAN",
            "ATAN2",
            "COT",
            "DEGREES",
            "RADIANS",
            "PI",
            "RAND",
            "CONV",
            "CRC32",
            "BIT_COUNT",
        ],
    ),
    (
        "text",
        &[
            "CONCAT",
            "CONCAT_WS",
            "LENGTH",
            "CHAR_LENGTH",
            "UPPER",
            "LOWER",
            "UCASE",
            "LCASE",
            "SUBSTRING",
            "SUBSTR",
            "MID",
            "LEFT",
            "RIGHT",
            "LPAD",
            "RPAD",
            "TRIM",
            "LTRIM",
            "RTRIM",
            "REPLACE",
            "REVERSE",
            "REPEAT",
            "SPACE",
            "LOCATE",
            "INSTR",
            "POSITION",
            "ASCII",
            "ORD",
            "CHAR",
            "HEX",
            "UNHEX",
            "BIN",
            "OCT",
            "STRCMP",
            "INSERT",
            "SUBSTRING_INDEX",
            "FIND_IN_SET",
            "FORMAT",
            "MD5",
            "SHA",
            "SHA1",
            "SHA2",
            "TO_BASE64",
            "FROM_BASE64",
            "QUOTE",
            "SOUNDEX",
            "MAKE_SET",
            "EXPORT_SET",
            "INET_ATON",
            "INET_NTOA",
            "UUID",
            "REGEXP_LIKE",
            "REGEXP_REPLACE",
            "REGEXP_SUBSTR",
            "REGEXP_INSTR",
        ],
    ),
    (
        "times",
        &[
            "NOW",
            "CURDATE",
            "CURTIME",
            "SYSDATE",
            "UTC_TIMESTAMP",
            "UTC_DATE",
            "UTC_TIME",
            "YEAR",
            "QUARTER",
            "MONTH",
            "WEEK",
            "YEARWEEK",
            "WEEKOFYEAR",
            "DAY",
            "DAYOFMONTH",
            "DAYOFWEEK",
            "WEEKDAY",
            "DAYOFYEAR",
            "HOUR",
            "MINUTE",
            "SECOND",
            "MICROSECOND",
            "DAYNAME",
            "MONTHNAME",
            "LAST_DAY",
            "MAKEDATE",
            "TO_DAYS",
            "TO_SECONDS",
            "PERIOD_ADD",
            "PERIOD_DIFF",
            "FROM_DAYS",
            "DATE",
            "TIMESTAMP",
            "DATEDIFF",
            "TIMESTAMPDIFF",
            "TIMESTAMPADD",
            "DATE_ADD",
            "DATE_SUB",
            "EXTRACT",
            "DATE_FORMAT",
            "STR_TO_DATE",
            "CONVERT_TZ",
            "UNIX_TIMESTAMP",
            "FROM_UNIXTIME",
            "TIME",
            "TIMEDIFF",
            "ADDTIME",
            "SUBTIME",
            "SEC_TO_TIME",
            "MAKETIME",
            "TIME_FORMAT",
            "TIME_TO_SEC",
        ],
    ),
    (
        "JSON",
        &[
            "JSON_EXTRACT",
            "JSON_VALUE",
            "JSON_UNQUOTE",
            "JSON_QUOTE",
            "JSON_VALID",
            "JSON_TYPE",
            "JSON_LENGTH",
            "JSON_DEPTH",
            "JSON_KEYS",
            "JSON_CONTAINS",
            "JSON_CONTAINS_PATH",
            "JSON_ARRAY",
            "JSON_OBJECT",
            "JSON_ARRAYAGG",
            "JSON_OBJECTAGG",
        ],
    ),
    ("waiting", &["SLEEP"]),
    (
        "aggregates",
        &[
            "COUNT",
            "SUM",
            "AVG",
            "MIN",
            "MAX",
            "STD",
            "STDDEV",
            "STDDEV_POP",
            "VARIANCE",
            "VAR_POP",
            "STDDEV_SAMP",
            "VAR_SAMP",
            "BIT_AND",
            "BIT_OR",
            "BIT_XOR",
            "GROUP_CONCAT",
            "ANY_VALUE",
        ],
    ),
];

/// Functions of ADQL's dialect.
const ADQL: [&str; 59] = [
    "COUNT",
    "SUM",
    "AVG",
    "MIN",
    "MAX",
    "ABS",
    "CEILING",
    "FLOOR",
    "ROUND",
    "TRUNCATE",
    "MOD",
    "SQRT",
    "POWER",
    "EXP",
    "LOG",
    "LOG10",
    "PI",
    "RAND",
    "DEGREES",
    "RADIANS",
    "SIN",
    "COS",
    "TAN",
    "COT",
    "ASIN",
    "ACOS",
    "ATAN",
    "ATAN2",
    "LOWER",
    "UPPER",
    "COALESCE",
    "NULLIF",
    "POINT",
    "CIRCLE",
    "BOX",
    "POLYGON",
    "REGION",
    "CONTAINS",
    "INTERSECTS",
    "DISTANCE",
    "AREA",
    "CENTROID",
    "COORD1",
    "COORD2",
    "COORDSYS",
    "MOC",
    "IN_UNIT",
    "ivo_healpix_index",
    "ivo_healpix_center",
    "ivo_epoch_prop_pos",
    "ivo_geom_transform",
    "ivo_to_jd",
    "ivo_to_mjd",
    "ivo_string_agg",
    "ivo_histogram",
    "ivo_nocasematch",
    "ivo_hasword",
    "ivo_hashlist_has",
    "ivo_interval_overlaps",
];

/// Functions of both dialects: of the sky and of magnitudes, windows, and tables that are functions.
const COMMON: [&str; 37] = [
    "scisql_angSep",
    "scisql_s2PtInCircle",
    "scisql_s2PtInBox",
    "scisql_s2PtInEllipse",
    "scisql_s2PtInCPoly",
    "scisql_s2CPolyToBin",
    "scisql_fluxToAbMag",
    "scisql_abMagToFlux",
    "scisql_fluxToAbMagSigma",
    "scisql_abMagToFluxSigma",
    "scisql_nanojanskyToAbMag",
    "scisql_abMagToNanojansky",
    "scisql_nanojanskyToAbMagSigma",
    "scisql_abMagToNanojanskySigma",
    "scisql_dnToFlux",
    "scisql_dnToAbMag",
    "scisql_fluxToDn",
    "scisql_abMagToDn",
    "scisql_dnToFluxSigma",
    "scisql_dnToAbMagSigma",
    "scisql_fluxToDnSigma",
    "scisql_abMagToDnSigma",
    "qserv_areaspec_circle",
    "qserv_areaspec_box",
    "qserv_areaspec_ellipse",
    "qserv_areaspec_poly",
    "ROW_NUMBER",
    "RANK",
    "LAG",
    "LEAD",
    "nearest",
    "crossmatch",
    "read_csv",
    "read_parquet",
    "read_votable",
    "read_fits",
    "read_arrow",
];

/// The documented functions of a dialect, in the spelling of their documents.
pub fn documented(dialect: Dialect) -> Vec<&'static str> {
    let mut names: Vec<&str> = match dialect {
        Dialect::MySql => MYSQL
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect(),
        Dialect::Adql => ADQL.to_vec(),
    };
    names.extend(COMMON);
    names
}

/// Whether ADQL has a function of this name, in whatever case, and MySQL's dialect has none.
pub(crate) fn is_of_adql_alone(name: &str) -> bool {
    let is_name = |known: &&str| known.eq_ignore_ascii_case(name);
    let of_adql = ADQL.iter().any(is_name);
    of_adql && !documented(Dialect::MySql).iter().any(is_name)
}

/// The same the other way round.
pub(crate) fn is_of_mysql_alone(name: &str) -> bool {
    let is_name = |known: &&str| known.eq_ignore_ascii_case(name);
    let mut of_mysql = MYSQL.iter().flat_map(|(_, names)| *names);
    of_mysql.any(is_name) && !ADQL.iter().any(is_name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/sql.md");

    /// The rows of the table below a heading of the document, up to the next heading.
    fn section(heading: &str) -> &'static str {
        let (_, rest) = DOCUMENT
            .split_once(&format!("\n{heading}\n"))
            .unwrap_or_else(|| panic!("docs/sql.md has no part {heading}"));
        rest.split("\n#").next().unwrap_or(rest)
    }

    /// The words in backticks that begin a call or stand alone, without arguments.
    fn names(text: &str) -> BTreeSet<String> {
        let quoted = text.split('`').skip(1).step_by(2);
        let names = quoted.map(|it| it.split('(').next().unwrap_or(it).trim().to_owned());
        names.filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn the_table_of_mysqls_functions_is_that_of_the_document() {
        let section = section("### Functions");
        for (kind, functions) in MYSQL {
            let row = section
                .lines()
                .find(|line| line.starts_with(&format!("| {kind} |")))
                .unwrap_or_else(|| panic!("docs/sql.md has no functions of the kind {kind}"));
            // Words that the grammar reads, and that are no functions.
            let words = ["CASE", "DISTINCT", "+ INTERVAL", "- INTERVAL"];
            let mut documented = names(row);
            documented.retain(|name| !words.contains(&name.as_str()));
            let known: BTreeSet<String> = functions.iter().map(|&it| it.to_owned()).collect();
            assert_eq!(documented, known, "{kind}");
        }
    }

    #[test]
    fn all_others_are_in_the_document() {
        let text = DOCUMENT.to_ascii_lowercase();
        for name in ADQL.iter().chain(&COMMON) {
            // `..._box` beside `qserv_areaspec_circle`, `their Sigma` beside the function.
            let folded = name.to_ascii_lowercase();
            let shortened = folded
                .replace("qserv_areaspec", "...")
                .replace("scisql_s2ptin", "...");
            let shortened = shortened.trim_end_matches("sigma");
            assert!(
                text.contains(&folded) || text.contains(shortened),
                "docs/sql.md does not have {name}"
            );
        }
    }

    /// A misspelled name got suggestions such as `array_prepend`, which no document has.
    #[test]
    fn all_are_functions_of_the_engine_or_of_the_grammar() {
        use datafusion::execution::FunctionRegistry as _;
        let context = datafusion::prelude::SessionContext::new();
        let mut known = context.udfs();
        known.extend(context.udafs());
        known.extend(context.udwfs());
        let ours = crate::functions::all();
        known.extend(ours.iter().flat_map(|it| {
            let aliases = it.aliases().iter().cloned();
            aliases.chain([it.name().to_owned()])
        }));
        let aggregates = crate::functions::all_aggregates();
        known.extend(aggregates.iter().map(|it| it.name().to_owned()));
        // What the parser, a rewrite or the engine's tables make something else of.
        let rewritten = [
            "curdate",
            "curtime",
            "datediff",
            "date_sub",
            "dayofmonth",
            "extract",
            "group_concat",
            "if",
            "in_unit",
            "isnull",
            "json_arrayagg",
            "json_objectagg",
            "lcase",
            "mod",
            "sha",
            "std",
            "sysdate",
            "timestampadd",
            "ucase",
            "utc_date",
            "utc_time",
            "utc_timestamp",
            "variance",
            "weekofyear",
            "crossmatch",
            "ivo_interval_overlaps",
            "ivo_nocasematch",
            "ivo_string_agg",
            "nearest",
            "qserv_areaspec_box",
            "qserv_areaspec_circle",
            "qserv_areaspec_ellipse",
            "qserv_areaspec_poly",
            "read_csv",
            "read_parquet",
            "read_votable",
            "read_fits",
            "read_arrow",
            "region",
        ];
        known.extend(rewritten.map(str::to_owned));
        let documented = Dialect::ALL.into_iter().flat_map(documented);
        let unknown: BTreeSet<&str> = documented
            .filter(|name| {
                let folded = name.to_ascii_lowercase();
                let spellings = [
                    folded.clone(),
                    format!("adql_{folded}"),
                    format!("mysql_{folded}"),
                ];
                !spellings.iter().any(|spelling| known.contains(spelling))
            })
            .collect();
        assert!(unknown.is_empty(), "there are no functions {unknown:?}");
    }
}
