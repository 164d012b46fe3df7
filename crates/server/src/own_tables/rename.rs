//! RENAME TABLE, and ALTER TABLE ... RENAME TO.
//!
//! Files lie where their table's name says, and never move: the rows are written anew under the new name, and one transaction of the
//! catalog shows them under it and the table no more under the old one.

use catalog::fold_name;
use sql::ErrorCode;
use sql::mysql::TargetTable;

use super::{ATTEMPTS, Change, Filling, OwnTable, RowSource, TableStatements, of_load, quoted};
use crate::ClientError;

/// A table that gets another name.
struct TableRename {
    from: OwnTable,
    /// What the load of the new table is like.
    template: Change,
}

impl TableStatements {
    /// Gives a table another name in its database.
    pub(super) async fn rename(
        &self,
        from: TargetTable,
        to: TargetTable,
    ) -> Result<(), ClientError> {
        let (from, to) = (self.table(from)?, self.table(to)?);
        if !from.shares_database(&to) {
            let sentence = "a table stays in its database: CREATE TABLE other.name AS SELECT * FROM it makes one elsewhere";
            return Err(ClientError::new(ErrorCode::NOT_SUPPORTED, sentence));
        }
        let turn = self.shared.table_turns.of(&fold_name(&from.shown()));
        let _turn = turn.lock().await;
        for _ in 0..ATTEMPTS {
            from.find().await?;
            if to.is_there().await? {
                return Err(to.exists());
            }
            let renaming = TableRename {
                from: from.clone(),
                template: self.filling(to.clone(), RowSource::NONE, Filling::New(None)),
            };
            let mut computed = self.shared.query_runtime.compute(renaming.run());
            if computed.recv_one().await? {
                return Ok(());
            }
        }
        Err(from.is_busy())
    }
}

impl TableRename {
    /// Renames the table, unless others have changed it meanwhile.
    async fn run(self) -> Result<bool, ClientError> {
        let found = self.from.find().await?;
        let former = found.table.clone();
        let spec = &former.spec;
        let layout = self.template.layout_anew(&self.from, spec).await?;
        let columns = spec.columns.clone();
        let selected: Vec<String> = columns.iter().map(|it| quoted(&it.name)).collect();
        let query = format!("SELECT {} FROM {}", selected.join(", "), self.from.quoted());
        let (directory, _) = self.template.written(&query, &columns, false).await?;
        self.from.check_still_own().await?;
        let filling = Filling::Renamed {
            columns,
            former: Box::new(former),
        };
        match self.template.load(directory.path(), filling, layout).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_change() => Ok(false),
            Err(error) => Err(of_load(error)),
        }
    }
}
