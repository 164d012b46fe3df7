//! `meridian user group`: groups of users, which have grants and limits in common.

use std::time::SystemTime;

use catalog::{Catalog, Expiry};
use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::runtime::Runtime;
use users::{Grant, Group, Users, UsersError};

use super::{
    DirectoryArguments, ListArguments, ListFormat, SECONDS_OF_A_DAY, UserArguments, may_take, reads,
};
use crate::console::tell;
use crate::failure::Failure;

/// What to do with groups.
#[derive(Subcommand)]
pub enum GroupCommand {
    /// Make a group; `meridian user grant` and `meridian user limit` take its name as that of a user.
    Create(CreateArguments),
    /// Give a group a database of its name, in which its members make, fill, change and drop tables; or take it away.
    Database(DatabaseArguments),
    /// Remove a group with its grants and limits; its members stay users, and the tables of its database stay.
    Remove(UserArguments),
    /// Take users into a group, or out of it; without users, list its members.
    Members(MemberArguments),
    /// List the groups.
    List(ListArguments),
    /// Show a group with its members and grants.
    Show(UserArguments),
}

/// A new group.
#[derive(Args)]
pub struct CreateArguments {
    #[command(flatten)]
    group: UserArguments,
    /// Give the group a database of its name.
    #[arg(long)]
    database: bool,
}

/// Which group has a database.
#[derive(Args)]
pub struct DatabaseArguments {
    #[command(flatten)]
    group: UserArguments,
    /// Let the members have the database of the name that is there already, and change its tables.
    #[arg(long, conflicts_with = "remove")]
    existing: bool,
    /// Take the database away: its tables stay, and administrators alone change them.
    #[arg(long)]
    remove: bool,
}

/// Who is taken into a group, and who out of it.
#[derive(Args)]
pub struct MemberArguments {
    #[command(flatten)]
    group: UserArguments,
    /// A user who shall belong to it; may be given several times.
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    add: Vec<String>,
    /// A user who shall not belong to it any more; may be given several times.
    #[arg(long, value_name = "USER", value_delimiter = ',')]
    remove: Vec<String>,
}

impl GroupCommand {
    pub(super) fn directory(&self) -> &DirectoryArguments {
        match self {
            Self::Create(it) => &it.group.directory,
            Self::Database(it) => &it.group.directory,
            Self::Remove(it) | Self::Show(it) => &it.directory,
            Self::Members(it) => &it.group.directory,
            Self::List(it) => &it.directory,
        }
    }
}

pub(super) fn run(
    runtime: &Runtime,
    users: &Users,
    catalog: &Catalog,
    command: &GroupCommand,
) -> Result<(), Failure> {
    match command {
        GroupCommand::Create(it) => {
            let name = &it.group.name;
            if it.database
                && let Some(taken) = taken_database(runtime, catalog, name)?
            {
                return Err(is_taken(&taken, name));
            }
            runtime.block_on(users.create_group(name, it.database))?;
            let database = match it.database {
                true => format!(" with the database {name}"),
                false => String::new(),
            };
            tell(&format!(
                "the group {name} is made{database}; `meridian user group members {name} --add USER` says who belongs to it\n"
            ))
        }
        GroupCommand::Database(it) => {
            let name = &it.group.name;
            let list = runtime.block_on(users.list())?;
            let has_one = list.group(name).is_some_and(|group| group.has_database);
            if it.remove {
                let left = tables_left(runtime, users, catalog, name)?;
                runtime.block_on(users.set_group_database(name, false))?;
                return tell(&format!("the group {name} has no database{left}\n"));
            }
            if !(has_one || it.existing)
                && list.group(name).is_some()
                && let Some(taken) = taken_database(runtime, catalog, name)?
            {
                return Err(is_taken(&taken, name));
            }
            let kept = match list.group(name) {
                Some(group) if !group.has_database => keep_expired_tables(runtime, catalog, name)?,
                _ => String::new(),
            };
            runtime.block_on(users.set_group_database(name, true))?;
            tell(&format!(
                "the members of {name} change the tables of the database {name}{kept}\n"
            ))
        }
        GroupCommand::Remove(it) => {
            let left = tables_left(runtime, users, catalog, &it.name)?;
            runtime.block_on(users.remove_group(&it.name))?;
            tell(&format!("the group {} is removed{left}\n", it.name))
        }
        GroupCommand::Members(it) => {
            let group = [it.group.name.clone()];
            for (names, belong) in [(&it.add, true), (&it.remove, false)] {
                if !names.is_empty() {
                    runtime.block_on(users.change_members(&group, names, belong))?;
                }
            }
            let list = runtime.block_on(users.list())?;
            let group = list.group(&it.group.name);
            let group = group.ok_or_else(|| no_group(&it.group.name))?;
            let names: String = { group.members.iter() }
                .map(|name| format!("{name}\n"))
                .collect();
            tell(&names)
        }
        GroupCommand::List(it) => list(runtime, users, it.format),
        GroupCommand::Show(it) => {
            let list = runtime.block_on(users.list())?;
            let group = list.group(&it.name);
            tell_of(group.ok_or_else(|| no_group(&it.name))?)
        }
    }
}

/// The database that there is of a name, of the catalogue or of alerts.
pub(super) fn taken_database(
    runtime: &Runtime,
    catalog: &Catalog,
    name: &str,
) -> Result<Option<String>, Failure> {
    if let Some(taken) = runtime.block_on(catalog.database(name))? {
        return Ok(Some(taken.name));
    }
    let folded = catalog::fold_name(name);
    let mut alerts = alerts::list(catalog.data_dir())?.into_iter();
    Ok(alerts.find(|database| catalog::fold_name(database) == folded))
}

fn is_taken(taken: &str, name: &str) -> Failure {
    Failure::new(format!(
        "there is a database {taken} already, and the members of a group of the name could change its tables: choose another name, or make the group without one and give `meridian user group database {name} --existing`"
    ))
}

/// What becomes of the tables of a group that loses its database.
fn tables_left(
    runtime: &Runtime,
    users: &Users,
    catalog: &Catalog,
    name: &str,
) -> Result<String, Failure> {
    let list = runtime.block_on(users.list())?;
    let has_database = list.group(name).is_some_and(|group| group.has_database);
    if !has_database || runtime.block_on(catalog.database(name))?.is_none() {
        return Ok(String::new());
    }
    Ok(match runtime.block_on(catalog.tables(name))?.len() {
        0 => String::new(),
        tables => format!(
            "; its tables ({tables}) stay in the database {name}, which administrators alone change from now on: `meridian drop database --db {name}` removes them"
        ),
    })
}

/// Gives the tables of a database that gets an owner again, who was not warned of them, time before they expire. Returns what to tell of it.
pub(super) fn keep_expired_tables(
    runtime: &Runtime,
    catalog: &Catalog,
    database: &str,
) -> Result<String, Failure> {
    if runtime.block_on(catalog.database(database))?.is_none() {
        return Ok(String::new());
    }
    let now = SystemTime::UNIX_EPOCH.elapsed();
    let expiry = Expiry::not_before(now.map_or(0, |now| now.as_secs()) + Expiry::NOTICE);
    let mut kept = 0;
    for table in runtime.block_on(catalog.tables(database))? {
        let name = &table.spec.name;
        let changed = runtime.block_on(catalog.set_expiry(database, name, expiry.clone()))?;
        kept += u32::from(changed);
    }
    Ok(match kept {
        0 => String::new(),
        _ => format!(
            "; tables that expire within {} days ({kept}) stay for as long: ALTER TABLE ... EXPIRE DEFAULT keeps them longer",
            Expiry::NOTICE / SECONDS_OF_A_DAY
        ),
    })
}

fn no_group(name: &str) -> UsersError {
    UsersError::NoGroup {
        name: name.to_owned(),
    }
}

/// A group as the list has it.
#[derive(Serialize)]
struct GroupRow<'a> {
    name: &'a str,
    created: String,
    members: Vec<&'a str>,
    database: bool,
    read: Vec<String>,
    unreleased: Vec<String>,
    limits: std::collections::BTreeMap<&'static str, u64>,
}

impl<'a> GroupRow<'a> {
    fn of(group: &'a Group) -> Self {
        let limits = group.limits.iter();
        Self {
            name: &group.name,
            created: catalog::utc_text(group.created.max(0) as u64),
            members: group.members.iter().map(String::as_str).collect(),
            database: group.has_database,
            read: Grant::texts(&group.grants),
            unreleased: Grant::texts(&group.unreleased),
            limits: limits.map(|(limit, most)| (limit.name(), most)).collect(),
        }
    }
}

fn list(runtime: &Runtime, users: &Users, format: ListFormat) -> Result<(), Failure> {
    let list = runtime.block_on(users.list())?;
    let groups: Vec<&Group> = list.groups().collect();
    match format {
        ListFormat::Json => {
            let listed: Vec<GroupRow<'_>> = groups.into_iter().map(GroupRow::of).collect();
            tell(&format!("{}\n", serde_json::to_string_pretty(&listed)?))
        }
        ListFormat::Table if groups.is_empty() => tell("there are no groups\n"),
        ListFormat::Table => {
            let width = groups.iter().map(|it| it.name.chars().count()).max();
            let width = width.unwrap_or_default().max("group".len());
            let mut text = format!("{:width$}  members  may read\n", "group");
            for group in groups {
                let (count, read) = (group.members.len(), reads(&group.grants));
                text.push_str(&format!("{:width$}  {count:>7}  {read}\n", group.name));
            }
            tell(&text)
        }
    }
}

/// Tells all of a group.
pub(super) fn tell_of(group: &Group) -> Result<(), Failure> {
    let members: Vec<String> = group.members.iter().cloned().collect();
    let limits = group.limits.iter();
    tell(&format!(
        "group     {}\nmade      {}\nmembers   {}\ndatabase  {}\nmay read  {}\nall rows  {}\nmay take  {}\n",
        group.name,
        catalog::utc_text(group.created.max(0) as u64),
        names(&members),
        if group.has_database {
            &*group.name
        } else {
            "none"
        },
        reads(&group.grants),
        names(&Grant::texts(&group.unreleased)),
        may_take(limits.map(|(limit, most)| (limit.name(), most)))
    ))
}

/// Names in a row, or that there are none.
pub(super) fn names(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}
