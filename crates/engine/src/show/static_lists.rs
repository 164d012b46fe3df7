//! Lists that are the same always.

use sql::connection::{self, CharacterSet};
use sql::mysql::StaticList;

use super::{Rows, some};
use crate::information_schema::{CHARACTER_SET, COLLATION};

/// What one of these lists has: headings, and values row by row.
type List = (&'static [&'static str], &'static [&'static [&'static str]]);

const ENGINES: List = (
    &[
        "Engine",
        "Support",
        "Comment",
        "Transactions",
        "XA",
        "Savepoints",
    ],
    &[&[
        "Meridian",
        "DEFAULT",
        "Chunks of the sky, compressed column by column",
        "NO",
        "NO",
        "NO",
    ]],
);

const COLLATIONS: List = (
    &[
        "Collation",
        "Charset",
        "Id#",
        "Default",
        "Compiled",
        "Sortlen#",
        "Pad_attribute",
    ],
    &[
        &[
            COLLATION,
            CHARACTER_SET,
            "1070",
            "Yes",
            "Yes",
            "1",
            "NO PAD",
        ],
        &["utf8mb4_bin", CHARACTER_SET, "46", "", "Yes", "1", "NO PAD"],
    ],
);

const CHARACTER_SETS: List = (
    &["Charset", "Description", "Default collation", "Maxlen#"],
    &[&[CHARACTER_SET, "UTF-8 Unicode", COLLATION, "4"]],
);

const PLUGINS: List = (
    &["Name", "Status", "Type", "Library", "License"],
    &[&["Meridian", "ACTIVE", "STORAGE ENGINE", "", "Apache-2.0"]],
);

const PRIVILEGES: List = (
    &["Privilege", "Context", "Comment"],
    &[&["Select", "Tables", "To retrieve rows from table"]],
);

const ERROR_COUNT: List = (&["@@session.error_count#"], &[&["0"]]);

const ERRORS: List = (&["Level", "Code#", "Message"], &[]);

const OPEN_TABLES: List = (&["Database", "Table", "In_use#", "Name_locked#"], &[]);

const TRIGGERS: List = (
    &[
        "Trigger",
        "Event",
        "Table",
        "Statement",
        "Timing",
        "Created",
        "sql_mode",
        "Definer",
        "character_set_client",
        "collation_connection",
        "Database Collation",
    ],
    &[],
);

const ROUTINES: List = (
    &[
        "Db",
        "Name",
        "Type",
        "Definer",
        "Modified",
        "Created",
        "Security_type",
        "Comment",
        "character_set_client",
        "collation_connection",
        "Database Collation",
    ],
    &[],
);

const EVENTS: List = (
    &[
        "Db",
        "Name",
        "Definer",
        "Time zone",
        "Type",
        "Execute at",
        "Interval value",
        "Interval field",
        "Starts",
        "Ends",
        "Status",
        "Originator#",
        "character_set_client",
        "collation_connection",
        "Database Collation",
    ],
    &[],
);

pub(super) fn rows(list: StaticList) -> Rows {
    let (headings, rows) = match list {
        StaticList::CharacterSets => CHARACTER_SETS,
        StaticList::Collations => COLLATIONS,
        StaticList::Engines => ENGINES,
        StaticList::Errors => ERRORS,
        StaticList::ErrorCount => ERROR_COUNT,
        StaticList::Events => EVENTS,
        StaticList::OpenTables => OPEN_TABLES,
        StaticList::Plugins => PLUGINS,
        StaticList::Privileges => PRIVILEGES,
        StaticList::Routines => ROUTINES,
        StaticList::Triggers => TRIGGERS,
    };
    let rows = rows
        .iter()
        .map(|row| row.iter().map(|value| some(*value)).collect());
    Rows::new(headings, rows.chain(converted(list)).collect())
}

/// The rows of the character sets that clients may speak besides UTF-8.
fn converted(list: StaticList) -> Vec<Vec<Option<String>>> {
    let row = |set: &CharacterSet| {
        let number = set.number.to_string();
        match list {
            StaticList::CharacterSets => vec![set.name, set.description, set.collation, "1"],
            _ => vec![
                set.collation,
                set.name,
                &number,
                "Yes",
                "Yes",
                "1",
                "NO PAD",
            ],
        }
        .into_iter()
        .map(some)
        .collect()
    };
    match list {
        StaticList::CharacterSets | StaticList::Collations => {
            let sets = connection::CHARACTER_SETS.iter();
            sets.map(row).collect()
        }
        _ => vec![],
    }
}
