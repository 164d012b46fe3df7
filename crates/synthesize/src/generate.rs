//! A catalogue from nothing: Object, Source and ForcedSource with known statistics.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use sky::{ChunkId, Chunker};

use crate::catalogue::{Batches, Catalogue, Role, Table};
use crate::error::SynthesizeError;
use crate::footprint::{Extent, Footprint};
use crate::objects::{self, BLOCK_ROWS, BlockPlace, ObjectBlock, ObjectColumn};
use crate::observations::{self, EPOCH_BITS, Epoch, FIRST_SOURCE_ID, forced_schema, source_schema};
use crate::photometry::Band;

/// Blocks of a chunk that are kept from epoch to epoch (about 3.5 MB each); those of a larger chunk are made anew for
/// every epoch, so that memory stays bounded.
const BLOCKS_KEPT: u64 = 24;

/// What a generated catalogue is to be.
#[derive(Debug, Clone)]
pub struct GenerateOptions {
    /// How many objects, and where.
    pub extent: Extent,
    /// The stripes of the partitioning whose chunks are made one by one. They are part of what a seed means.
    pub stripes: u32,
    /// Rows of Source for each object; 0 for no such table.
    pub epochs: u32,
    /// Rows of ForcedSource for each object; 0 for no such table.
    pub forced_epochs: u32,
    /// The bands of the sources, in their cycle.
    pub bands: Vec<Band>,
    /// The same seed gives the same rows.
    pub seed: u64,
    /// The tables to make, by name; all that have rows if absent.
    pub tables: Option<Vec<String>>,
    /// The columns of Object, by name; all if absent.
    pub columns: Option<Vec<String>>,
}

impl GenerateOptions {
    /// Object and five epochs of Source in all six bands.
    pub fn new(extent: Extent, stripes: u32) -> Self {
        Self {
            extent,
            stripes,
            epochs: 5,
            forced_epochs: 0,
            bands: Band::ALL.to_vec(),
            seed: 1,
            tables: None,
            columns: None,
        }
    }
}

/// The tables that can be generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    Source,
    ForcedSource,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Object, Kind::Source, Kind::ForcedSource];

    fn name(self) -> &'static str {
        match self {
            Self::Object => "Object",
            Self::Source => "Source",
            Self::ForcedSource => "ForcedSource",
        }
    }
}

/// A catalogue made from nothing.
#[derive(Debug)]
pub struct GeneratedCatalogue {
    footprint: Footprint,
    chunks: Vec<ChunkId>,
    /// For each chunk the objects before it, and at the end all of them.
    before: Vec<u64>,
    kinds: Vec<Kind>,
    tables: Vec<Table>,
    columns: Vec<ObjectColumn>,
    epochs: u32,
    forced_epochs: u32,
    bands: Vec<Band>,
    seed: u64,
}

impl GeneratedCatalogue {
    /// Settles what each chunk will hold; makes no rows yet.
    ///
    /// # Errors
    /// Unknown tables or columns, tables without epochs, more rows than there are keys.
    pub fn new(options: GenerateOptions) -> Result<Self, SynthesizeError> {
        let columns = chosen_columns(options.columns.as_deref())?;
        let kinds = chosen_kinds(&options)?;
        check_numbers(&options)?;
        let chunker = Chunker::new(options.stripes, 1)?;
        let mut footprint = Footprint::new(chunker, options.extent.region);
        let before = cumulative_rows(&mut footprint, options.extent.objects);
        Ok(Self {
            chunks: footprint.pieces.iter().map(|piece| piece.chunk).collect(),
            tables: kinds.iter().map(|kind| table(*kind, &columns)).collect(),
            footprint,
            before,
            kinds,
            columns,
            epochs: options.epochs,
            forced_epochs: options.forced_epochs,
            bands: options.bands,
            seed: options.seed,
        })
    }

    fn objects_in(&self, chunk: usize) -> u64 {
        self.before[chunk + 1] - self.before[chunk]
    }

    fn epochs_of(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Object => 1,
            Kind::Source => self.epochs,
            Kind::ForcedSource => self.forced_epochs,
        }
    }
}

fn wrong(sentence: impl Into<String>) -> SynthesizeError {
    SynthesizeError::Options(sentence.into())
}

fn chosen_columns(wanted: Option<&[String]>) -> Result<Vec<ObjectColumn>, SynthesizeError> {
    let all = ObjectColumn::all();
    let Some(wanted) = wanted else {
        return Ok(all);
    };
    let name_of = |column: &ObjectColumn| column.field().name().clone();
    let is_wanted = |column: &ObjectColumn, name: &str| name_of(column).eq_ignore_ascii_case(name);
    for name in wanted {
        if !all.iter().any(|column| is_wanted(column, name)) {
            return Err(SynthesizeError::NoSuchColumn {
                table: Kind::Object.name().to_owned(),
                wanted: name.clone(),
                there: all.iter().map(name_of).collect::<Vec<_>>().join(", "),
            });
        }
    }
    let mut chosen = all;
    chosen.retain(|column| wanted.iter().any(|name| is_wanted(column, name)));
    Ok(chosen)
}

fn chosen_kinds(options: &GenerateOptions) -> Result<Vec<Kind>, SynthesizeError> {
    let has_epochs = |kind: &Kind| match kind {
        Kind::Object => true,
        Kind::Source => options.epochs > 0,
        Kind::ForcedSource => options.forced_epochs > 0,
    };
    let Some(wanted) = &options.tables else {
        return Ok(Kind::ALL.into_iter().filter(has_epochs).collect());
    };
    let mut kinds = Vec::new();
    for name in wanted {
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name));
        let kind = kind.ok_or_else(|| SynthesizeError::NoSuchTable {
            wanted: name.clone(),
            there: Kind::ALL.map(Kind::name).join(", "),
        })?;
        if !has_epochs(&kind) {
            return Err(wrong(format!(
                "{} has no rows: give it epochs (--epochs for Source, --forced-epochs for ForcedSource)",
                kind.name()
            )));
        }
        kinds.push(kind);
    }
    Ok(Kind::ALL
        .into_iter()
        .filter(|kind| kinds.contains(kind))
        .collect())
}

fn check_numbers(options: &GenerateOptions) -> Result<(), SynthesizeError> {
    if options.bands.is_empty() {
        return Err(wrong(
            "sources need at least one band, for example --bands ugrizy",
        ));
    }
    let most = options.epochs.max(options.forced_epochs);
    if most >= 1 << EPOCH_BITS {
        return Err(wrong(format!(
            "{most} epochs are too many: give less than {}",
            1 << EPOCH_BITS
        )));
    }
    let rows = options.extent.objects.checked_mul(u64::from(most.max(1)));
    let keys_left = (i64::MAX - FIRST_SOURCE_ID) as u64;
    // Rows are shared out among chunks in floating point, which counts to 2^53.
    let countable = options.extent.objects < 1 << 53;
    if !countable || rows.is_none_or(|rows| rows > keys_left) {
        return Err(wrong(format!(
            "{} objects of {most} epochs are more rows than there are keys: give fewer",
            options.extent.objects
        )));
    }
    Ok(())
}

/// Shares the objects out among the chunks by their areas and drops the chunks that get none. A chunk's first object
/// follows from the areas before it, so that nothing depends on which chunks are made.
fn cumulative_rows(footprint: &mut Footprint, objects: u64) -> Vec<u64> {
    let whole = footprint.area();
    let mut area = 0.0;
    let mut before = vec![0];
    let mut last = 0;
    let mut left = footprint.pieces.len();
    footprint.pieces.retain(|piece| {
        area += piece.area;
        left -= 1;
        let share = (objects as f64 * (area / whole)).round() as u64;
        let reached = if left == 0 {
            objects
        } else {
            share.clamp(last, objects)
        };
        let has_rows = reached > last;
        if has_rows {
            before.push(reached);
            last = reached;
        }
        has_rows
    });
    before
}

fn table(kind: Kind, columns: &[ObjectColumn]) -> Table {
    let name = |text: &str| text.to_owned();
    let key = name("objectId");
    let child = |own_key: &str, position| Role::Child {
        director: name(Kind::Object.name()),
        key: key.clone(),
        own_key: Some(name(own_key)),
        order: Some(name("taiMidPoint")),
        position,
    };
    let (schema, role, few_values) = match kind {
        Kind::Object => (
            objects::schema(columns),
            Role::Director {
                key: key.clone(),
                position: [name("ra_PS"), name("decl_PS")],
            },
            vec![name("extendedness"), name("flags")],
        ),
        Kind::Source => (
            source_schema(),
            child("sourceId", Some([name("ra"), name("decl")])),
            vec![name("filterId")],
        ),
        Kind::ForcedSource => (
            forced_schema(),
            child("exposureId", None),
            vec![name("exposureId"), name("taiMidPoint"), name("filterId")],
        ),
    };
    Table {
        name: name(kind.name()),
        schema: Arc::new(schema),
        role,
        few_values,
    }
}

impl Catalogue for GeneratedCatalogue {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn chunks(&self) -> &[ChunkId] {
        &self.chunks
    }

    fn rows(&self, table: usize, chunk: usize) -> u64 {
        self.objects_in(chunk) * u64::from(self.epochs_of(self.kinds[table]))
    }

    fn counts_are_exact(&self) -> bool {
        true
    }

    fn batches(self: Arc<Self>, table: usize, chunk: usize) -> Batches {
        let rows = self.objects_in(chunk);
        Box::new(ChunkRows {
            kind: self.kinds[table],
            schema: self.tables[table].schema.clone(),
            chunk,
            blocks: rows.div_ceil(BLOCK_ROWS),
            kept: Vec::new(),
            epoch: 0,
            block: 0,
            catalogue: self,
        })
    }
}

/// Makes the rows of one table in one chunk, epoch after epoch, block after block.
struct ChunkRows {
    catalogue: Arc<GeneratedCatalogue>,
    kind: Kind,
    schema: SchemaRef,
    chunk: usize,
    blocks: u64,
    /// The objects of the chunk's blocks, where they are few enough to be kept for the next epoch.
    kept: Vec<Arc<ObjectBlock>>,
    epoch: u32,
    block: u64,
}

impl ChunkRows {
    /// The chunk's rows are cut into blocks of nearly equal size.
    fn place(&self) -> BlockPlace<'_> {
        let catalogue = &self.catalogue;
        let rows = catalogue.objects_in(self.chunk);
        let bound =
            |block: u64| (u128::from(rows) * u128::from(block) / u128::from(self.blocks)) as u64;
        let first = bound(self.block);
        BlockPlace {
            seed: catalogue.seed,
            footprint: &catalogue.footprint,
            piece: &catalogue.footprint.pieces[self.chunk],
            block: self.block,
            first: catalogue.before[self.chunk] + first,
            rows: (bound(self.block + 1) - first) as usize,
        }
    }

    fn objects_with_fluxes(&mut self) -> Arc<ObjectBlock> {
        if let Some(kept) = self.kept.get(self.block as usize) {
            return kept.clone();
        }
        let made = Arc::new(ObjectBlock::make(&self.place(), &self.catalogue.bands));
        if self.blocks <= BLOCKS_KEPT {
            self.kept.push(made.clone());
        }
        made
    }

    /// Source keys count the chunks before, then the epochs before, then the objects before.
    fn first_source_key(&self, place: &BlockPlace<'_>) -> i64 {
        let catalogue = &self.catalogue;
        let before = catalogue.before[self.chunk];
        let number = before * u64::from(catalogue.epochs)
            + u64::from(self.epoch) * catalogue.objects_in(self.chunk)
            + (place.first - before);
        FIRST_SOURCE_ID + number as i64
    }

    fn make(&mut self) -> Result<RecordBatch, SynthesizeError> {
        let epoch = Epoch {
            number: self.epoch,
            of: self.catalogue.epochs_of(self.kind),
        };
        let columns = match self.kind {
            Kind::Object => {
                let place = self.place();
                let block = ObjectBlock::make(&place, &[]);
                objects::columns(&place, block, &self.catalogue.columns)
            }
            Kind::Source => {
                let block = self.objects_with_fluxes();
                let place = self.place();
                observations::sources(&place, &block, epoch, self.first_source_key(&place))
            }
            Kind::ForcedSource => {
                let block = self.objects_with_fluxes();
                observations::forced_sources(&self.place(), &block, epoch)
            }
        };
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}

impl Iterator for ChunkRows {
    type Item = Result<RecordBatch, SynthesizeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.epoch >= self.catalogue.epochs_of(self.kind) {
            return None;
        }
        let made = self.make();
        self.block += 1;
        if self.block >= self.blocks {
            self.block = 0;
            self.epoch += 1;
        }
        Some(made)
    }
}
