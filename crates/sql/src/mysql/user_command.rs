//! Statements about users and groups, which MySQL calls roles: CREATE, ALTER and DROP USER, CREATE and DROP ROLE, SET PASSWORD, GRANT and
//! REVOKE.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{Command, TokenReader};
use super::password::NewPassword;
use super::table_statement::TargetTable;
use crate::{ErrorCode, SqlError};

/// A statement about users.
#[derive(Clone, PartialEq, Eq)]
pub enum UserStatement {
    /// `CREATE USER name [IDENTIFIED [WITH plugin] BY 'password']`.
    Create {
        /// The names, each with a password or none.
        users: Vec<(String, Option<NewPassword>)>,
        /// Whether it is no mistake that there is one already.
        if_not_exists: bool,
    },
    /// `ALTER USER name IDENTIFIED [WITH plugin] BY 'password'`, `SET PASSWORD [FOR name] = 'password'`.
    Password {
        /// Whose; that of whoever asks without a name.
        user: Option<String>,
        /// The new password.
        password: NewPassword,
    },
    /// `DROP USER name, name`.
    Drop {
        /// The names.
        users: Vec<String>,
        /// Whether it is no mistake that there is none.
        if_exists: bool,
    },
    /// `CREATE ROLE name, name [WITH DATABASE]`.
    CreateRole {
        /// The names.
        roles: Vec<String>,
        /// Whether it is no mistake that there is one already.
        if_not_exists: bool,
        /// Whether each gets a database, whose tables its users change.
        has_database: bool,
    },
    /// `ALTER ROLE name, name WITH DATABASE`, and `WITHOUT DATABASE`.
    AlterRole {
        /// The names.
        roles: Vec<String>,
        /// Whether each has a database from then on.
        has_database: bool,
    },
    /// `DROP ROLE name, name`.
    DropRole {
        /// The names.
        roles: Vec<String>,
        /// Whether it is no mistake that there is none.
        if_exists: bool,
    },
    /// `GRANT role, role TO name, name`, and `REVOKE ... FROM`.
    GrantRole {
        /// Whether they are taken back.
        revoke: bool,
        /// The roles.
        roles: Vec<String>,
        /// Whose.
        users: Vec<String>,
    },
    /// `GRANT SELECT ON database.table TO name, name`, and `REVOKE ... FROM`.
    Grant {
        /// Whether it is taken back.
        revoke: bool,
        /// The database; the default one if none is named.
        database: Option<String>,
        /// The table; all of the database without one.
        table: Option<String>,
        /// The columns of the table; all of them without any.
        columns: Vec<String>,
        /// To whom.
        users: Vec<String>,
    },
    /// `GRANT UNRELEASED ON database.table TO name, name`, and `REVOKE ... FROM`: the right to see rows that are not released.
    GrantUnreleased {
        /// Whether it is taken back.
        revoke: bool,
        /// The database; the default one if none is named.
        database: Option<String>,
        /// The table; all of the database without one.
        table: Option<String>,
        /// To whom.
        users: Vec<String>,
    },
    /// `ALTER TABLE database.table RELEASE WHERE condition`, and `RELEASE ALL`.
    Release {
        /// The database; the default one if none is named.
        database: Option<String>,
        /// The table.
        table: String,
        /// The condition that the released rows meet; all rows are released without one.
        condition: Option<String>,
    },
    /// `ALTER USER name LIMIT limit = number, limit = NONE`.
    Limit {
        /// Whose: of a user, of each member of a role, or of everybody.
        user: String,
        /// The limits by their names, each with its value or none.
        limits: Vec<(String, Option<u64>)>,
    },
    /// `SHOW RELEASES`.
    ShowReleases,
    /// `SHOW GRANTS FOR name`. Without a name it is a list like the others.
    ShowGrants {
        /// Whose.
        user: String,
    },
}

impl std::fmt::Debug for UserStatement {
    /// Without passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Create { .. } => "Create",
            Self::Password { .. } => "Password",
            Self::Drop { .. } => "Drop",
            Self::Grant { revoke: false, .. } => "Grant",
            Self::Grant { revoke: true, .. } => "Revoke",
            Self::CreateRole { .. } => "CreateRole",
            Self::DropRole { .. } => "DropRole",
            Self::AlterRole { .. } => "AlterRole",
            Self::GrantRole { .. } => "GrantRole",
            Self::ShowGrants { .. } => "ShowGrants",
            Self::GrantUnreleased { .. } => "GrantUnreleased",
            Self::Release { .. } => "Release",
            Self::Limit { .. } => "Limit",
            Self::ShowReleases => "ShowReleases",
        })
    }
}

/// The hosts for which an account counts: all.
const ALL_HOSTS: &str = "%";

type Read = Result<Option<Command>, SqlError>;

/// The same error without the statement's text, which may have a password.
pub(super) fn without_text(error: &SqlError) -> SqlError {
    SqlError::new(error.sentence()).with_code(error.code())
}

fn told(statement: UserStatement) -> Read {
    Ok(Some(Command::User(statement)))
}

impl TokenReader<'_> {
    /// `CREATE USER`, from behind these words on.
    pub(super) fn read_create_user(&mut self) -> Read {
        let if_not_exists = self.word("if");
        if if_not_exists && !(self.word("not") && self.word("exists")) {
            return Err(self.expected("IF NOT EXISTS"));
        }
        let mut users = Vec::new();
        loop {
            let name = self.account()?;
            users.push((name, self.identified()?));
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        self.end()?;
        told(UserStatement::Create {
            users,
            if_not_exists,
        })
    }

    /// `ALTER USER`, from behind these words on.
    pub(super) fn read_alter_user(&mut self) -> Read {
        let user = match self.word("user") {
            true if self.sign(&Token::LParen) && self.sign(&Token::RParen) => None,
            true => return Err(self.expected("()")),
            false => Some(self.account()?),
        };
        if let Some(user) = &user
            && self.word("limit")
        {
            let user = user.clone();
            let limits = self.limits()?;
            return told(UserStatement::Limit { user, limits });
        }
        let password = self.identified()?;
        let password = password.ok_or_else(|| self.expected("IDENTIFIED BY or LIMIT"))?;
        self.end()?;
        told(UserStatement::Password { user, password })
    }

    /// Limits with their values, up to the end.
    fn limits(&mut self) -> Result<Vec<(String, Option<u64>)>, SqlError> {
        let mut limits = Vec::new();
        loop {
            let name = self.name("the name of a limit, as in LIMIT queries = 4")?;
            let _ = self.sign(&Token::Eq);
            let value = match self.word("none") {
                true => None,
                false => Some(self.number("a whole number from 0 on, or NONE")?),
            };
            limits.push((name.to_ascii_lowercase(), value));
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        self.end()?;
        Ok(limits)
    }

    /// `SET PASSWORD`, `SET ROLE` and `SET DEFAULT ROLE`, from behind SET on; `None` for other settings.
    pub(super) fn read_set_of_users(&mut self) -> Read {
        if self.word("password") {
            let read = self.read_set_password();
            return read.map_err(|error| without_text(&error));
        }
        if self.word("role") {
            return self.read_set_role(false);
        }
        let begin = self.at;
        if self.word("default") && self.word("role") {
            return self.read_set_role(true);
        }
        self.at = begin;
        Ok(None)
    }

    /// `SET PASSWORD`, from behind these words on.
    fn read_set_password(&mut self) -> Read {
        let user = match self.word("for") {
            true => Some(self.account()?),
            false => None,
        };
        if !self.sign(&Token::Eq) {
            return Err(self.expected("="));
        }
        let password = NewPassword::of(self.password()?);
        self.end()?;
        told(UserStatement::Password { user, password })
    }

    /// `DROP USER`, from behind these words on.
    pub(super) fn read_drop_user(&mut self) -> Read {
        let if_exists = self.word("if");
        if if_exists && !self.word("exists") {
            return Err(self.expected("IF EXISTS"));
        }
        let users = self.accounts()?;
        self.end()?;
        told(UserStatement::Drop { users, if_exists })
    }

    /// `CREATE ROLE`, from behind these words on.
    pub(super) fn read_create_role(&mut self) -> Read {
        let if_not_exists = self.word("if");
        if if_not_exists && !(self.word("not") && self.word("exists")) {
            return Err(self.expected("IF NOT EXISTS"));
        }
        let roles = self.accounts()?;
        let has_database = self.word("with");
        if has_database && !self.word("database") {
            return Err(self.expected("DATABASE"));
        }
        self.end()?;
        told(UserStatement::CreateRole {
            roles,
            if_not_exists,
            has_database,
        })
    }

    /// `ALTER ROLE`, from behind these words on.
    pub(super) fn read_alter_role(&mut self) -> Read {
        let roles = self.accounts()?;
        let has_database = self.word("with");
        if !(has_database || self.word("without")) {
            return Err(self.expected("WITH DATABASE or WITHOUT DATABASE"));
        }
        if !self.word("database") {
            return Err(self.expected("DATABASE"));
        }
        self.end()?;
        told(UserStatement::AlterRole {
            roles,
            has_database,
        })
    }

    /// `DROP ROLE`, from behind these words on.
    pub(super) fn read_drop_role(&mut self) -> Read {
        let if_exists = self.word("if");
        if if_exists && !self.word("exists") {
            return Err(self.expected("IF EXISTS"));
        }
        let roles = self.accounts()?;
        self.end()?;
        told(UserStatement::DropRole { roles, if_exists })
    }

    /// `SET ROLE` or `SET DEFAULT ROLE`, from behind these words on: all roles of a user count at once, which can be said and no other.
    fn read_set_role(&mut self, of_users: bool) -> Read {
        let all = self.word("all") || (!of_users && self.word("default"));
        if all && of_users {
            if !self.word("to") {
                return Err(self.expected("TO"));
            }
            self.accounts()?;
        }
        match all {
            true => self.end().map(|()| Some(Command::Nothing)),
            false => {
                let sentence = "all roles of a user count at once: SET ROLE ALL can be said, and no other choice; REVOKE role FROM user takes one away";
                Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED))
            }
        }
    }

    /// Whether what follows `GRANT` or `REVOKE` are roles, which are given without saying on what.
    fn grants_roles(&self) -> bool {
        let is_on = |token: &Token| match token {
            Token::Word(word) => {
                word.quote_style.is_none() && word.value.eq_ignore_ascii_case("on")
            }
            _ => false,
        };
        let mut rest = self.tokens.iter().skip(self.at);
        !rest.any(|it| is_on(&it.token))
    }

    fn read_grant_of_roles(&mut self, revoke: bool) -> Read {
        let roles = self.accounts()?;
        self.direction(revoke)?;
        let users = self.accounts()?;
        if self.word("with") {
            let sentence =
                "administrators alone say who belongs to which role: leave WITH ADMIN OPTION out";
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        self.end()?;
        told(UserStatement::GrantRole {
            revoke,
            roles,
            users,
        })
    }

    fn direction(&mut self, revoke: bool) -> Result<(), SqlError> {
        match self.word(if revoke { "from" } else { "to" }) {
            true => Ok(()),
            false => Err(self.expected(if revoke { "FROM" } else { "TO" })),
        }
    }

    /// The columns of a grant, in parentheses; none without these.
    fn granted_columns(&mut self) -> Result<Vec<String>, SqlError> {
        let mut columns = Vec::new();
        if !self.sign(&Token::LParen) {
            return Ok(columns);
        }
        loop {
            columns.push(self.name("the name of a column")?);
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        match self.sign(&Token::RParen) {
            true => Ok(columns),
            false => Err(self.expected(")")),
        }
    }

    /// `GRANT` or `REVOKE`, from behind that word on.
    pub(super) fn read_grant(&mut self, revoke: bool) -> Read {
        if self.grants_roles() {
            return self.read_grant_of_roles(revoke);
        }
        let unreleased = self.word("unreleased");
        if !(unreleased || self.word("select")) || self.peek() == Some(&Token::Comma) {
            let sentence = "what can be granted is SELECT, as in GRANT SELECT ON sky.Object TO ann, and UNRELEASED, to see rows that are not released: users change the tables of their own database alone, and administrators are made by `meridian user add --admin`";
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        let columns = match unreleased {
            true => vec![],
            false => self.granted_columns()?,
        };
        if self.peek() == Some(&Token::Comma) {
            let sentence = "what can be granted is SELECT: name all columns in one pair of parentheses, as in GRANT SELECT (ra, mag) ON sky.Object TO ann";
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        if !self.word("on") {
            return Err(self.expected("ON"));
        }
        let _ = self.word("table");
        let first = match self.sign(&Token::Mul) {
            true => None,
            false => Some(self.name("the name of a database or table")?),
        };
        let (database, table) = match (first, self.sign(&Token::Period)) {
            (Some(database), true) => {
                let table = match self.sign(&Token::Mul) {
                    true => None,
                    false => Some(self.name("the name of a table, or *")?),
                };
                (Some(database), table)
            }
            (Some(table), false) => (None, Some(table)),
            (None, false) => (None, None),
            (None, true) => {
                let sentence = "grant databases one by one: who may read everything is an administrator (`meridian user add --admin`)";
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
        };
        if !columns.is_empty() && table.is_none() {
            let sentence = "columns are those of a table: name it, as in GRANT SELECT (ra, mag) ON sky.Object TO ann";
            return Err(SqlError::new(sentence).with_code(ErrorCode::SYNTAX));
        }
        self.direction(revoke)?;
        let users = self.accounts()?;
        self.end()?;
        if unreleased {
            return told(UserStatement::GrantUnreleased {
                revoke,
                database,
                table,
                users,
            });
        }
        told(UserStatement::Grant {
            revoke,
            database,
            table,
            columns,
            users,
        })
    }

    /// `FLUSH PRIVILEGES`, from behind FLUSH on: changes count with the next statement anyway.
    pub(super) fn read_flush(&mut self) -> Read {
        if !self.word("privileges") {
            return Ok(None);
        }
        self.end()?;
        Ok(Some(Command::Nothing))
    }

    /// `ALTER TABLE name RELEASE`, from behind these words on.
    pub(super) fn read_release(&mut self, table: TargetTable) -> Read {
        let condition = if self.word("where") {
            let Some(first) = self.tokens.get(self.at) else {
                return Err(self.expected("a condition, as in RELEASE WHERE obsTime < NOW(),"));
            };
            Some(self.text_from(first))
        } else if self.word("all") {
            self.end()?;
            None
        } else {
            return Err(self.expected("WHERE and a condition, or ALL"));
        };
        told(UserStatement::Release {
            database: table.database,
            table: table.table,
            condition,
        })
    }

    /// `SHOW GRANTS FOR name` and `SHOW RELEASES`, from behind SHOW on; `None` for other lists.
    pub(super) fn read_show_of_users(&mut self) -> Read {
        if self.word("releases") {
            self.end()?;
            return told(UserStatement::ShowReleases);
        }
        if !(self.word("grants") && self.word("for")) || self.word("current_user") {
            return Ok(None);
        }
        let user = self.account()?;
        self.end()?;
        told(UserStatement::ShowGrants { user })
    }

    fn accounts(&mut self) -> Result<Vec<String>, SqlError> {
        let mut users = vec![self.account()?];
        while self.sign(&Token::Comma) {
            users.push(self.account()?);
        }
        Ok(users)
    }

    /// `name`, `'name'` or `'name'@'%'`.
    fn account(&mut self) -> Result<String, SqlError> {
        let quoted = match self.peek() {
            Some(Token::Word(word)) => word.quote_style.is_some(),
            _ => true,
        };
        let mut name = self.name("the name of a user")?;
        // An unquoted `@` is a letter of words here.
        if !quoted && let Some((user, host)) = name.clone().rsplit_once('@') {
            user.clone_into(&mut name);
            return self.of_host(name, (!host.is_empty()).then(|| host.to_owned()));
        }
        let at = match self.peek() {
            Some(Token::Word(word)) if word.quote_style.is_none() => {
                word.value.strip_prefix('@').map(str::to_owned)
            }
            Some(Token::AtSign) => Some(String::new()),
            _ => None,
        };
        match at {
            None => Ok(name),
            Some(host) => {
                self.at += 1;
                self.of_host(name, (!host.is_empty()).then_some(host))
            }
        }
    }

    /// The name, if it counts for all hosts; `host` is read where it is not known.
    fn of_host(&mut self, name: String, host: Option<String>) -> Result<String, SqlError> {
        let host = match host {
            Some(host) => host,
            None if self.sign(&Token::Mod) => ALL_HOSTS.to_owned(),
            None => self.name("a host")?,
        };
        match host == ALL_HOSTS {
            true => Ok(name),
            false => {
                let sentence = format!(
                    "users are not bound to hosts here: write {name} without @{host}, or with @'%'"
                );
                Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::command;
    use super::*;

    fn read(text: &str) -> UserStatement {
        match command(text) {
            Ok(Some(Command::User(statement))) => statement,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn users_are_made_changed_and_dropped() {
        let pairs = |pairs: &[(&str, Option<&str>)]| {
            let owned = |(name, password): &(&str, Option<&str>)| {
                let password = password.map(|text| NewPassword::of(text.to_owned()));
                ((*name).to_owned(), password)
            };
            pairs.iter().map(owned).collect::<Vec<_>>()
        };
        assert!(
            read("CREATE USER IF NOT EXISTS 'ann'@'%' IDENTIFIED BY 'p''w', bob@'%', `c@d`")
                == UserStatement::Create {
                    users: pairs(&[("ann", Some("p'w")), ("bob", None), ("c@d", None)]),
                    if_not_exists: true
                }
        );
        for (text, user) in [
            ("ALTER USER ann IDENTIFIED BY \"x\"", Some("ann")),
            ("ALTER USER USER() IDENTIFIED BY 'x'", None),
            ("SET PASSWORD = 'x'", None),
            ("SET PASSWORD FOR 'ann'@'%' = 'x'", Some("ann")),
        ] {
            let wanted = UserStatement::Password {
                user: user.map(str::to_owned),
                password: NewPassword::of("x".to_owned()),
            };
            assert!(read(text) == wanted, "{text}");
        }
        assert!(
            read("DROP USER IF EXISTS ann, 'bob'@'%'")
                == UserStatement::Drop {
                    users: names(&["ann", "bob"]),
                    if_exists: true
                }
        );
    }

    #[test]
    fn rights_are_granted_and_taken_back() {
        for (text, revoke, database, table) in [
            (
                "GRANT SELECT ON sky.* TO ann, bob",
                false,
                Some("sky"),
                None,
            ),
            (
                "GRANT SELECT ON sky.Object TO ann, bob@'%'",
                false,
                Some("sky"),
                Some("Object"),
            ),
            (
                "GRANT SELECT ON Object TO ann, bob",
                false,
                None,
                Some("Object"),
            ),
            ("REVOKE SELECT ON * FROM ann, bob", true, None, None),
        ] {
            let wanted = UserStatement::Grant {
                revoke,
                database: database.map(str::to_owned),
                table: table.map(str::to_owned),
                columns: vec![],
                users: names(&["ann", "bob"]),
            };
            assert!(read(text) == wanted, "{text}");
        }
        assert!(
            read("GRANT SELECT (ra, `dec`) ON sky.Object TO ann")
                == UserStatement::Grant {
                    revoke: false,
                    database: Some("sky".to_owned()),
                    table: Some("Object".to_owned()),
                    columns: names(&["ra", "dec"]),
                    users: names(&["ann"]),
                }
        );
    }

    #[test]
    fn rows_are_released() {
        let release = |database: Option<&str>, condition: Option<&str>| UserStatement::Release {
            database: database.map(str::to_owned),
            table: "Night".to_owned(),
            condition: condition.map(str::to_owned),
        };
        for (text, expected) in [
            (
                "ALTER TABLE sky.Night RELEASE WHERE obsTime < NOW() - INTERVAL 2 YEAR;",
                release(Some("sky"), Some("obsTime < NOW() - INTERVAL 2 YEAR")),
            ),
            (
                "alter table `Night` release where a = ';' OR b = 'all'",
                release(None, Some("a = ';' OR b = 'all'")),
            ),
            (
                "ALTER TABLE sky.Night RELEASE ALL",
                release(Some("sky"), None),
            ),
            ("SHOW RELEASES", UserStatement::ShowReleases),
            (
                "ALTER USER 'ann'@'%' LIMIT scans = 2, Rows NONE",
                UserStatement::Limit {
                    user: "ann".to_owned(),
                    limits: vec![("scans".to_owned(), Some(2)), ("rows".to_owned(), None)],
                },
            ),
            (
                "GRANT UNRELEASED ON sky.Night TO ann, 'team'@'%'",
                UserStatement::GrantUnreleased {
                    revoke: false,
                    database: Some("sky".to_owned()),
                    table: Some("Night".to_owned()),
                    users: names(&["ann", "team"]),
                },
            ),
            (
                "REVOKE UNRELEASED ON sky.* FROM ann",
                UserStatement::GrantUnreleased {
                    revoke: true,
                    database: Some("sky".to_owned()),
                    table: None,
                    users: names(&["ann"]),
                },
            ),
        ] {
            assert!(read(text) == expected, "{text}");
        }
        for wrong in [
            "ALTER TABLE sky.Night RELEASE",
            "ALTER TABLE sky.Night RELEASE WHERE",
            "ALTER TABLE sky.Night RELEASE ALL rows",
            "ALTER TABLE sky.Night RELEASE IF id < 3",
            "GRANT UNRELEASED (id) ON sky.Night TO ann",
            "SHOW RELEASES FROM sky",
            "ALTER USER ann LIMIT",
            "ALTER USER ann LIMIT scans = -1",
            "ALTER USER ann LIMIT scans = 2 rows = 3",
        ] {
            assert_eq!(command(wrong).unwrap_err().code().number, 1064, "{wrong}");
        }
    }

    #[test]
    fn roles_are_made_granted_and_dropped() {
        assert!(
            read("CREATE ROLE IF NOT EXISTS 'team'@'%', other")
                == UserStatement::CreateRole {
                    roles: names(&["team", "other"]),
                    if_not_exists: true,
                    has_database: false,
                }
        );
        assert!(
            read("CREATE ROLE team, other WITH DATABASE")
                == UserStatement::CreateRole {
                    roles: names(&["team", "other"]),
                    if_not_exists: false,
                    has_database: true,
                }
        );
        for (text, has_database) in [
            ("ALTER ROLE team, 'other'@'%' WITH DATABASE", true),
            ("alter role team, other without database", false),
        ] {
            let roles = names(&["team", "other"]);
            let wanted = UserStatement::AlterRole {
                roles,
                has_database,
            };
            assert!(read(text) == wanted, "{text}");
        }
        for wrong in [
            "CREATE ROLE team WITH",
            "CREATE ROLE team WITH DATABASE x",
            "ALTER ROLE team",
            "ALTER ROLE team WITH",
            "ALTER ROLE team WITHOUT x",
        ] {
            assert_eq!(command(wrong).unwrap_err().code().number, 1064, "{wrong}");
        }
        assert!(
            read("DROP ROLE team")
                == UserStatement::DropRole {
                    roles: names(&["team"]),
                    if_exists: false
                }
        );
        for (text, revoke) in [
            ("GRANT team, `select` TO ann, bob", false),
            ("REVOKE team, `select` FROM ann, bob", true),
        ] {
            let wanted = UserStatement::GrantRole {
                revoke,
                roles: names(&["team", "select"]),
                users: names(&["ann", "bob"]),
            };
            assert!(read(text) == wanted, "{text}");
        }
        for text in [
            "SET ROLE ALL",
            "SET ROLE DEFAULT",
            "SET DEFAULT ROLE ALL TO ann, bob",
        ] {
            assert_eq!(command(text).unwrap(), Some(Command::Nothing), "{text}");
        }
    }

    #[test]
    fn grants_of_others_are_listed() {
        let user = "ann".to_owned();
        assert!(read("SHOW GRANTS FOR 'ann'@'%'") == UserStatement::ShowGrants { user });
        for text in [
            "SHOW GRANTS",
            "SHOW GRANTS FOR CURRENT_USER()",
            "SHOW TABLES LIKE 'grants for x'",
        ] {
            assert_eq!(command(text).unwrap(), None, "{text}");
        }
        assert!(command("SHOW GRANTS FOR").is_err());
        assert_eq!(command("FLUSH PRIVILEGES").unwrap(), Some(Command::Nothing));
        assert_eq!(command("FLUSH TABLES").unwrap(), None);
    }

    #[test]
    fn mistakes_are_told_without_passwords() {
        for (text, number) in [
            ("CREATE USER", 1064),
            ("CREATE USER ann@localhost IDENTIFIED BY 'hidden'", 1235),
            (
                "CREATE USER ann IDENTIFIED WITH mysql_native_password AS '*hidden'",
                1235,
            ),
            ("ALTER USER ann IDENTIFIED WITH ldap BY 'hidden'", 1524),
            ("ALTER USER ann IDENTIFIED WITH caching_sha2_password", 1064),
            ("CREATE USER ann IDENTIFIED BY hidden", 1064),
            (
                "CREATE USER ann IDENTIFIED BY 'hidden' PASSWORD EXPIRE",
                1064,
            ),
            ("ALTER USER ann", 1064),
            ("SET PASSWORD 'hidden'", 1064),
            ("GRANT ALL ON *.* TO ann", 1235),
            ("GRANT SELECT, INSERT ON sky.* TO ann", 1235),
            ("GRANT SELECT ON *.* TO ann", 1235),
            ("GRANT SELECT (ra) ON sky.* TO ann", 1064),
            ("GRANT SELECT (ra ON sky.Object TO ann", 1064),
            ("GRANT SELECT (ra), SELECT (mag) ON sky.Object TO ann", 1235),
            ("GRANT team TO ann WITH ADMIN OPTION", 1235),
            ("GRANT team FROM ann", 1064),
            ("SET ROLE team", 1235),
            ("SET ROLE NONE", 1235),
            ("SET DEFAULT ROLE team TO ann", 1235),
            ("DROP ROLE", 1064),
            ("GRANT SELECT ON sky.Object FROM ann", 1064),
            ("REVOKE SELECT ON sky.Object TO ann", 1064),
        ] {
            let error = command(text).unwrap_err();
            assert_eq!(error.code().number, number, "{text}: {error}");
            assert!(!error.to_string().contains("hidden'"), "{error}");
        }
    }
}
