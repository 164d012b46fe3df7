//! Which columns of a crossmatch's side are the position.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;

use crate::files::FileTable;
use crate::provider::ArchiveTable;
use catalog::fold_name;

/// What columns of right ascension and declination are usually called, folded.
const USUAL_NAMES: [[&str; 2]; 11] = [
    ["ra", "dec"],
    ["ra", "decl"],
    ["ra_ps", "decl_ps"],
    ["raj2000", "dej2000"],
    ["ra_j2000", "dec_j2000"],
    ["ra_icrs", "de_icrs"],
    ["_raj2000", "_dej2000"],
    ["_ra", "_de"],
    ["_ra_icrs", "_de_icrs"],
    ["alpha_j2000", "delta_j2000"],
    ["coord_ra", "coord_dec"],
];

/// The columns of right ascension and declination of a side, by their (folded) names.
///
/// They are those that the user named; else those that the tables of the side declare, if the side has one such pair; else the
/// only pair with a usual name.
///
/// # Errors
/// A sentence with the columns that there are, where none or several pairs could be meant. `side` is what the side is called
/// in it, `columns` are the side's columns.
pub(super) fn find(
    side: &str,
    plan: &LogicalPlan,
    columns: &[String],
    named: Option<&[String; 2]>,
) -> Result<[String; 2], String> {
    let has = |pair: &[String; 2]| pair.iter().all(|name| columns.contains(name));
    if let Some(named) = named {
        return match named.iter().find(|name| !columns.contains(*name)) {
            None => Ok(named.clone()),
            Some(missing) => Err(format!(
                "the {side} side has no column {missing}; it has {}",
                listing(columns)
            )),
        };
    }
    let mut declared = declared(plan);
    declared.retain(has);
    if let [only] = declared.as_slice() {
        return Ok(only.clone());
    }
    let usual = USUAL_NAMES.map(|pair| pair.map(str::to_owned));
    declared.extend(usual.into_iter().filter(has));
    declared.sort();
    declared.dedup();
    let explicit = format!("say which, as in {side}_ra => ..., {side}_dec => ...");
    match declared.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(format!(
            "it is not known which columns of the {side} side are its position: {explicit}; it has {}",
            listing(columns)
        )),
        several => {
            let pairs: Vec<String> = several.iter().map(|pair| pair.join(" and ")).collect();
            Err(format!(
                "the {side} side's position could be {}: {explicit}",
                pairs.join(", or ")
            ))
        }
    }
}

/// The position columns that the tables and files of a plan declare, each pair once.
fn declared(plan: &LogicalPlan) -> Vec<[String; 2]> {
    let mut found: Vec<[String; 2]> = Vec::new();
    // The closure cannot fail.
    let _ = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
        {
            let pair = if let Some(table) = provider.downcast_ref::<ArchiveTable>() {
                let position = table.table.spec().position.as_ref();
                position.map(|position| [&position.ra, &position.dec].map(|name| fold_name(name)))
            } else {
                let file = provider.downcast_ref::<FileTable>();
                file.and_then(FileTable::position)
            };
            found.extend(pair);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found.sort();
    found.dedup();
    found
}

fn listing(columns: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = columns.iter().take(SHOWN).cloned().collect::<Vec<_>>();
    let shown = shown.join(", ");
    match columns.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
