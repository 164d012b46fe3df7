//! `meridian user group`: groups of users, which have grants and limits in common.

use clap::{Args, Subcommand};
use serde::Serialize;
use tokio::runtime::Runtime;
use users::{Grant, Group, Users, UsersError};

use super::{DirectoryArguments, ListArguments, ListFormat, UserArguments, may_take, reads};
use crate::console::tell;
use crate::failure::Failure;

/// What to do with groups.
#[derive(Subcommand)]
pub enum GroupCommand {
    /// Make a group; `meridian user grant` and `meridian user limit` take its name as that of a user.
    Create(UserArguments),
    /// Remove a group with its grants and limits; its members stay users.
    Remove(UserArguments),
    /// Take users into a group, or out of it; without users, list its members.
    Members(MemberArguments),
    /// List the groups.
    List(ListArguments),
    /// Show a group with its members and grants.
    Show(UserArguments),
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
            Self::Create(it) | Self::Remove(it) | Self::Show(it) => &it.directory,
            Self::Members(it) => &it.group.directory,
            Self::List(it) => &it.directory,
        }
    }
}

pub(super) fn run(runtime: &Runtime, users: &Users, command: &GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Create(it) => {
            runtime.block_on(users.create_group(&it.name))?;
            tell(&format!(
                "the group {0} is made; `meridian user group members {0} --add USER` says who belongs to it\n",
                it.name
            ))
        }
        GroupCommand::Remove(it) => {
            runtime.block_on(users.remove_group(&it.name))?;
            tell(&format!("the group {} is removed\n", it.name))
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
        "group     {}\nmade      {}\nmembers   {}\nmay read  {}\nall rows  {}\nmay take  {}\n",
        group.name,
        catalog::utc_text(group.created.max(0) as u64),
        names(&members),
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
