//! Changing the list of a table's parts, beginning loads of several, and dropping tables: one transaction for each change.

use std::collections::HashSet;

use super::Statements;
use super::query::{Transaction, query, query_as, query_scalar};
use super::read::{ListedDatabase, database_named, loads, tables_of};
use super::rows::numbers_to_text;
use super::seal::{seal_chunks, seal_databases, seal_loads, seal_table};
use super::views::{change_view, expect_no_view, seal_views, view_rows};
use super::write::{
    add_columns, end_load, expect_running, put_chunks, put_load, put_part, show, supersede,
    supersede_all,
};
use crate::catalog::{Append, ChangedView, NewColumns, Publication};
use crate::clock::utc_now;
use crate::{
    CatalogError, Expiry, LoadId, Part, PartContents, Table, TableKind, TableSpec, fold_name,
};

/// Origins that are kept of a part that has taken the places of others again and again.
const MOST_ORIGINS: usize = 256;

impl Statements {
    pub async fn begin_loads(
        &self,
        database: &str,
        table: &str,
        count: usize,
        now: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        expect_no_view(&mut change, database, table).await?;
        let mut begun = Vec::with_capacity(count);
        for _ in 0..count {
            begun.push(put_load(&mut change, database, table, now).await?);
        }
        seal_loads(&mut change, |load| begun.contains(&LoadId(load.id))).await?;
        change.commit().await?;
        Ok(begun)
    }

    pub async fn append(
        &self,
        appends: &[Append<'_>],
        columns: &[NewColumns<'_>],
        views: &[ChangedView],
        now: &str,
    ) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        for new in columns {
            let (database, present) = unchanged(&mut change, new.table).await?;
            let first = present.spec.columns.len() as i64;
            add_columns(&mut change, present.id, first, new.columns).await?;
            seal_table(&mut change, database.row.id, present.id).await?;
            seal_databases(&mut change).await?;
        }
        for append in appends {
            append_part(&mut change, append, now).await?;
        }
        for view in views {
            change_view(&mut change, view, now).await?;
        }
        self.commit_publication(change).await?;
        Ok(())
    }

    pub async fn replace_all(
        &self,
        publications: &[Publication<'_>],
        views: &[ChangedView],
        now: &str,
    ) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        for it in publications {
            let TableSpec { database, name, .. } = &it.spec;
            let changed = || CatalogError::TableChanged {
                table: it.spec.full_name(),
            };
            loads(&mut change).await?;
            expect_running(&mut change, it.load, database, name).await?;
            let listed = database_named(&mut change, database).await?;
            let id = listed.ok_or_else(changed)?.row.id;
            let replaced = show(&mut change, id, it.load, &it.spec, it.contents, now).await?;
            if replaced != it.replaces {
                return Err(changed());
            }
            seal_databases(&mut change).await?;
            seal_loads(&mut change, |row| {
                row.id == it.load.0 || replaced.contains(&LoadId(row.id))
            })
            .await?;
        }
        for view in views {
            change_view(&mut change, view, now).await?;
        }
        self.commit_publication(change).await?;
        Ok(())
    }

    pub async fn merge_parts(
        &self,
        load: LoadId,
        table: &Table,
        merged: &[LoadId],
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        expect_running(&mut change, load, &table.spec.database, &table.spec.name).await?;
        let (database, present) = unchanged(&mut change, table).await?;
        let numbers = present.part_numbers();
        if merged.is_empty() || !numbers.windows(merged.len()).any(|run| run == merged) {
            return Err(changed(table));
        }
        let parts = || (present.parts.iter()).filter(|part| merged.contains(&part.load));
        let mut merged_from: Vec<LoadId> = parts().flat_map(Part::origins).collect();
        // Its rows were loaded when those of its parts were, whenever they are written once more.
        let loaded_at = parts().map(|part| part.loaded_at.as_str()).max();
        let loaded_at = loaded_at.unwrap_or(now).to_owned();
        merged_from.sort_unstable();
        let ordinal = query_scalar("SELECT ordinal FROM parts WHERE load_id = ?")
            .bind(merged[0].0)
            .fetch_one(&mut change)
            .await?;
        for part in merged {
            supersede(&mut change, *part, now).await?;
        }
        put_part(&mut change, present.id, ordinal, load, contents, &loaded_at).await?;
        put_origins(&mut change, load, &merged_from).await?;
        show_part(&mut change, &database, present.id, load, contents, now).await?;
        seal_databases(&mut change).await?;
        seal_loads(&mut change, |row| {
            row.id == load.0 || merged.contains(&LoadId(row.id))
        })
        .await?;
        self.commit_publication(change).await?;
        Ok(())
    }

    pub async fn drop_part(
        &self,
        database: &str,
        table: &str,
        part: LoadId,
    ) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        let (listed, found) = table_named(&mut change, database, table).await?;
        let name = found.spec.full_name();
        let parts = found.part_numbers();
        if !parts.contains(&part) {
            return Err(found.no_part(part));
        }
        if parts.len() == 1 {
            return Err(CatalogError::OnlyPart { table: name, part });
        }
        supersede(&mut change, part, &utc_now()).await?;
        seal_table(&mut change, listed.row.id, found.id).await?;
        // Rows with keys of the part stay where they are, and no index says where.
        let children = children_elsewhere(&mut change, &found).await?;
        let numbers: Vec<i64> = children.iter().map(|(_, child)| *child).collect();
        forget_placement(&mut change, &numbers).await?;
        for (database, child) in children {
            seal_table(&mut change, database, child).await?;
        }
        seal_databases(&mut change).await?;
        seal_loads(&mut change, |row| row.id == part.0).await?;
        self.commit_publication(change).await?;
        Ok(())
    }

    pub async fn publish_renamed(
        &self,
        load: LoadId,
        former: &Table,
        spec: &TableSpec,
        contents: PartContents<'_>,
        now: &str,
    ) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        expect_running(&mut change, load, &spec.database, &spec.name).await?;
        let (database, present) = unchanged(&mut change, former).await?;
        let taken = tables_of(&mut change, &database, Some(&spec.name)).await?;
        if !taken.is_empty() || present.part_numbers() != former.part_numbers() {
            return Err(changed(former));
        }
        // Its children still say whose they are: their rows are not where those of the renamed table go.
        let (was, is) = (fold_name(&former.spec.name), &spec.name);
        let mut children = children_elsewhere(&mut change, &present).await?;
        for other in tables_of(&mut change, &database, None).await? {
            if other.spec.refers_to(&spec.database, &was) {
                children.push((database.row.id, other.id));
            }
        }
        query("UPDATE tables SET name = ?, folded_name = ? WHERE id = ?")
            .bind(&spec.name)
            .bind(fold_name(&spec.name))
            .bind(present.id)
            .execute(&mut change)
            .await?;
        // What is said of it is kept where it fits its checksum, which covers the name.
        seal_table(&mut change, database.row.id, present.id).await?;
        for (of, child) in children {
            rename_director(&mut change, child, &was, is).await?;
            seal_table(&mut change, of, child).await?;
        }
        // Now it is a table that is loaded anew, of which all stays that is said.
        let replaced = show(&mut change, database.row.id, load, spec, contents, now).await?;
        seal_databases(&mut change).await?;
        seal_loads(&mut change, |row| {
            row.id == load.0 || replaced.contains(&LoadId(row.id))
        })
        .await?;
        self.commit_publication(change).await?;
        Ok(())
    }

    pub async fn drop_table(
        &self,
        database: &str,
        table: &str,
        expired_by: Option<&str>,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        let (listed, found) = table_named(&mut change, database, table).await?;
        if let Some(now) = expired_by
            && found.expires_at.as_deref().is_none_or(|time| time > now)
        {
            return Err(CatalogError::TableChanged {
                table: found.spec.full_name(),
            });
        }
        let folded = fold_name(&found.spec.name);
        let all = tables_of(&mut change, &listed, None).await?;
        let depends = |other: &&Table| other.spec.refers_to(database, &folded);
        let dependents: Vec<String> = (all.iter().filter(depends))
            .map(|other| other.spec.name.clone())
            .collect();
        if !dependents.is_empty() {
            return Err(CatalogError::HasDependents {
                table: found.spec.full_name(),
                dependents,
            });
        }
        let parts = remove_table(&mut change, found.id).await?;
        seal_databases(&mut change).await?;
        seal_loads(&mut change, |row| parts.contains(&LoadId(row.id))).await?;
        self.commit_publication(change).await?;
        Ok(parts)
    }

    pub async fn set_expiry(
        &self,
        database: &str,
        table: &str,
        expiry: Expiry,
    ) -> Result<bool, CatalogError> {
        let mut change = self.begin_write().await?;
        let (listed, found) = table_named(&mut change, database, table).await?;
        if found.expires_at == expiry.after || !expiry.replaces(found.expires_at.as_deref()) {
            return Ok(false);
        }
        query("UPDATE tables SET expires_at = ? WHERE id = ?")
            .bind(&expiry.after)
            .bind(found.id)
            .execute(&mut change)
            .await?;
        seal_table(&mut change, listed.row.id, found.id).await?;
        seal_databases(&mut change).await?;
        self.commit_publication(change).await?;
        Ok(true)
    }

    pub async fn drop_database(&self, database: &str) -> Result<(), CatalogError> {
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        view_rows(&mut change).await?;
        let listed = database_named(&mut change, database).await?;
        let listed = listed.ok_or_else(|| CatalogError::NoDatabase {
            database: database.to_owned(),
        })?;
        let mut parts = HashSet::new();
        for table in &listed.tables {
            parts.extend(remove_table(&mut change, table.id).await?);
        }
        query("DELETE FROM databases WHERE id = ?")
            .bind(listed.row.id)
            .execute(&mut change)
            .await?;
        seal_databases(&mut change).await?;
        // Its views have gone with it (ON DELETE CASCADE).
        seal_views(&mut change, |_| false).await?;
        seal_loads(&mut change, |row| parts.contains(&LoadId(row.id))).await?;
        self.commit_publication(change).await?;
        Ok(())
    }
}

/// Adds a part to a table. Everything is sealed afterwards, so that another one can be added in the same transaction.
pub(super) async fn append_part(
    change: &mut Transaction<'_>,
    append: &Append<'_>,
    now: &str,
) -> Result<(), CatalogError> {
    let Append {
        load,
        table,
        contents,
        unsettled,
        replaces,
    } = *append;
    loads(change).await?;
    expect_running(change, load, &table.spec.database, &table.spec.name).await?;
    let (database, present) = unchanged(change, table).await?;
    let ordinal = match replaces {
        [] => next_ordinal(change, present.id).await?,
        [first, ..] => {
            if !present.part_numbers().ends_with(replaces) {
                return Err(changed(table));
            }
            let ordinal = query_scalar("SELECT ordinal FROM parts WHERE load_id = ?")
                .bind(first.0)
                .fetch_one(&mut *change)
                .await?;
            for part in replaces {
                supersede(change, *part, now).await?;
            }
            ordinal
        }
    };
    put_part(change, present.id, ordinal, load, contents, now).await?;
    if table.spec.kind == TableKind::Director && !replaces.is_empty() {
        // A child that is being placed by the parts that are replaced finds that their keys are still there.
        let replaced = (present.parts.iter()).filter(|part| replaces.contains(&part.load));
        let mut origins: Vec<LoadId> = replaced.flat_map(Part::origins).chain([load]).collect();
        origins.sort_unstable();
        put_origins(change, load, latest_of(&origins)).await?;
    }
    show_part(change, &database, present.id, load, contents, now).await?;
    if table.spec.is_cut_as_elsewhere() && contents.orphan_rows > 0 {
        forget_placement(change, &[present.id]).await?;
        seal_table(change, database.row.id, present.id).await?;
    }
    for name in unsettled {
        unsettle(change, &database, name, table).await?;
    }
    seal_databases(change).await?;
    seal_loads(change, |row| {
        row.id == load.0 || replaces.contains(&LoadId(row.id))
    })
    .await
}

/// Writes down which loads' rows a part has.
async fn put_origins(
    change: &mut Transaction<'_>,
    part: LoadId,
    origins: &[LoadId],
) -> Result<(), CatalogError> {
    query("UPDATE parts SET merged_from = ? WHERE load_id = ?")
        .bind(numbers_to_text(origins))
        .bind(part.0)
        .execute(change)
        .await?;
    Ok(())
}

/// As many of the origins of a part as are kept of one that grows with every few rows: whoever has begun before the others were added
/// begins anew.
fn latest_of(origins: &[LoadId]) -> &[LoadId] {
    &origins[origins.len().saturating_sub(MOST_ORIGINS)..]
}

fn changed(table: &Table) -> CatalogError {
    CatalogError::TableChanged {
        table: table.spec.full_name(),
    }
}

pub(super) async fn table_named(
    change: &mut Transaction<'_>,
    database: &str,
    table: &str,
) -> Result<(ListedDatabase, Table), CatalogError> {
    let missing = || CatalogError::NoTable {
        table: format!("{database}.{table}"),
    };
    let listed = database_named(change, database).await?;
    let listed = listed.ok_or_else(missing)?;
    let found = tables_of(change, &listed, Some(table)).await?.pop();
    Ok((listed, found.ok_or_else(missing)?))
}

/// The table as it is now, which has the placement, the columns and the directors that it had when a load of it began.
async fn unchanged(
    change: &mut Transaction<'_>,
    then: &Table,
) -> Result<(ListedDatabase, Table), CatalogError> {
    let found = table_named(change, &then.spec.database, &then.spec.name).await;
    match found {
        Ok((database, now))
            if (now.id, now.placement) == (then.id, then.placement) && now.spec == then.spec =>
        {
            Ok((database, now))
        }
        Ok(_) | Err(CatalogError::NoTable { .. }) => Err(changed(then)),
        Err(error) => Err(error),
    }
}

/// The children of a table in other databases, each behind the number of its database.
async fn children_elsewhere(
    change: &mut Transaction<'_>,
    director: &Table,
) -> Result<Vec<(i64, i64)>, CatalogError> {
    let rows: Vec<(i64, i64, String, String)> = query_as(
        "SELECT t.database_id, t.id, d.director_database, d.director \
         FROM table_directors d JOIN tables t ON t.id = d.table_id WHERE d.director_database IS NOT NULL",
    )
    .fetch_all(change)
    .await?;
    let name = (
        fold_name(&director.spec.database),
        fold_name(&director.spec.name),
    );
    let children = rows.into_iter();
    let children = children
        .filter(|(_, _, database, table)| (fold_name(database), fold_name(table)) == name)
        .map(|(database, child, ..)| (database, child));
    Ok(children.collect())
}

/// Does not take children for placed by their directors any more.
async fn forget_placement(
    change: &mut Transaction<'_>,
    children: &[i64],
) -> Result<(), CatalogError> {
    for child in children {
        query("UPDATE table_directors SET director_placement = NULL WHERE table_id = ?")
            .bind(child)
            .execute(&mut *change)
            .await?;
    }
    Ok(())
}

/// Gives the director of a table another name.
async fn rename_director(
    change: &mut Transaction<'_>,
    table: i64,
    was: &str,
    is: &str,
) -> Result<(), CatalogError> {
    let directors: Vec<(i64, String)> =
        query_as("SELECT ordinal, director FROM table_directors WHERE table_id = ?")
            .bind(table)
            .fetch_all(&mut *change)
            .await?;
    for (ordinal, _) in directors.iter().filter(|(_, name)| fold_name(name) == was) {
        query("UPDATE table_directors SET director = ? WHERE table_id = ? AND ordinal = ?")
            .bind(is)
            .bind(table)
            .bind(ordinal)
            .execute(&mut *change)
            .await?;
    }
    Ok(())
}

async fn next_ordinal(change: &mut Transaction<'_>, table: i64) -> Result<i64, CatalogError> {
    let last: Option<i64> = query_scalar("SELECT max(ordinal) FROM parts WHERE table_id = ?")
        .bind(table)
        .fetch_one(change)
        .await?;
    Ok(last.map_or(0, |last| last + 1))
}

/// The chunks of a part that is in the list, and the state of its load. Seals the table and the chunks.
async fn show_part(
    change: &mut Transaction<'_>,
    database: &ListedDatabase,
    table: i64,
    load: LoadId,
    contents: PartContents<'_>,
    now: &str,
) -> Result<(), CatalogError> {
    put_chunks(change, load, contents.chunks).await?;
    end_load(change, load, "published", now).await?;
    seal_table(change, database.row.id, table).await?;
    seal_chunks(change, load).await
}

/// Notes that a match table has pairs with keys of `director` that lie elsewhere than the director's rows.
async fn unsettle(
    change: &mut Transaction<'_>,
    database: &ListedDatabase,
    name: &str,
    director: &Table,
) -> Result<(), CatalogError> {
    let Some(table) = tables_of(change, database, Some(name)).await?.pop() else {
        return Ok(());
    };
    for (ordinal, reference) in (0_i64..).zip(&table.spec.directors) {
        if fold_name(&reference.table) != fold_name(&director.spec.name) {
            continue;
        }
        query(
            "UPDATE table_directors SET director_placement = NULL WHERE table_id = ? AND ordinal = ?",
        )
        .bind(table.id)
        .bind(ordinal)
        .execute(&mut *change)
        .await?;
    }
    seal_table(change, database.row.id, table.id).await
}

/// Removes a table and gives its parts. Columns and directors go with it (ON DELETE CASCADE).
async fn remove_table(
    change: &mut Transaction<'_>,
    table: i64,
) -> Result<Vec<LoadId>, CatalogError> {
    let parts = supersede_all(change, table, &utc_now()).await?;
    query("DELETE FROM tables WHERE id = ?")
        .bind(table)
        .execute(change)
        .await?;
    Ok(parts)
}
