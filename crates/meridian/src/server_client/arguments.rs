//! Where the server is, and who asks it.

use std::io::{Read, stdin};
use std::path::PathBuf;

use clap::Args;
use console::Term;
use std::io::IsTerminal;

use super::connection::Trust;
use super::{Login, ServerClient};
use crate::failure::Failure;

/// Bytes of standard input that are read for a password.
const MOST_READ: u64 = 64 << 10;

/// Where the server is.
#[derive(Args)]
pub struct ServerArguments {
    /// The server's HTTP address, such as http://127.0.0.1:8080 or https://ann@archive.example.org, where ann logs in.
    #[arg(long, value_name = "URL", env = "MERIDIAN_SERVER", default_value_t = default_server())]
    server: String,
    #[command(flatten)]
    login: LoginArguments,
}

impl ServerArguments {
    /// The server, for whoever the environment names; the default one if the variable of the environment is empty.
    ///
    /// # Errors
    /// The address or the login cannot be used.
    pub fn client(&self) -> Result<ServerClient, Failure> {
        self.login.client(self.url(), None)
    }

    /// The server, for this user.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub fn client_for(&self, user: &UserArguments) -> Result<ServerClient, Failure> {
        self.login.client(self.url(), user.user.as_deref())
    }

    fn url(&self) -> String {
        match self.server.as_str() {
            "" => default_server(),
            url => url.to_owned(),
        }
    }
}

/// Where `meridian serve` listens by default.
fn default_server() -> String {
    format!("http://{}", server::DEFAULT_HTTP_ADDRESS)
}

/// The user who sends the request: a result belongs to the user who submitted its query.
#[derive(Args)]
pub struct UserArguments {
    /// The name of the user; by default that of the server's address, or the name in the operating system.
    #[arg(long, value_name = "NAME", env = "MERIDIAN_USER")]
    pub user: Option<String>,
}

/// How one logs in to a server.
#[derive(Args)]
pub struct LoginArguments {
    /// Log in with a password, which is asked for, or read from standard input where that is no terminal. In scripts
    /// the variables MERIDIAN_PASSWORD or MERIDIAN_TOKEN of the environment are more convenient.
    #[arg(long)]
    password: bool,
    /// Certificates of authorities, in PEM, which https:// trusts instead of those that this machine knows.
    #[arg(long, value_name = "FILE", env = "MERIDIAN_CA")]
    ca: Option<PathBuf>,
}

impl LoginArguments {
    /// The server at a URL, for a user who may be named by it, by `named` or by the environment.
    ///
    /// # Errors
    /// The address or the login cannot be used.
    pub fn client(&self, url: String, named: Option<&str>) -> Result<ServerClient, Failure> {
        let trust = self.ca.clone().map_or(Trust::Machine, Trust::File);
        let (mut client, of_url) = ServerClient::new(&url, trust)?;
        let names = [
            of_url,
            named.map(str::to_owned),
            environment("MERIDIAN_USER"),
            environment("USER"),
        ];
        let name = names.into_iter().flatten().find(|name| !name.is_empty());
        client.log_in(self.login(name)?)?;
        Ok(client)
    }

    fn login(&self, name: Option<String>) -> Result<Login, Failure> {
        let password = match self.password {
            true => Some(read_password(name.as_deref())?),
            false => environment("MERIDIAN_PASSWORD"),
        };
        match (password, environment("MERIDIAN_TOKEN")) {
            (Some(password), _) => match name {
                Some(name) => Ok(Login::Password { name, password }),
                None => Err(Failure::new(
                    "there is a password and no name: give the user's name with --user",
                )),
            },
            (None, Some(token)) => Ok(Login::Token(token)),
            (None, None) => Ok(Login::Nobody { name }),
        }
    }
}

/// A variable of the environment that is not empty.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Asks for the password of a user.
fn read_password(name: Option<&str>) -> Result<String, Failure> {
    if !stdin().is_terminal() {
        let mut text = String::new();
        stdin().take(MOST_READ).read_to_string(&mut text)?;
        return Ok(text.lines().next().unwrap_or_default().to_owned());
    }
    let terminal = Term::stderr();
    terminal.write_str(&format!("Password of {}: ", name.unwrap_or("nobody")))?;
    Ok(terminal.read_secure_line()?)
}
