//! The servers of a PostgreSQL database: one of several takes what is stored, and another one after it when it fails.

use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};
use tokio::time::timeout;
use tracing::warn;

use crate::error::{AlertsError, Result};

/// How long one server may take to answer before the next one is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ATTRIBUTES: &str = "target_session_attrs";

/// The servers, in the order in which they are tried.
#[derive(Debug)]
pub(super) struct Hosts {
    options: Vec<PgConnectOptions>,
    /// The one that took what was stored last.
    last: AtomicUsize,
}

impl Hosts {
    /// Those of a URL, `postgres://USER@HOST:PORT,HOST:PORT/DATABASE?target_session_attrs=read-write`, each with options of its sessions.
    pub(super) fn of(
        url: &str,
        with: impl Fn(PgConnectOptions) -> PgConnectOptions,
    ) -> Result<Self> {
        let urls = single_urls(url)?;
        let options: std::result::Result<Vec<_>, _> = urls
            .iter()
            .map(|url| PgConnectOptions::from_str(url))
            .collect();
        Ok(Self {
            options: options?.into_iter().map(with).collect(),
            last: AtomicUsize::new(0),
        })
    }

    /// Whether there are several.
    pub(super) fn are_several(&self) -> bool {
        self.options.len() > 1
    }

    /// How to connect to the one that took what was stored last.
    pub(super) fn present(&self) -> PgConnectOptions {
        let last = self.last.load(Ordering::Relaxed);
        self.options[last.min(self.options.len() - 1)].clone()
    }

    /// A connection to the server that takes what is stored: the one that did last, or the first of the others.
    pub(super) async fn connect(&self) -> Result<PgConnection> {
        let [only] = self.options.as_slice() else {
            return self.connect_to_one_of_several().await;
        };
        Ok(only.connect().await?)
    }

    async fn connect_to_one_of_several(&self) -> Result<PgConnection> {
        let (count, last) = (self.options.len(), self.last.load(Ordering::Relaxed));
        let mut reasons = Vec::with_capacity(count);
        for number in (last..last + count).map(|number| number % count) {
            let options = &self.options[number];
            let named = format!("{}:{}", options.get_host(), options.get_port());
            match timeout(CONNECT_TIMEOUT, of_primary(options)).await {
                Ok(Ok(Some(connection))) => {
                    if number != last {
                        warn!(host = named, "PostgreSQL is used at another host");
                        self.last.store(number, Ordering::Relaxed);
                    }
                    return Ok(connection);
                }
                Ok(Ok(None)) => reasons.push(format!("{named} is a standby")),
                Ok(Err(error)) => reasons.push(format!("{named}: {error}")),
                Err(_) => reasons.push(format!("{named} does not answer")),
            }
        }
        let reasons = reasons.join("; ");
        let sentence = format!("none of the PostgreSQL servers can be written to: {reasons}");
        Err(sqlx::Error::Io(std::io::Error::other(sentence)).into())
    }
}

/// A connection, unless it is to a standby.
async fn of_primary(options: &PgConnectOptions) -> sqlx::Result<Option<PgConnection>> {
    let mut connection = options.connect().await?;
    Ok(takes_changes(&mut connection).await?.then_some(connection))
}

/// Whether a server takes changes: a standby does not.
pub(super) async fn takes_changes(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let statement =
        "SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'";
    sqlx::query_scalar(statement).fetch_one(connection).await
}

/// The URLs of single hosts that a URL of several stands for.
fn single_urls(url: &str) -> Result<Vec<String>> {
    let invalid = |reason: String| AlertsError::Invalid(format!("the URL of PostgreSQL: {reason}"));
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(invalid(
            "it is postgres://USER@HOST:PORT/DATABASE".to_owned(),
        ));
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let (path, parameters) = path.split_once('?').unwrap_or((path, ""));
    let mut kept = Vec::new();
    let hosts: Vec<&str> = hosts.split(',').collect();
    for parameter in parameters.split('&').filter(|it| !it.is_empty()) {
        match parameter.split_once('=') {
            Some((ATTRIBUTES, "read-write" | "primary")) => {}
            Some((ATTRIBUTES, "any")) if hosts.len() == 1 => {}
            Some((ATTRIBUTES, other)) => {
                return Err(invalid(format!(
                    "{ATTRIBUTES} is {other}, and only a server that can be written to is of use: leave it out, or say read-write"
                )));
            }
            _ => kept.push(parameter),
        }
    }
    if hosts.len() > 1 && hosts.iter().any(|host| host.is_empty()) {
        return Err(invalid("one of its hosts is empty".to_owned()));
    }
    let parameters = match kept.is_empty() {
        true => String::new(),
        false => format!("?{}", kept.join("&")),
    };
    let single = |host: &&str| format!("{scheme}://{user}{host}{path}{parameters}");
    Ok(hosts.iter().map(single).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_several_hosts_are_taken_apart() {
        let urls = |url| single_urls(url).unwrap();
        assert_eq!(
            urls("postgres://u:p@a:1,b/d?target_session_attrs=read-write&sslmode=require"),
            [
                "postgres://u:p@a:1/d?sslmode=require",
                "postgres://u:p@b/d?sslmode=require"
            ]
        );
        assert_eq!(urls("postgres://a/d"), ["postgres://a/d"]);
        assert_eq!(
            urls("postgresql://[::1]:5,[::2]:6"),
            ["postgresql://[::1]:5", "postgresql://[::2]:6"]
        );
        // A password may have what parts hosts, encoded or not.
        assert_eq!(
            urls("postgres://u:a,b@c:1,d:2/e"),
            ["postgres://u:a,b@c:1/e", "postgres://u:a,b@d:2/e"]
        );
        for (wrong, words) in [
            (
                "postgres://a,b/d?target_session_attrs=standby",
                "can be written to",
            ),
            (
                "postgres://a,b/d?target_session_attrs=any",
                "can be written to",
            ),
            ("postgres://a,,b/d", "is empty"),
            ("a,b", "postgres://USER"),
        ] {
            let error = single_urls(wrong).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
