//! `meridian user`: who may log in to a server of a data directory, and what they may read.

mod grant_names;
mod groups;
mod passwords;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use catalog::Catalog;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tokio::runtime::Runtime;
use users::{Grant, Limit, Limits, PUBLIC, User, Users, is_public};

use self::grant_names::GrantName;
use self::groups::{GroupCommand, keep_expired_tables, taken_database};
use self::passwords::PasswordArguments;
use crate::console::{remark, tell};
use crate::failure::Failure;

const SECONDS_OF_A_DAY: u64 = 86_400;

/// What to do.
#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user. From the first one on, everybody has to log in.
    ///
    /// The user called anonymous, without a password, is whoever does not log in.
    Add(AddArguments),
    /// Give a user another password.
    Passwd(PasswordArguments),
    /// Remove a user with all grants and tokens.
    Remove(UserArguments),
    /// Make and remove groups of users, and say who belongs to them.
    #[command(subcommand)]
    Group(GroupCommand),
    /// Let a user, a group, or everybody (PUBLIC), read a database, a table, or some of its columns.
    Grant(GrantArguments),
    /// Take a grant back.
    Revoke(GrantArguments),
    /// Set how much a user may take, or each member of a group, or everybody; without a limit, show what is set.
    Limit(LimitArguments),
    /// Make a token, by which programs log in over HTTP instead of with a password, and print it.
    Token(TokenArguments),
    /// List the users.
    List(ListArguments),
    /// Show a user or a group with the grants.
    Show(UserArguments),
}

/// Which user of which data directory.
#[derive(Args)]
pub struct UserArguments {
    /// The user's name.
    name: String,
    #[command(flatten)]
    directory: DirectoryArguments,
}

/// Which data directory.
#[derive(Args)]
pub struct DirectoryArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
}

/// A new user.
#[derive(Args)]
pub struct AddArguments {
    #[command(flatten)]
    password: PasswordArguments,
    /// Let the user read everything, and see and end everybody's queries.
    #[arg(long)]
    admin: bool,
    /// Let the user have the database of their name that is there already, and change its tables.
    #[arg(long)]
    own_database: bool,
}

/// What is granted or taken back.
#[derive(Args)]
pub struct GrantArguments {
    #[command(flatten)]
    user: UserArguments,
    /// The right to read a database, one table of it, or some columns of a table; may be given several times.
    #[arg(
        long,
        value_name = "DB[.TABLE[(COLUMN,...)]]",
        required_unless_present = "unreleased"
    )]
    read: Vec<GrantName>,
    /// The right to see all rows of a table, or of the tables of a database, where `meridian release` releases some; it is none to read the
    /// table. May be given several times.
    #[arg(long, value_name = "DB[.TABLE]")]
    unreleased: Vec<GrantName>,
}

/// Whose limits are set, and to what. `none` takes a limit away.
#[derive(Args)]
pub struct LimitArguments {
    /// The name of the user or the group.
    #[arg(required_unless_present = "everybody", conflicts_with = "everybody")]
    name: Option<String>,
    /// Set the limits of everybody who has none of their own. They do not count for administrators.
    #[arg(long)]
    everybody: bool,
    #[command(flatten)]
    directory: DirectoryArguments,
    /// MySQL connections at a time.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    connections: Option<LimitValue>,
    /// Queries that run at a time while their clients wait.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    queries: Option<LimitValue>,
    /// Those of them that are interactive: they touch up to four chunks.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    interactive: Option<LimitValue>,
    /// Those of them that are scans: they touch more chunks.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    scans: Option<LimitValue>,
    /// Submitted queries that wait or run at a time.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    submitted: Option<LimitValue>,
    /// Seconds that a query may take.
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    seconds: Option<LimitValue>,
    /// Rows of a result.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    rows: Option<LimitValue>,
    /// HTTP requests in a minute.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    requests: Option<LimitValue>,
    /// Bytes of the tables in the user's own database, as in 20GB.
    #[arg(long, value_name = "SIZE", value_parser = stored_size)]
    stored: Option<LimitValue>,
    /// Bytes of the tables in the database of the group, as in 500GB; with --everybody, of each group that has no such limit of its own.
    #[arg(long, value_name = "SIZE", value_parser = stored_size)]
    group_stored: Option<LimitValue>,
    /// Seconds of processor time in a day of UTC.
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    cpu: Option<LimitValue>,
    /// Bytes of a result as they are sent, as in 2GB.
    #[arg(long, value_name = "SIZE", value_parser = stored_size)]
    bytes: Option<LimitValue>,
    /// Bytes of a file or a table that is sent, as in 50MB.
    #[arg(long, value_name = "SIZE", value_parser = stored_size)]
    upload: Option<LimitValue>,
    /// Days for which a table of the user's own is kept.
    #[arg(long, value_name = "DAYS", value_parser = lifetime)]
    lifetime: Option<LimitValue>,
}

/// A limit, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LimitValue(Option<u64>);

impl FromStr for LimitValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("none") {
            return Ok(Self(None));
        }
        match text.parse::<i64>() {
            Ok(number) if number >= 0 => Ok(Self(Some(number.unsigned_abs()))),
            _ => Err("a limit is a whole number from 0 on, or none".to_owned()),
        }
    }
}

fn stored_size(text: &str) -> Result<LimitValue, String> {
    match text.eq_ignore_ascii_case("none") {
        true => Ok(LimitValue(None)),
        false => crate::sql::cache_size(text).map(|bytes| LimitValue(Some(bytes))),
    }
}

fn lifetime(text: &str) -> Result<LimitValue, String> {
    let limit: LimitValue = text.parse()?;
    if let LimitValue(Some(days)) = limit {
        Limit::Lifetime.check(days)?;
    }
    Ok(limit)
}

impl LimitArguments {
    fn changes(&self) -> Vec<(Limit, Option<u64>)> {
        let given = [
            (Limit::Connections, self.connections),
            (Limit::Queries, self.queries),
            (Limit::Interactive, self.interactive),
            (Limit::Scans, self.scans),
            (Limit::Submitted, self.submitted),
            (Limit::Seconds, self.seconds),
            (Limit::Rows, self.rows),
            (Limit::Requests, self.requests),
            (Limit::Stored, self.stored),
            (Limit::GroupStored, self.group_stored),
            (Limit::Cpu, self.cpu),
            (Limit::Bytes, self.bytes),
            (Limit::Upload, self.upload),
            (Limit::Lifetime, self.lifetime),
        ];
        let changes = given.into_iter();
        changes
            .filter_map(|(limit, value)| value.map(|LimitValue(value)| (limit, value)))
            .collect()
    }
}

/// A new token.
#[derive(Args)]
pub struct TokenArguments {
    #[command(flatten)]
    user: UserArguments,
    /// For how many days it is valid.
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: u64,
    /// Make none, and take all of the user's tokens back.
    #[arg(long, conflicts_with = "days")]
    revoke_all: bool,
}

/// How to list.
#[derive(Args)]
pub struct ListArguments {
    #[command(flatten)]
    directory: DirectoryArguments,
    /// The format.
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

/// A format of the list.
#[derive(Clone, Copy, ValueEnum)]
enum ListFormat {
    /// For people.
    Table,
    /// A JSON array with an object for each user.
    Json,
}

impl UserCommand {
    fn directory(&self) -> &DirectoryArguments {
        match self {
            Self::Add(it) => &it.password.user.directory,
            Self::Passwd(it) => &it.user.directory,
            Self::Remove(it) | Self::Show(it) => &it.directory,
            Self::Group(it) => it.directory(),
            Self::Grant(it) | Self::Revoke(it) => &it.user.directory,
            Self::Token(it) => &it.user.directory,
            Self::Limit(it) => &it.directory,
            Self::List(it) => &it.directory,
        }
    }
}

/// Does it.
pub fn run(command: UserCommand) -> Result<(), Failure> {
    let data = &command.directory().data;
    let runtime = Runtime::new()?;
    // A directory that is none is told apart from one without users.
    let catalog = runtime.block_on(Catalog::open(data))?;
    let users = Users::of(data);
    match &command {
        UserCommand::Add(it) => {
            let name = &it.password.user.name;
            let taken = taken_database(&runtime, &catalog, name)?;
            if let Some(taken) = taken.filter(|_| !it.own_database) {
                return Err(Failure::new(format!(
                    "there is a database {taken} already, and a user of the name could change its tables: choose another name, or give --own-database"
                )));
            }
            let kept = match runtime.block_on(users.list())?.user(name) {
                None => keep_expired_tables(&runtime, &catalog, name)?,
                Some(_) => String::new(),
            };
            add(&runtime, &users, it, &kept)
        }
        UserCommand::Passwd(it) => {
            let password = it.read()?;
            let changed = users.set_password(&it.user.name, password.as_deref(), it.native());
            runtime.block_on(changed)?;
            tell(&format!("{} has another password\n", it.user.name))
        }
        UserCommand::Remove(it) => {
            runtime.block_on(users.remove(&it.name))?;
            let left = runtime.block_on(users.list())?;
            let open = match left.is_empty() {
                true => "; there are no users any more, and nobody has to log in",
                false => "",
            };
            tell(&format!("{} is removed{open}\n", it.name))
        }
        UserCommand::Grant(it) => {
            for grant in it.read.iter().chain(&it.unreleased) {
                runtime.block_on(grant.note_missing(&catalog))?;
            }
            runtime.block_on(it.change(&users, true))?;
            show(&runtime, &users, &it.user.name)
        }
        UserCommand::Revoke(it) => {
            runtime.block_on(it.change(&users, false))?;
            show(&runtime, &users, &it.user.name)
        }
        UserCommand::Group(it) => groups::run(&runtime, &users, &catalog, it),
        UserCommand::Token(it) => token(&runtime, &users, it),
        UserCommand::Limit(it) => limit(&runtime, &users, it),
        UserCommand::List(it) => list(&runtime, &users, it.format),
        UserCommand::Show(it) => show(&runtime, &users, &it.name),
    }
}

impl GrantArguments {
    /// Grants what is named, or takes it back.
    async fn change(&self, users: &Users, is_granted: bool) -> Result<(), Failure> {
        let name = &self.user.name;
        if self.unreleased.iter().any(GrantName::is_of_columns) {
            return Err(Failure::new(
                "rows that are not released are those of a table or a database: --unreleased takes no columns",
            ));
        }
        let of = |names: &[GrantName]| names.iter().flat_map(GrantName::grants).collect::<Vec<_>>();
        let (read, unreleased) = (of(&self.read), of(&self.unreleased));
        if !read.is_empty() {
            match is_granted {
                true => users.grant(name, &read).await?,
                false => users.revoke(name, &read).await?,
            }
        }
        if !unreleased.is_empty() {
            users
                .change_unreleased(name, &unreleased, is_granted)
                .await?;
        }
        Ok(())
    }
}

/// `kept` is told with it.
fn add(
    runtime: &Runtime,
    users: &Users,
    arguments: &AddArguments,
    kept: &str,
) -> Result<(), Failure> {
    let name = &arguments.password.user.name;
    let before = runtime.block_on(users.list())?;
    let password = arguments.password.read()?;
    let (password, native) = (password.as_deref(), arguments.password.native());
    runtime.block_on(users.add_with(name, password, native, arguments.admin))?;
    let first = match before.is_empty() {
        true => "; from now on everybody has to log in",
        false => "",
    };
    let rights = match arguments.admin {
        true => "may read everything".to_owned(),
        false => format!("may read nothing yet: `meridian user grant {name} --read DB[.TABLE]`"),
    };
    tell(&format!("{name} is added and {rights}{first}{kept}\n"))
}

fn limit(runtime: &Runtime, users: &Users, arguments: &LimitArguments) -> Result<(), Failure> {
    let changes = arguments.changes();
    if !changes.is_empty() {
        runtime.block_on(users.set_limits(arguments.name.as_deref(), &changes))?;
    }
    let list = runtime.block_on(users.list())?;
    let Some(name) = &arguments.name else {
        return tell(&limits_text("everybody", list.everybody(), &|_| ""));
    };
    if let Some(group) = list.group(name) {
        let of = format!("each member of {name}");
        return tell(&limits_text(&of, &group.limits, &|_| ""));
    }
    let user = list
        .user(name)
        .ok_or_else(|| users::UsersError::NoUser { name: name.clone() })?;
    let groups = { user.groups.iter() }.filter_map(|name| list.group(name));
    let of_group = |limit| groups.clone().any(|it| it.limits.get(limit).is_some());
    let whose = |limit: Limit| match user.own_limits.get(limit) {
        None if of_group(limit) => " (of a group)",
        None => " (as everybody)",
        Some(_) => "",
    };
    tell(&limits_text(name, &user.limits, &whose))
}

/// The limits that are set, one in a line.
fn limits_text(of: &str, limits: &Limits, remark: &dyn Fn(Limit) -> &'static str) -> String {
    let line = |(limit, most): (Limit, u64)| {
        let (name, remark) = (limit.name(), remark(limit));
        format!("{name:<12}  {most:>12}  {}{remark}\n", limit.meaning())
    };
    let lines: String = limits.iter().map(line).collect();
    match lines.is_empty() {
        true => format!("{of} may take as much as there is\n"),
        false => lines,
    }
}

fn token(runtime: &Runtime, users: &Users, arguments: &TokenArguments) -> Result<(), Failure> {
    let name = &arguments.user.name;
    if arguments.revoke_all {
        let gone = runtime.block_on(users.revoke_tokens(name))?;
        return tell(&format!("{gone} of {name}'s tokens are taken back\n"));
    }
    let seconds = arguments.days * SECONDS_OF_A_DAY;
    let token = runtime.block_on(users.make_token(name, seconds))?;
    remark(&format!(
        "valid for {} days; it is shown this once",
        arguments.days
    ));
    tell(&format!("{}\n", token.text()))
}

/// A user as the list has them.
#[derive(Serialize)]
struct UserRow {
    name: String,
    admin: bool,
    password: bool,
    mysql_native_password: bool,
    tokens: usize,
    created: String,
    groups: Vec<String>,
    read: Vec<String>,
    unreleased: Vec<String>,
    limits: BTreeMap<&'static str, u64>,
}

impl UserRow {
    fn of(user: &User) -> Self {
        Self {
            name: user.name.clone(),
            admin: user.is_admin,
            password: user.password.is_some(),
            mysql_native_password: user.native.is_some(),
            tokens: user.tokens,
            created: catalog::utc_text(user.created.max(0) as u64),
            groups: user.groups.clone(),
            read: Grant::texts(&user.grants),
            unreleased: Grant::texts(&user.unreleased),
            limits: { user.limits.iter() }
                .map(|(limit, most)| (limit.name(), most))
                .collect(),
        }
    }

    fn may_take(&self) -> String {
        may_take(self.limits.iter().map(|(name, most)| (*name, *most)))
    }

    fn may_read(&self) -> String {
        let of = self.groups.iter().map(|group| format!("what {group} may"));
        let all: Vec<String> = self.read.iter().cloned().chain(of).collect();
        match (self.admin, all.is_empty()) {
            (true, _) => "everything".to_owned(),
            (false, true) => "nothing".to_owned(),
            (false, false) => all.join(", "),
        }
    }

    fn logs_in_with(&self) -> String {
        let tokens = match self.tokens {
            0 => None,
            1 => Some("1 token".to_owned()),
            many => Some(format!("{many} tokens")),
        };
        let password = match (self.password, self.mysql_native_password) {
            (false, _) => None,
            (true, false) => Some("password".to_owned()),
            (true, true) => Some("password (mysql_native_password too)".to_owned()),
        };
        let all: Vec<String> = password.into_iter().chain(tokens).collect();
        match all.is_empty() {
            true => "nothing".to_owned(),
            false => all.join(", "),
        }
    }
}

fn list(runtime: &Runtime, users: &Users, format: ListFormat) -> Result<(), Failure> {
    let list = runtime.block_on(users.list())?;
    let listed: Vec<UserRow> = list.iter().map(|user| UserRow::of(user)).collect();
    match format {
        ListFormat::Json => {
            let text = serde_json::to_string_pretty(&listed)?;
            tell(&format!("{text}\n"))
        }
        ListFormat::Table if listed.is_empty() => {
            tell("there are no users: nobody has to log in\n")
        }
        ListFormat::Table => {
            let width = |of: &dyn Fn(&UserRow) -> usize| listed.iter().map(of).max().unwrap_or(0);
            let names = width(&|it| it.name.chars().count()).max("user".len());
            let ways = width(&|it| it.logs_in_with().len()).max("logs in with".len());
            let mut text = format!("{:names$}  {:ways$}  may read\n", "user", "logs in with");
            for user in &listed {
                let (way, read) = (user.logs_in_with(), user.may_read());
                text.push_str(&format!("{:names$}  {way:ways$}  {read}\n", user.name));
            }
            for group in list.groups() {
                let read = reads(&group.grants);
                text.push_str(&format!(
                    "{:names$}  {:ways$}  {read}\n",
                    group.name, "(group)"
                ));
            }
            if !list.public().is_empty() {
                let read = names_of(list.public());
                text.push_str(&format!("{PUBLIC:names$}  {:ways$}  {read}\n", ""));
            }
            tell(&text)
        }
    }
}

fn may_take<'a>(limits: impl Iterator<Item = (&'a str, u64)>) -> String {
    let limits: Vec<String> = limits
        .map(|(name, most)| format!("{name} {most}"))
        .collect();
    match limits.is_empty() {
        true => "as much as there is".to_owned(),
        false => limits.join(", "),
    }
}

fn names_of(grants: &[Grant]) -> String {
    Grant::texts(grants).join(", ")
}

fn reads(grants: &[Grant]) -> String {
    match grants {
        [] => "nothing".to_owned(),
        grants => names_of(grants),
    }
}

fn show(runtime: &Runtime, users: &Users, name: &str) -> Result<(), Failure> {
    let list = runtime.block_on(users.list())?;
    if is_public(name) {
        let read = reads(list.public());
        return tell(&format!("everybody may read  {read}\n"));
    }
    if let Some(group) = list.group(name) {
        return groups::tell_of(group);
    }
    let user = list.user(name).ok_or_else(|| users::UsersError::NoUser {
        name: name.to_owned(),
    })?;
    let user = UserRow::of(user);
    tell(&format!(
        "user          {}\nadded         {}\nlogs in with  {}\nbelongs to    {}\nmay read      {}\nall rows of   {}\nmay take      {}\n",
        user.name,
        user.created,
        user.logs_in_with(),
        groups::names(&user.groups),
        user.may_read(),
        groups::names(&user.unreleased),
        user.may_take()
    ))
}
