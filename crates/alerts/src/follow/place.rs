//! Where the database is that is followed.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;

use crate::error::{AlertsError, Result};

/// Where the database is that is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follows {
    /// `sqlite:///PATH` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub url: String,
    /// The schema in PostgreSQL in which the tables are, if it is not the one of the connection.
    pub schema: Option<String>,
}

pub(super) enum Place {
    File(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

impl Follows {
    pub(super) fn place(&self) -> Result<Place> {
        let wrong = || {
            AlertsError::Invalid(
                "a database to follow is given as sqlite:///PATH or postgres://USER@HOST:PORT/DATABASE".to_owned(),
            )
        };
        let (scheme, rest) = self.url.split_once(':').ok_or_else(wrong)?;
        // The field's configurations may name a driver behind the scheme.
        match scheme.split('+').next() {
            Some("sqlite") if self.schema.is_some() => Err(AlertsError::Invalid(
                "a SQLite file has no schemas: --schema-name is for PostgreSQL".to_owned(),
            )),
            Some("sqlite") => {
                let path = rest.split('?').next().unwrap_or_default();
                let path = path.trim_start_matches('/');
                match rest.starts_with("//") && !path.is_empty() {
                    true => Ok(Place::File(Path::new("/").join(path))),
                    false => Err(wrong()),
                }
            }
            Some("postgres" | "postgresql") => {
                let options = PgConnectOptions::from_str(&format!("postgres:{rest}"));
                let options = options.map_err(|error| AlertsError::Invalid(error.to_string()))?;
                Ok(Place::Postgres(Box::new(options)))
            }
            _ => Err(wrong()),
        }
    }

    /// Where it is, without a password.
    pub fn shown(&self) -> String {
        match self.place() {
            Ok(Place::File(path)) => format!("sqlite://{}", path.display()),
            Ok(Place::Postgres(options)) => {
                let schema = self.schema.as_deref();
                format!(
                    "postgres://{}@{}:{}/{}{}",
                    options.get_username(),
                    options.get_host(),
                    options.get_port(),
                    options
                        .get_database()
                        .unwrap_or_else(|| options.get_username()),
                    schema.map_or_else(String::new, |name| format!(", schema {name}"))
                )
            }
            Err(_) => "a database whose address cannot be read".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follows(url: &str) -> Follows {
        Follows {
            url: url.to_owned(),
            schema: None,
        }
    }

    #[test]
    fn addresses_are_shown_without_passwords() {
        let shown = follows("postgresql+psycopg2://ann:secret@db.example:5433/apdb").shown();
        assert_eq!(shown, "postgres://ann@db.example:5433/apdb");
        assert_eq!(follows("sqlite:///a/b.db").shown(), "sqlite:///a/b.db");
        assert_eq!(
            follows("sqlite:////a/b.db?mode=rw").shown(),
            "sqlite:///a/b.db"
        );
        for wrong in [
            "",
            "a.db",
            "sqlite:",
            "sqlite:a.db",
            "mysql://ann:secret@db/apdb",
        ] {
            let shown = follows(wrong).shown();
            assert!(
                follows(wrong).place().is_err() && !shown.contains("secret"),
                "{wrong}"
            );
        }
    }
}
