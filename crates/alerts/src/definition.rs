//! What is known of an alert database: its schema, its layouts, and whether it keeps replica chunks.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{AlertsError, Result};
use crate::layout::{Layout, LayoutColumn};
use crate::rows::{Kept, Layouts};
use crate::schema::AlertSchema;
use crate::statements::{ADD_LAYOUT, Dialect, FORMAT, LAYOUTS, SET_SETTING, SETTINGS, upgrade};
use crate::store::{Connection, Kind, Values};

const FORMAT_SETTING: &str = "format";
const SCHEMA_SETTING: &str = "schema";
const REPLICA_SETTING: &str = "replica_seconds";
const NIGHTS_SETTING: &str = "keep_nights";
const FOLLOWS_SETTING: &str = "follows";

/// What is known of a database.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    pub(crate) schema: Arc<AlertSchema>,
    /// The time span of a replica chunk, if they are kept.
    pub(crate) replica_seconds: Option<i64>,
    /// How many nights rows stay after they are published, unless the metadata say something else. `None` for ever.
    pub(crate) keep_nights: Option<u32>,
    /// Whether its rows are those of another database.
    pub(crate) follows: bool,
    pub(crate) layouts: Arc<Layouts>,
    /// The layout in which rows are stored now.
    current: HashMap<Kept, i64>,
}

impl Definition {
    /// The layout in which rows are stored now, with its number.
    pub(crate) fn layout(&self, kept: Kept) -> Result<(i64, Arc<Layout>)> {
        let number = self.current.get(&kept).copied();
        let layout =
            number.and_then(|number| Some((number, Arc::clone(self.layouts.get(&number)?))));
        layout.ok_or_else(|| AlertsError::Damaged(format!("{} has no layout", kept.name())))
    }

    /// Reads what is known.
    pub(crate) async fn read(name: &str, connection: &mut dyn Connection) -> Result<Self> {
        let settings = connection
            .fetch(SETTINGS, &[], &[Kind::Text, Kind::Text])
            .await?;
        let mut settings = settings.into_iter().map(Values::into_texts);
        let names = settings.next().unwrap_or_default();
        let settings: HashMap<String, String> = names
            .into_iter()
            .zip(settings.next().unwrap_or_default())
            .filter_map(|(name, value)| Some((name?, value?)))
            .collect();
        let format = settings.get(FORMAT_SETTING).cloned().unwrap_or_default();
        if format.parse::<i64>().is_ok_and(|format| format > FORMAT) {
            return Err(AlertsError::Newer {
                name: name.to_owned(),
                found: format,
                known: FORMAT,
            });
        }
        let Some(text) = settings.get(SCHEMA_SETTING) else {
            return Err(AlertsError::Damaged(format!("{name} has no schema")));
        };
        let kinds = [Kind::Int, Kind::Text, Kind::Text];
        let mut found = connection.fetch(LAYOUTS, &[], &kinds).await?.into_iter();
        let numbers = found.next().map(Values::into_ints).unwrap_or_default();
        let tables = found.next().map(Values::into_texts).unwrap_or_default();
        let columns = found.next().map(Values::into_texts).unwrap_or_default();
        let (mut layouts, mut current) = (Layouts::new(), HashMap::new());
        for ((number, table), columns) in numbers.into_iter().zip(tables).zip(columns) {
            let (Some(number), Some(table), Some(columns)) = (number, table, columns) else {
                continue;
            };
            let columns: Vec<LayoutColumn> = serde_json::from_str(&columns)
                .map_err(|error| AlertsError::Damaged(error.to_string()))?;
            layouts.insert(number, Arc::new(Layout::new(columns)));
            if let Some(kept) = Kept::ALL.into_iter().find(|kept| kept.name() == table) {
                // They come in the order of their numbers: the last one counts.
                current.insert(kept, number);
            }
        }
        Ok(Self {
            schema: Arc::new(AlertSchema::parse(text)?),
            replica_seconds: settings
                .get(REPLICA_SETTING)
                .and_then(|seconds| seconds.parse().ok()),
            keep_nights: settings
                .get(NIGHTS_SETTING)
                .and_then(|nights| nights.parse().ok()),
            follows: settings.contains_key(FOLLOWS_SETTING),
            layouts: Arc::new(layouts),
            current,
        })
    }
}

/// The version of the tables, if it can be read.
pub(crate) async fn format_of(connection: &mut dyn Connection) -> Result<Option<i64>> {
    let kinds = [Kind::Text, Kind::Text];
    let mut settings = connection
        .fetch(SETTINGS, &[], &kinds)
        .await?
        .into_iter()
        .map(Values::into_texts);
    let names = settings.next().unwrap_or_default().into_iter();
    let values = settings.next().unwrap_or_default();
    let mut found = names.zip(values);
    let format = found.find(|(name, _)| name.as_deref() == Some(FORMAT_SETTING));
    Ok(format.and_then(|(_, value)| value?.parse().ok()))
}

/// Brings the tables of an older version up to date.
pub(crate) async fn upgrade_tables(
    connection: &mut dyn Connection,
    dialect: Dialect,
) -> Result<()> {
    connection.run("BEGIN").await?;
    // Another process may have done it meanwhile.
    let version = format_of(connection).await?.unwrap_or(FORMAT);
    if let Some(statements) = upgrade(version, dialect) {
        connection.run(&statements).await?;
        let name = Values::texts([FORMAT_SETTING.to_owned()]);
        let value = Values::texts([FORMAT.to_string()]);
        connection.change(SET_SETTING, &[name, value]).await?;
    }
    connection.run("COMMIT").await
}

/// Writes what is known of a new database.
pub(crate) async fn write_new(
    connection: &mut dyn Connection,
    schema: &AlertSchema,
    replica_seconds: Option<i64>,
    keep_nights: Option<u32>,
    follows: bool,
) -> Result<()> {
    let mut settings = vec![(FORMAT_SETTING, FORMAT.to_string())];
    if let Some(seconds) = replica_seconds {
        settings.push((REPLICA_SETTING, seconds.to_string()));
    }
    if let Some(nights) = keep_nights {
        settings.push((NIGHTS_SETTING, nights.to_string()));
    }
    if follows {
        settings.push((FOLLOWS_SETTING, "yes".to_owned()));
    }
    let names = Values::texts(settings.iter().map(|(name, _)| (*name).to_owned()));
    let values = Values::texts(settings.into_iter().map(|(_, value)| value));
    connection.change(SET_SETTING, &[names, values]).await?;
    write_schema(connection, schema, 0).await
}

/// Writes a schema, and its layouts with numbers beyond `last`.
pub(crate) async fn write_schema(
    connection: &mut dyn Connection,
    schema: &AlertSchema,
    last: i64,
) -> Result<()> {
    let name = Values::texts([SCHEMA_SETTING.to_owned()]);
    let text = Values::texts([schema.text().to_owned()]);
    connection.change(SET_SETTING, &[name, text]).await?;
    let mut columns = Vec::new();
    for kept in Kept::ALL {
        let payload = serde_json::to_string(&kept.payload(schema));
        columns.push(payload.map_err(|error| AlertsError::Invalid(error.to_string()))?);
    }
    let numbers = Values::ints((last + 1..).take(Kept::ALL.len()));
    let tables = Values::texts(Kept::ALL.iter().map(|kept| kept.name().to_owned()));
    connection
        .change(ADD_LAYOUT, &[numbers, tables, Values::texts(columns)])
        .await?;
    Ok(())
}
