//! The manifest of what a load has written.

use catalog::{LoadId, TableSpec};
use store::{LoadDir, PartManifest, PartPartitioning};

use crate::error::IngestError;
use crate::fault;
use crate::load::blocking;
use crate::pipeline::Outcome;
use crate::report::Partitioning;
use crate::request::LoadRequest;

/// Writes the manifest of a load whose files are complete, before anybody can see the load.
pub(crate) async fn write_manifest(
    request: &LoadRequest,
    load: LoadId,
    spec: TableSpec,
    partitioning: Partitioning,
    outcome: &Outcome,
    unknown_ends: Option<[u64; 2]>,
) -> Result<(), IngestError> {
    let LoadRequest {
        data_dir,
        database,
        table,
        ..
    } = request;
    let dir = LoadDir::open(data_dir, database, table, load)?;
    let partitioning = PartPartitioning {
        stripes: partitioning.stripes,
        sub_stripes: partitioning.sub_stripes,
        overlap_deg: partitioning.overlap_deg,
    };
    let manifest = PartManifest::new(load, spec, partitioning, outcome.rows, &outcome.chunks)
        .with_unknown_ends(unknown_ends);
    blocking(move || Ok(manifest.write(dir.path())?)).await?;
    fault::reached("manifest-written")
}
