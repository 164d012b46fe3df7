//! Prepared statements that have names: PREPARE, EXECUTE and DEALLOCATE PREPARE.

use std::sync::Arc;

use sql::ErrorCode;
use sql::mysql::{PrepareCommand, PreparedText};

use super::connection::Client;
use super::query::{ResultColumns, describe};
use super::statements::{aside, to_prepare};
use super::watch::{Interruption, Watch};
use crate::ClientError;

/// A named statement with the values that EXECUTE gives it.
pub(super) struct BoundText {
    pub(super) text: String,
    /// The headings that it had when it was prepared.
    pub(super) headings: Option<Vec<String>>,
}

impl Client {
    /// Prepares a statement under a name, or forgets one.
    pub(super) async fn change_prepared(
        &mut self,
        command: PrepareCommand,
        watch: &Watch<'_>,
    ) -> Result<(), Interruption> {
        match command {
            PrepareCommand::Prepare { name, text } => self.prepare_named(&name, text, watch).await,
            PrepareCommand::Deallocate(name) => Ok(self.prepared.close_named(&name)?),
            // Its text has taken its place.
            PrepareCommand::Execute { .. } => Ok(()),
        }
    }

    /// Prepares a statement under a name. One that had the name is forgotten, whatever comes of it.
    async fn prepare_named(
        &mut self,
        name: &str,
        text: PreparedText,
        watch: &Watch<'_>,
    ) -> Result<(), Interruption> {
        // There need not be one.
        let _ = self.prepared.close_named(name);
        let text = match text {
            PreparedText::Literal(text) => text,
            PreparedText::Variable(variable) => {
                let text = self.connection.user_variables.get(&variable).text();
                text.ok_or_else(|| {
                    let sentence = format!(
                        "@{variable} is NULL: set it to the text of a statement before PREPARE"
                    );
                    ClientError::new(ErrorCode::NO_STATEMENT, sentence)
                })?
            }
        };
        let statement = aside(text.len(), || to_prepare(&text))?;
        let described = match statement.is_command {
            true => ResultColumns::default(),
            false => {
                let sessions = Arc::clone(&self.shared.sessions);
                let connection = Arc::clone(&self.connection);
                let (text, offsets) = (statement.text.clone(), statement.offsets.clone());
                let described = describe(sessions, text, offsets, connection);
                let mut described = self.shared.query_runtime.compute(described);
                let described = watch.during(&mut self.incoming, described.recv_one());
                described.await??
            }
        };
        let kept = (self.prepared).keep(statement.text, statement.offsets, &described);
        self.prepared.set_name(name, kept?);
        Ok(())
    }

    /// The text of a named statement with the values of variables in the places of its placeholders.
    pub(super) fn bound_text(
        &mut self,
        name: &str,
        variables: &[String],
    ) -> Result<BoundText, ClientError> {
        let values = &self.connection.user_variables;
        let literal = |variable: &String| values.get(variable).literal();
        let literals = variables.iter().map(literal).collect();
        let prepared = self.prepared.named(name)?;
        Ok(BoundText {
            text: prepared.bound_to(literals)?,
            headings: prepared.headings.clone(),
        })
    }
}
