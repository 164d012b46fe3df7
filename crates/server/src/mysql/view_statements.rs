//! Statements that make and drop views: an administrator's, and anybody's while there are no users.

use std::sync::Arc;

use engine::{Archive, NewView, create_view, drop_view};
use sql::ErrorCode;
use sql::mysql::{TargetTable, ViewStatement};

use super::connection::Client;
use crate::ClientError;

impl Client {
    /// Executes a statement about views.
    pub(super) async fn change_views(
        &mut self,
        statement: ViewStatement,
    ) -> Result<(), ClientError> {
        if self.shared.user.as_ref().is_some_and(|it| !it.is_admin) {
            let sentence = "views are made and dropped by administrators; CREATE TABLE ... AS SELECT makes a table of your own";
            return Err(ClientError::new(ErrorCode::TABLE_DENIED, sentence));
        }
        let archive = Arc::clone(self.shared.sessions.archive());
        let default = self.connection.database.clone();
        let changing = async move { change(&archive, statement, default).await };
        self.shared.query_runtime.compute(changing).recv_one().await
    }
}

async fn change(
    archive: &Archive,
    statement: ViewStatement,
    default: Option<String>,
) -> Result<(), ClientError> {
    match statement {
        ViewStatement::Create {
            view,
            columns,
            replace,
            query,
        } => {
            let (database, name) = named(view, default.as_deref())?;
            let new = NewView {
                database,
                name,
                definition: query,
                default_database: default,
                columns,
                description: None,
                replace,
            };
            create_view(archive, new).await?;
        }
        ViewStatement::Drop { views, if_exists } => {
            let views = views
                .into_iter()
                .map(|view| named(view, default.as_deref()));
            let views: Vec<(String, String)> = views.collect::<Result<_, _>>()?;
            for (database, name) in views {
                match drop_view(archive, &database, &name).await {
                    Err(error) if error.code() == ErrorCode::UNKNOWN_TABLE && if_exists => {}
                    dropped => dropped?,
                }
            }
        }
    }
    Ok(())
}

/// The database and the name of a view.
fn named(view: TargetTable, default: Option<&str>) -> Result<(String, String), ClientError> {
    let database = view.database.or_else(|| default.map(str::to_owned));
    let database = database.ok_or_else(|| {
        let sentence =
            "no database is chosen: write it before the view's name, or choose one with USE";
        ClientError::new(ErrorCode::NO_DATABASE_CHOSEN, sentence)
    })?;
    Ok((database, view.table))
}
