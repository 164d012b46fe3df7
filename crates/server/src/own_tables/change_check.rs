//! Mistakes in the expressions of an UPDATE or a DELETE: they are found before it is executed, and told as those of the statement that was
//! typed, never as those of the query that it is executed as.

use catalog::{TableKind, TableSpec};
use engine::EngineError;
use sql::mysql::ChangeCheck;
use sql::{ErrorCode, Interrupt};

use super::Change;
use crate::ClientError;

/// What queries of the server's own call columns and functions that nobody has typed.
const OWN_NAMES: [&str; 5] = ["mysql_store", "#matched", "#row", "#before", "#changed"];

impl Change {
    /// Sees that the expressions of an UPDATE or a DELETE of a table, which is named so in a query, can be evaluated.
    ///
    /// # Errors
    /// One cannot; the place of the mistake is in the statement.
    pub(crate) async fn check_expressions(
        &self,
        statement: &str,
        table: &str,
        spec: &TableSpec,
    ) -> Result<(), ClientError> {
        let has_position = spec.position.is_some() && spec.kind != TableKind::Replicated;
        let Some(check) = ChangeCheck::of(statement, table, has_position)? else {
            return Ok(());
        };
        let session = self
            .sessions
            .of(self.connection.database.as_deref())
            .await?;
        let planned = session.describe(check.query(), &self.connection, None);
        // What is noticed of its constants is told once, when the statement is executed.
        match Interrupt::new().scope(Box::pin(planned)).await {
            Ok(_) => Ok(()),
            Err(EngineError::Sql(error)) => Err(check.placed(error).into()),
            Err(other) => Err(other.into()),
        }
    }
}

/// The error of a query that the server has written itself: of its text nothing is told.
pub(super) fn of_own_query(error: EngineError) -> ClientError {
    let told = match error {
        EngineError::Sql(error) => ClientError::from(error.without_place()),
        other => other.into(),
    };
    if !OWN_NAMES.iter().any(|name| told.sentence.contains(name)) {
        return told;
    }
    tracing::error!(
        mistake = told.sentence,
        "a query of the server's own is wrong"
    );
    let sentence = "the statement cannot be executed, though nothing is wrong with its expressions: compute the values in a query, as in CREATE TABLE other AS SELECT ...";
    ClientError::new(ErrorCode::NOT_SUPPORTED, sentence)
}

#[cfg(test)]
mod tests {
    use sql::SqlError;

    use super::*;

    /// "there is no column nope; columns here: id, #matched, #row (line 1, column 255)" was told of an UPDATE.
    #[test]
    fn nothing_is_told_of_a_query_of_the_servers_own() {
        let query = "SELECT mysql_store((a DIV b), `#row`, 'a', 'INT') FROM `#0`";
        let error = SqlError::about(query, "a", "a and b have no quotient");
        let told = of_own_query(error.with_code(ErrorCode::WRONG_ARGUMENTS).into());
        assert_eq!(told.sentence, "a and b have no quotient");
        assert_eq!(told.code, ErrorCode::WRONG_ARGUMENTS);
        let error = SqlError::about(query, "nope", "columns here: a, #row");
        let told = of_own_query(error.into());
        assert_eq!(told.code, ErrorCode::NOT_SUPPORTED);
        assert!(!told.sentence.contains('#'), "{}", told.sentence);
    }
}
