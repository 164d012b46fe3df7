//! What is granted, as it is written on the command line.

use std::str::FromStr;

use catalog::Catalog;
use users::Grant;

use crate::console::remark;
use crate::failure::Failure;

/// A database, a table of one, or columns of a table.
#[derive(Debug, Clone)]
pub(super) struct GrantName {
    database: String,
    table: Option<String>,
    columns: Vec<String>,
}

impl FromStr for GrantName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no database, table or columns: write it as in sky, sky.Object or 'sky.Object(ra,dec)'"
            )
        };
        let (names, columns) = match text.split_once('(') {
            Some((names, rest)) => {
                let columns = rest.strip_suffix(')').ok_or_else(wrong)?;
                let columns = columns.split(',').map(|name| name.trim().to_owned());
                (names.trim_end(), columns.collect())
            }
            None => (text, Vec::new()),
        };
        let (database, table) = match names.split_once('.') {
            Some((database, "*")) => (database, None),
            Some((database, table)) => (database, Some(table.to_owned())),
            None => (names, None),
        };
        let is_name =
            |name: &str| !name.is_empty() && !name.contains(['.', '(', ')']) && name.trim() == name;
        let are_names = is_name(database)
            && table.as_deref().is_none_or(is_name)
            && columns.iter().all(|name: &String| is_name(name));
        match are_names && (columns.is_empty() || table.is_some()) {
            true => Ok(Self {
                database: database.to_owned(),
                table,
                columns,
            }),
            false => Err(wrong()),
        }
    }
}

impl GrantName {
    pub fn is_of_columns(&self) -> bool {
        !self.columns.is_empty()
    }

    pub fn grants(&self) -> Vec<Grant> {
        match &self.table {
            Some(table) if !self.columns.is_empty() => { self.columns.iter() }
                .map(|column| Grant::of_column(&self.database, table, column))
                .collect(),
            table => vec![Grant::new(&self.database, table.as_deref())],
        }
    }

    /// Remarks on a grant of what is not there.
    pub async fn note_missing(&self, catalog: &Catalog) -> Result<(), Failure> {
        let there = match &self.table {
            None => catalog.database(&self.database).await?.map(|_| vec![]),
            Some(table) => self.columns_of(catalog, table).await?,
        };
        let name = Grant::new(&self.database, self.table.as_deref());
        let note = |what: &str| {
            remark(&format!(
                "note: there is no {what} yet; the grant counts once there is"
            ));
        };
        let Some(there) = there else {
            note(&name.to_string());
            return Ok(());
        };
        for column in &self.columns {
            let folded = catalog::fold_name(column);
            if !there.iter().any(|it| catalog::fold_name(it) == folded) {
                note(&format!("column {column} of {name}"));
            }
        }
        Ok(())
    }

    /// The columns of a table or a view, if it is there.
    async fn columns_of(
        &self,
        catalog: &Catalog,
        table: &str,
    ) -> Result<Option<Vec<String>>, Failure> {
        if let Some(found) = catalog.table(&self.database, table).await? {
            let columns = found.spec.columns.into_iter();
            return Ok(Some(columns.map(|column| column.name).collect()));
        }
        let view = catalog.view(&self.database, table).await?;
        Ok(view.map(|view| view.query.columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_grants() {
        let read = |text: &str| {
            let name = text.parse::<GrantName>();
            name.map(|it| Grant::texts(&it.grants()).concat())
        };
        assert_eq!(read("Sky").unwrap(), "sky");
        assert_eq!(read("sky.*").unwrap(), "sky");
        assert_eq!(read("Sky.Object").unwrap(), "sky.object");
        let columns = "sky.object(dec, ra)";
        assert_eq!(read("sky.Object(RA,dec)").unwrap(), columns);
        assert_eq!(read("sky.Object (ra, dec)").unwrap(), columns);
        for wrong in [
            "",
            ".x",
            "sky.",
            "a.b.c",
            " sky",
            "sky(ra)",
            "sky.*(ra)",
            "a.b()",
            "a.b(c",
            "a.b(c,)",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
