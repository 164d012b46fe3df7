//! How the sky of the database is cut: as it is, as requested, or as suits the rows.

use std::sync::Arc;

use catalog::{Catalog, Database, TableKind, fold_name};

use crate::choose::{
    DEFAULT_OVERLAP_DEG, covered_fraction, default_partitioning, estimated_rows, partitioning_for,
};
use crate::directors::Directors;
use crate::error::IngestError;
use crate::format::ReadContext;
use crate::load::blocking;
use crate::plan::TablePlan;
use crate::progress::Progress;
use crate::rejected_rows::RejectedRows;
use crate::report::Partitioning;
use crate::request::LoadRequest;

/// Settles the partitioning of the request's database; gives the plan back. While nothing else depends on it, a partitioned
/// table that is not the child of a director in another database chooses it anew: in a new database, in one of replicated tables, and where it replaces the only other table.
pub(crate) async fn choose_partitioning(
    catalog: &Catalog,
    request: &LoadRequest,
    directors: &Directors,
    plan: TablePlan,
) -> Result<(TablePlan, Partitioning), IngestError> {
    let overlap_deg = match settled_cut(catalog, request, directors, plan.kind).await? {
        Cut::Settled(cut) => return Ok((plan, cut)),
        Cut::OfRows { overlap_deg } => overlap_deg,
    };
    let request = request.clone();
    blocking(move || {
        let cut = for_rows(&request, &plan, overlap_deg)?;
        Ok((plan, cut))
    })
    .await
}

/// How the sky is cut for a table.
pub(crate) enum Cut {
    /// So, whatever its rows are.
    Settled(Partitioning),
    /// As suits the rows, with this overlap.
    OfRows { overlap_deg: f64 },
}

/// What is settled of that before the rows are looked at.
pub(crate) async fn settled_cut(
    catalog: &Catalog,
    request: &LoadRequest,
    directors: &Directors,
    kind: TableKind,
) -> Result<Cut, IngestError> {
    if let Some(cut) = directors.cut_elsewhere() {
        return Ok(Cut::Settled(cut));
    }
    let database = catalog.database(&request.database).await?;
    let mut overlap_deg = DEFAULT_OVERLAP_DEG;
    if let Some(database) = &database {
        let tables = catalog.tables(&request.database).await?;
        let mut partitioned = tables
            .iter()
            .filter(|table| table.spec.kind != TableKind::Replicated)
            .filter(|table| !table.spec.is_cut_as_elsewhere())
            .peekable();
        if partitioned.peek().is_some() {
            // It was requested once, or is the default.
            overlap_deg = database.overlap_deg;
        }
        let ours = fold_name(&request.table);
        let others = partitioned.any(|table| fold_name(&table.spec.name) != ours);
        if others || request.append || kind == TableKind::Replicated {
            return Ok(Cut::Settled(of_database(database, request)?));
        }
    }
    Ok(Cut::OfRows {
        overlap_deg: request.overlap_deg.unwrap_or(overlap_deg),
    })
}

fn of_database(database: &Database, request: &LoadRequest) -> Result<Partitioning, IngestError> {
    let same = request.stripes.is_none_or(|s| s == database.stripes)
        && request
            .sub_stripes
            .is_none_or(|s| s == database.sub_stripes)
        && request
            .overlap_deg
            .is_none_or(|o| (o - database.overlap_deg).abs() < 1e-12);
    if !same {
        return Err(IngestError::Options(format!(
            "the database {:?} is cut into {} stripes of {} sub-stripes with an overlap of {} degrees, and all its \
             tables share that: leave out --stripes, --sub-stripes and --overlap, load into another database, or change \
             all of them by `meridian repartition`",
            database.name, database.stripes, database.sub_stripes, database.overlap_deg
        )));
    }
    Ok(Partitioning::of(database))
}

/// As the request says, and as suits the rows of the plan where it does not.
pub(crate) fn for_rows(
    request: &LoadRequest,
    plan: &TablePlan,
    overlap_deg: f64,
) -> Result<Partitioning, IngestError> {
    if !(0.0..=10.0).contains(&overlap_deg) {
        return Err(IngestError::Options(format!(
            "--overlap {overlap_deg} is not between 0 and 10 degrees"
        )));
    }
    let (stripes, sub_stripes) = match (request.stripes, request.sub_stripes) {
        (Some(stripes), Some(sub_stripes)) => (stripes, sub_stripes),
        (stripes, sub_stripes) => {
            let (best_stripes, best_sub_stripes) = match request.cut_of_new_database {
                Some(cut) => cut,
                None => chosen(request, plan)?,
            };
            let used = stripes.unwrap_or(best_stripes);
            // Sub-chunks of the same size whatever the number of stripes.
            let finer = (best_stripes * best_sub_stripes)
                .div_ceil(used.max(1))
                .max(1);
            (used, sub_stripes.unwrap_or(finer))
        }
    };
    let cut = Partitioning {
        stripes,
        sub_stripes,
        overlap_deg,
        chosen: request.stripes.is_none() || request.sub_stripes.is_none(),
    };
    cut.chunker()?;
    Ok(cut)
}

fn chosen(request: &LoadRequest, plan: &TablePlan) -> Result<(u32, u32), IngestError> {
    let Some(positions) = plan.positions() else {
        return Ok(default_partitioning());
    };
    // What is wrong with the sampled rows is told when they are read.
    let rejected_rows = RejectedRows::new(request.input_names(), u64::MAX);
    let context = Arc::new(ReadContext::new(
        plan.columns_to_read(),
        rejected_rows,
        Arc::new(Progress::default()),
    ));
    let mut sample = Vec::new();
    for file in &plan.files {
        sample.extend(file.sample(&context)?);
    }
    let fraction = covered_fraction(&sample, positions)?;
    Ok(partitioning_for(estimated_rows(&plan.files), fraction))
}
