//! System variables: MySQL's names for settings, what they are here, and which of them a connection may change.
//!
//! Clients set many of them by themselves. A setting that changes no result is stored; one that would change a result and is not
//! implemented is rejected, so that no client gets another result than it expects.
//!
//! Names and usual values: *MySQL 8.0 Reference Manual*, 5.1.8 "Server System Variables"; `tx_*` as older clients call them.

use std::collections::BTreeMap;

use self::DefaultValue::{Number as N, Text as T};
use super::{CHARACTER_SETS, CharacterSet, Connection, SERVER_VERSION};
use crate::as_of::{self, AS_OF_VARIABLE};
use crate::error::suggestion;
use crate::{ErrorCode, SqlError};

/// The value of a system variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableValue {
    /// None at all.
    Null,
    /// A number; of a switch 0 or 1.
    Number(u64),
    /// Text.
    Text(String),
}

impl VariableValue {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Null | Self::Number(_) => "",
        }
    }
}

/// The default value of a variable.
#[derive(Debug, Clone, Copy)]
enum DefaultValue {
    Number(u64),
    Text(&'static str),
}

/// Which values a connection may give a variable.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// None: it says what is so.
    Fixed,
    /// 0 and 1, ON and OFF.
    Switch,
    /// Any number.
    Number,
    /// Any text.
    Text,
    /// The default value alone: any other would change results.
    DefaultValue,
    /// Names of UTF-8, `binary`, and the sets that are converted.
    CharacterSet,
    /// Collations of these.
    Collation,
    /// Names of UTC.
    TimeZone,
    /// Modes that leave the language as it is.
    Modes,
    /// How much transactions see of each other, where nothing changes.
    Isolation,
    /// A time that is over.
    AsOf,
}

struct Variable {
    name: &'static str,
    usual: DefaultValue,
    rule: Rule,
}

const fn fixed(name: &'static str, usual: DefaultValue) -> Variable {
    Variable {
        name,
        usual,
        rule: Rule::Fixed,
    }
}

const fn switch(name: &'static str, on: u64) -> Variable {
    Variable {
        name,
        usual: DefaultValue::Number(on),
        rule: Rule::Switch,
    }
}

const fn number(name: &'static str, usual: u64) -> Variable {
    Variable {
        name,
        usual: DefaultValue::Number(usual),
        rule: Rule::Number,
    }
}

const fn text(name: &'static str, usual: &'static str, rule: Rule) -> Variable {
    Variable {
        name,
        usual: DefaultValue::Text(usual),
        rule,
    }
}

const CHARACTER_SET: &str = "utf8mb4";
const COLLATION: &str = "utf8mb4_bin";
const ISOLATION: &str = "REPEATABLE-READ";

/// All of them, by name.
const VARIABLES: [Variable; 112] = [
    number("auto_increment_increment", 1),
    number("auto_increment_offset", 1),
    switch("autocommit", 1),
    switch("big_tables", 0),
    number("bulk_insert_buffer_size", 8_388_608),
    text("character_set_client", CHARACTER_SET, Rule::CharacterSet),
    text(
        "character_set_connection",
        CHARACTER_SET,
        Rule::CharacterSet,
    ),
    text("character_set_database", CHARACTER_SET, Rule::CharacterSet),
    text("character_set_filesystem", "binary", Rule::CharacterSet),
    text("character_set_results", CHARACTER_SET, Rule::CharacterSet),
    text("character_set_server", CHARACTER_SET, Rule::CharacterSet),
    fixed("character_set_system", T("utf8mb3")),
    text("collation_connection", COLLATION, Rule::Collation),
    text("collation_database", COLLATION, Rule::Collation),
    text("collation_server", COLLATION, Rule::Collation),
    number("connect_timeout", 10),
    number("cte_max_recursion_depth", 1000),
    text("default_collation_for_utf8mb4", COLLATION, Rule::Collation),
    text("default_storage_engine", "Meridian", Rule::Text),
    text("default_tmp_storage_engine", "Meridian", Rule::Text),
    Variable {
        name: "default_week_format",
        usual: N(0),
        rule: Rule::DefaultValue,
    },
    number("div_precision_increment", 4),
    number("eq_range_index_dive_limit", 200),
    fixed("error_count", N(0)),
    switch("explicit_defaults_for_timestamp", 1),
    switch("foreign_key_checks", 1),
    number("group_concat_max_len", 4_294_967_295),
    fixed("have_openssl", T("DISABLED")),
    fixed("have_profiling", T("NO")),
    fixed("have_query_cache", T("NO")),
    fixed("have_ssl", T("DISABLED")),
    fixed("hostname", T("localhost")),
    fixed("identity", N(0)),
    number("information_schema_stats_expiry", 0),
    fixed("init_connect", T("")),
    number("innodb_lock_wait_timeout", 50),
    number("insert_id", 0),
    number("interactive_timeout", 28_800),
    number("join_buffer_size", 262_144),
    switch("keep_files_on_create", 0),
    fixed("last_insert_id", N(0)),
    text("lc_messages", "en_US", Rule::Text),
    text("lc_time_names", "en_US", Rule::DefaultValue),
    fixed("license", T("Apache-2.0")),
    number("lock_wait_timeout", 31_536_000),
    fixed("log_bin", N(0)),
    number("long_query_time", 10),
    switch("low_priority_updates", 0),
    fixed("lower_case_file_system", N(0)),
    // Names keep their spelling and are compared without regard to case.
    fixed("lower_case_table_names", N(2)),
    fixed("max_allowed_packet", N(67_108_864)),
    fixed("max_connections", N(1)),
    number("max_error_count", 1024),
    number("max_execution_time", 0),
    number("max_heap_table_size", 16_777_216),
    number("max_join_size", u64::MAX),
    number("max_length_for_sort_data", 4096),
    fixed("max_prepared_stmt_count", N(16_382)),
    number("max_sort_length", 1024),
    fixed("max_user_connections", N(0)),
    text(AS_OF_VARIABLE, "", Rule::AsOf),
    number("min_examined_row_limit", 0),
    fixed("mysql_native_password", N(0)),
    fixed("net_buffer_length", N(16_384)),
    number("net_read_timeout", 30),
    number("net_retry_count", 10),
    number("net_write_timeout", 600),
    number("optimizer_prune_level", 1),
    number("optimizer_search_depth", 62),
    text("optimizer_switch", "", Rule::Text),
    fixed("performance_schema", N(0)),
    fixed("port", N(0)),
    switch("profiling", 0),
    number("profiling_history_size", 15),
    fixed("protocol_version", N(10)),
    fixed("pseudo_thread_id", N(0)),
    number("read_buffer_size", 131_072),
    fixed("read_only", N(1)),
    number("read_rnd_buffer_size", 262_144),
    fixed("server_id", N(1)),
    text("session_track_gtids", "OFF", Rule::Text),
    switch("session_track_schema", 0),
    switch("session_track_state_change", 0),
    text("session_track_system_variables", "", Rule::Text),
    text("session_track_transaction_info", "OFF", Rule::Text),
    fixed("socket", T("")),
    number("sort_buffer_size", 262_144),
    Variable {
        name: "sql_auto_is_null",
        usual: N(0),
        rule: Rule::DefaultValue,
    },
    switch("sql_big_selects", 1),
    switch("sql_buffer_result", 0),
    switch("sql_log_bin", 0),
    text("sql_mode", "", Rule::Modes),
    switch("sql_notes", 1),
    switch("sql_quote_show_create", 1),
    switch("sql_safe_updates", 0),
    number("sql_select_limit", u64::MAX),
    switch("sql_warnings", 0),
    fixed("super_read_only", N(1)),
    fixed("system_time_zone", T("UTC")),
    text("time_zone", "+00:00", Rule::TimeZone),
    number("tmp_table_size", 16_777_216),
    text("transaction_isolation", ISOLATION, Rule::Isolation),
    switch("transaction_read_only", 0),
    text("tx_isolation", ISOLATION, Rule::Isolation),
    switch("tx_read_only", 0),
    switch("unique_checks", 1),
    fixed("version", T(SERVER_VERSION)),
    fixed("version_comment", T("Meridian")),
    fixed("version_compile_machine", T(std::env::consts::ARCH)),
    fixed("version_compile_os", T(std::env::consts::OS)),
    number("wait_timeout", 28_800),
    fixed("warning_count", N(0)),
];

/// Modes of `sql_mode` by which the same text would mean something else.
const OTHER_LANGUAGE: [&str; 9] = [
    "ANSI",
    "ANSI_QUOTES",
    "DB2",
    "HIGH_NOT_PRECEDENCE",
    "MAXDB",
    "MSSQL",
    "NO_BACKSLASH_ESCAPES",
    "ORACLE",
    "PIPES_AS_CONCAT",
];

const UTC: [&str; 8] = [
    "SYSTEM", "+00:00", "-00:00", "UTC", "GMT", "Etc/UTC", "Etc/GMT", "Zulu",
];

const ISOLATIONS: [&str; 4] = [
    ISOLATION,
    "READ-COMMITTED",
    "READ-UNCOMMITTED",
    "SERIALIZABLE",
];

impl DefaultValue {
    fn value(self) -> VariableValue {
        match self {
            Self::Number(number) => VariableValue::Number(number),
            Self::Text(text) => VariableValue::Text(text.to_owned()),
        }
    }
}

impl Variable {
    fn find(name: &str) -> Result<&'static Self, SqlError> {
        let found = VARIABLES
            .iter()
            .find(|known| known.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let names: Vec<String> = VARIABLES.iter().map(|it| it.name.to_owned()).collect();
            let hint = suggestion(name, &names)
                .unwrap_or_else(|| "SHOW VARIABLES lists those that there are".to_owned());
            SqlError::new(format!("there is no system variable {name}; {hint}"))
                .with_code(ErrorCode::NO_VARIABLE)
        })
    }

    /// The value that a connection gives it, as it is kept.
    fn taken(&self, value: VariableValue) -> Result<VariableValue, SqlError> {
        use VariableValue::{Null, Number, Text};
        let kept = match (self.rule, &value) {
            (Rule::Fixed, _) => {
                let sentence = format!("{} says what is so: it cannot be set", self.name);
                return Err(SqlError::new(sentence).with_code(ErrorCode::FIXED_VARIABLE));
            }
            (Rule::Switch, Number(0 | 1)) => Some(value.clone()),
            (Rule::Switch, Text(text)) => switched(text).map(Number),
            (Rule::Number, Number(_)) => Some(value.clone()),
            (Rule::Number, Text(text)) => text.parse().ok().map(Number),
            (Rule::Text, Text(_)) => Some(value.clone()),
            (Rule::Text, Number(number)) => Some(Text(number.to_string())),
            (Rule::DefaultValue, _) => self.usual_if_it_is(&value),
            (Rule::CharacterSet, Null) => Some(Null),
            (Rule::CharacterSet, Text(text)) => Some(Text(character_set(text)?)),
            (Rule::Collation, Text(text)) => Some(Text(collation(text)?)),
            (Rule::TimeZone, Text(text)) => Some(Text(time_zone(text)?)),
            (Rule::AsOf, Text(text)) => {
                as_of::time_of_variable(text)?;
                Some(Text(text.trim().to_owned()))
            }
            (Rule::Modes, Text(text)) => Some(Text(modes(text)?)),
            (Rule::Modes, Number(0)) => Some(Text(String::new())),
            (Rule::Isolation, Text(text)) => {
                let known = ISOLATIONS.iter().find(|it| it.eq_ignore_ascii_case(text));
                known.map(|known| Text((*known).to_owned()))
            }
            _ => None,
        };
        kept.ok_or_else(|| {
            let sentence = format!("{} cannot be set to {}", self.name, shown(&value));
            SqlError::new(sentence).with_code(ErrorCode::WRONG_VARIABLE_VALUE)
        })
    }

    fn usual_if_it_is(&self, value: &VariableValue) -> Option<VariableValue> {
        let usual = self.usual.value();
        let same = match (&usual, value) {
            (VariableValue::Number(usual), VariableValue::Text(text)) => {
                text == &usual.to_string() || switched(text) == Some(*usual)
            }
            (VariableValue::Text(usual), VariableValue::Text(text)) => {
                usual.eq_ignore_ascii_case(text)
            }
            (usual, value) => usual == value,
        };
        same.then_some(usual)
    }
}

fn switched(text: &str) -> Option<u64> {
    match text.to_ascii_uppercase().as_str() {
        "ON" | "TRUE" | "1" => Some(1),
        "OFF" | "FALSE" | "0" => Some(0),
        _ => None,
    }
}

fn shown(value: &VariableValue) -> String {
    match value {
        VariableValue::Null => "NULL".to_owned(),
        VariableValue::Number(number) => number.to_string(),
        VariableValue::Text(text) => format!("'{text}'"),
    }
}

fn character_set(name: &str) -> Result<String, SqlError> {
    let folded = name.to_ascii_lowercase();
    if ["utf8mb4", "utf8mb3", "utf8", "binary"].contains(&folded.as_str())
        || CharacterSet::named(&folded).is_some()
    {
        return Ok(folded);
    }
    let converted: Vec<&str> = CHARACTER_SETS.iter().map(|set| set.name).collect();
    let sentence = format!(
        "there is no character set {name} here: SET NAMES utf8mb4, or one of {}",
        converted.join(", ")
    );
    Err(SqlError::new(sentence).with_code(ErrorCode::UNKNOWN_CHARACTER_SET))
}

fn collation(name: &str) -> Result<String, SqlError> {
    let folded = name.to_ascii_lowercase();
    let set = folded.split('_').next().unwrap_or_default();
    if folded.starts_with("utf8") || folded == "binary" || CharacterSet::named(set).is_some() {
        return Ok(folded);
    }
    let sentence = format!("there is no collation {name}; text is compared byte by byte here");
    Err(SqlError::new(sentence).with_code(ErrorCode::UNKNOWN_COLLATION))
}

fn time_zone(name: &str) -> Result<String, SqlError> {
    match UTC.iter().find(|utc| utc.eq_ignore_ascii_case(name)) {
        Some(utc) => Ok((*utc).to_owned()),
        None => Err(SqlError::new(format!(
            "times are UTC here, not of the zone {name}: SET time_zone = '+00:00'"
        ))
        .with_code(ErrorCode::UNKNOWN_TIME_ZONE)),
    }
}

fn modes(text: &str) -> Result<String, SqlError> {
    let folded = text.to_ascii_uppercase();
    let other = folded
        .split(',')
        .map(str::trim)
        .find(|mode| OTHER_LANGUAGE.contains(mode));
    match other {
        None => Ok(folded),
        Some(mode) => Err(SqlError::new(format!(
            "sql_mode cannot have {mode}: statements would mean something else, which is not built"
        ))
        .with_code(ErrorCode::WRONG_VARIABLE_VALUE)),
    }
}

/// The system variables of a connection.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    changed: BTreeMap<&'static str, VariableValue>,
}

impl Variables {
    /// Gives a variable a value; its usual one without a value.
    ///
    /// # Errors
    /// There is none of the name, or it cannot have the value.
    pub fn set(&mut self, name: &str, value: Option<VariableValue>) -> Result<(), SqlError> {
        let variable = Variable::find(name)?;
        match value {
            None if matches!(variable.rule, Rule::Fixed) => {
                variable.taken(VariableValue::Null)?;
            }
            None => drop(self.changed.remove(variable.name)),
            Some(value) => {
                let value = variable.taken(value)?;
                self.changed.insert(variable.name, value);
            }
        }
        Ok(())
    }

    /// Whether there is a variable of the name.
    ///
    /// # Errors
    /// There is none.
    pub fn check(name: &str) -> Result<(), SqlError> {
        Variable::find(name).map(drop)
    }

    /// `SET NAMES`: the character set in which the client writes and reads.
    ///
    /// # Errors
    /// There is none of the name, or the collation is of another one.
    pub fn set_names(&mut self, set: Option<&str>, collate: Option<&str>) -> Result<(), SqlError> {
        let given = |text: &str| Some(VariableValue::Text(text.to_owned()));
        let converted = set.and_then(CharacterSet::named);
        if let (Some(set), Some(collate)) = (set, collate)
            && converted.is_some()
            && !collate
                .to_ascii_lowercase()
                .starts_with(&format!("{}_", set.to_ascii_lowercase()))
        {
            let sentence = format!("{collate} is no collation of {set}");
            return Err(SqlError::new(sentence).with_code(ErrorCode::WRONG_COLLATION));
        }
        for name in [
            "character_set_client",
            "character_set_connection",
            "character_set_results",
        ] {
            self.set(name, set.and_then(given))?;
        }
        let collate = collate.or(converted.map(|set| set.collation));
        self.set("collation_connection", collate.and_then(given))
    }

    /// The character set that a client names in its handshake, by the number of a collation; UTF-8 if it is none that is converted.
    pub fn set_names_by_number(&mut self, collation: u8) {
        let set = CharacterSet::of_collation(collation).map(|set| set.name);
        // Each set of the list is one that can be set.
        let _ = self.set_names(set, None);
    }

    /// The character set of what the client sends, unless it is UTF-8.
    pub fn client_character_set(&self) -> Option<&'static CharacterSet> {
        self.own_character_set("character_set_client")
    }

    /// The character set of what the client receives, unless it is UTF-8.
    pub fn results_character_set(&self) -> Option<&'static CharacterSet> {
        self.own_character_set("character_set_results")
    }

    fn own_character_set(&self, name: &str) -> Option<&'static CharacterSet> {
        match self.changed.get(name)? {
            VariableValue::Text(set) => CharacterSet::named(set),
            _ => None,
        }
    }

    fn own(&self, variable: &Variable) -> VariableValue {
        let changed = self.changed.get(variable.name).cloned();
        changed.unwrap_or_else(|| variable.usual.value())
    }

    pub(super) fn own_number(&self, name: &str) -> u64 {
        match Variable::find(name).map(|variable| self.own(variable)) {
            Ok(VariableValue::Number(number)) => number,
            _ => 0,
        }
    }

    /// The rows that a SELECT without a LIMIT may give (`sql_select_limit`).
    pub fn row_limit(&self) -> Option<u64> {
        let rows = self.own_number("sql_select_limit");
        (rows != u64::MAX).then_some(rows)
    }

    /// The time, in microseconds since 1970, of whose state published data are read (`meridian_as_of`).
    pub fn as_of(&self) -> Option<i64> {
        match self.changed.get(AS_OF_VARIABLE)? {
            VariableValue::Text(text) => as_of::time_of(text).ok().flatten(),
            _ => None,
        }
    }

    /// Whether statements may have other rows than without these variables, so that plans of others do not stand for theirs.
    pub fn change_results(&self) -> bool {
        self.row_limit().is_some() || self.as_of().is_some() || self.change_statements()
    }

    /// Whether each statement stands for itself, which is remembered and changes nothing (`autocommit`).
    pub fn autocommit(&self) -> bool {
        self.own_number("autocommit") != 0
    }

    /// The milliseconds that a statement may take (`max_execution_time`).
    pub fn milliseconds_of_a_statement(&self) -> Option<u64> {
        let limit = self.own_number("max_execution_time");
        (limit > 0).then_some(limit)
    }

    /// The seconds in which a client may say nothing (`wait_timeout`).
    pub fn idle_seconds(&self) -> u64 {
        self.own_number("wait_timeout").max(1)
    }

    /// The seconds in which a client that has begun to say something may not go on (`net_read_timeout`).
    pub fn read_seconds(&self) -> u64 {
        self.own_number("net_read_timeout").max(1)
    }

    /// The seconds in which a client may not read on (`net_write_timeout`).
    pub fn write_seconds(&self) -> u64 {
        self.own_number("net_write_timeout").max(1)
    }
}

impl Connection {
    /// The value of a system variable, or that of all connections.
    ///
    /// # Errors
    /// There is none of the name.
    pub fn variable(&self, name: &str, global: bool) -> Result<VariableValue, SqlError> {
        let variable = Variable::find(name)?;
        match variable.name {
            "pseudo_thread_id" => return Ok(VariableValue::Number(self.id.into())),
            "warning_count" => return Ok(VariableValue::Number(self.warnings.len() as u64)),
            _ => {}
        }
        if let Some(value) = self.server_info.variable(variable.name) {
            return Ok(value);
        }
        Ok(match global {
            true => variable.usual.value(),
            false => self.variables.own(variable),
        })
    }

    /// All system variables with their values as SHOW VARIABLES writes them.
    pub fn all_variables(&self, global: bool) -> Vec<(&'static str, String)> {
        let row = |variable: &'static Variable| {
            let value = self.variable(variable.name, global);
            let text = match value.unwrap_or(VariableValue::Null) {
                VariableValue::Number(on) if is_switch(variable) => {
                    if on == 1 { "ON" } else { "OFF" }.to_owned()
                }
                VariableValue::Number(number) => number.to_string(),
                other => other.text().to_owned(),
            };
            (variable.name, text)
        };
        VARIABLES.iter().map(row).collect()
    }
}

/// Whether a variable is shown as ON or OFF.
fn is_switch(variable: &Variable) -> bool {
    const FIXED_SWITCHES: [&str; 7] = [
        "log_bin",
        "lower_case_file_system",
        "mysql_native_password",
        "performance_schema",
        "read_only",
        "sql_auto_is_null",
        "super_read_only",
    ];
    matches!(variable.rule, Rule::Switch) || FIXED_SWITCHES.contains(&variable.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<VariableValue> {
        Some(VariableValue::Text(text.to_owned()))
    }

    #[test]
    fn the_names_are_in_order_and_stand_once() {
        let names: Vec<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
        assert!(names.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn what_changes_no_answer_is_taken() {
        let mut variables = Variables::default();
        for (name, value) in [
            ("AUTOCOMMIT", text("off")),
            ("sql_mode", text("STRICT_TRANS_TABLES,no_zero_date")),
            ("time_zone", text("utc")),
            ("character_set_results", Some(VariableValue::Null)),
            ("sql_select_limit", Some(VariableValue::Number(10))),
            ("net_write_timeout", text("60")),
            ("lc_time_names", text("en_us")),
            ("tx_isolation", text("read-committed")),
        ] {
            variables.set(name, value).unwrap();
        }
        assert_eq!(variables.row_limit(), Some(10));
        variables.set("sql_select_limit", None).unwrap();
        assert_eq!(variables.row_limit(), None);
        assert_eq!(variables.write_seconds(), 60);
        assert_eq!(variables.read_seconds(), 30);
        assert!(!variables.autocommit() && Variables::default().autocommit());
        let connection = Connection {
            variables,
            ..Connection::alone(None)
        };
        let shown = connection.all_variables(false);
        assert!(shown.contains(&("autocommit", "OFF".to_owned())));
        assert!(
            connection
                .all_variables(true)
                .contains(&("autocommit", "ON".to_owned()))
        );
        assert!(shown.contains(&("sql_mode", "STRICT_TRANS_TABLES,NO_ZERO_DATE".to_owned())));
    }

    #[test]
    fn the_names_of_a_connection_are_a_character_set() {
        let mut variables = Variables::default();
        assert!(variables.client_character_set().is_none());
        variables.set_names(Some("LATIN1"), None).unwrap();
        let named = |set: Option<&CharacterSet>| set.map(|set| set.name);
        assert_eq!(named(variables.client_character_set()), Some("latin1"));
        assert_eq!(named(variables.results_character_set()), Some("latin1"));
        let connection = Connection {
            variables: variables.clone(),
            ..Connection::alone(None)
        };
        let collation = connection.variable("collation_connection", false).unwrap();
        assert_eq!(collation.text(), "latin1_swedish_ci");
        let error = variables.set_names(Some("latin1"), Some("utf8mb4_bin"));
        assert_eq!(error.unwrap_err().code().number, 1253);
        variables
            .set("character_set_results", Some(VariableValue::Null))
            .unwrap();
        assert!(variables.results_character_set().is_none());
        variables.set_names(Some("utf8mb4"), None).unwrap();
        assert!(variables.client_character_set().is_none());
        variables.set_names_by_number(9);
        assert_eq!(named(variables.client_character_set()), Some("latin2"));
        variables.set_names_by_number(45);
        assert!(variables.client_character_set().is_none());
    }

    #[test]
    fn what_would_change_an_answer_is_rejected() {
        let mut variables = Variables::default();
        for (name, value, number) in [
            ("sql_mode", text("ansi_quotes"), 1231),
            ("sql_mode", text("STRICT_ALL_TABLES, PIPES_AS_CONCAT"), 1231),
            ("time_zone", text("+01:00"), 1298),
            ("character_set_results", text("ucs2"), 1115),
            ("collation_connection", text("sjis_bin"), 1273),
            ("lc_time_names", text("de_DE"), 1231),
            ("version", text("5"), 1238),
            ("version", None, 1238),
            ("autocommit", text("maybe"), 1231),
            ("wait_timeout", text("long"), 1231),
            ("wait_timeuot", text("1"), 1193),
        ] {
            let error = variables.set(name, value).unwrap_err();
            assert_eq!(error.code().number, number, "{error}");
        }
    }
}
