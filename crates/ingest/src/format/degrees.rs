//! A file whose positions are in other units than degrees: they are converted as they are read.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::datatypes::{Float32Type, Float64Type};
use arrow::record_batch::RecordBatch;
use catalog::Column;

use super::{FileColumns, Part, ReadContext, Source, TableFile};
use crate::error::IngestError;
use crate::position::PositionColumns;
use crate::request::PositionUnit;
use crate::row_batch::RowBatch;

/// A file with positions in a unit.
pub(crate) struct PositionsInDegrees {
    file: Box<dyn TableFile>,
    conversion: Conversion,
}

/// Which columns are multiplied by what.
#[derive(Debug, Clone, Copy)]
struct Conversion {
    columns: PositionColumns,
    /// Degrees in a unit of right ascension, and of declination.
    factors: [f64; 2],
}

impl PositionsInDegrees {
    /// The file with positions in degrees; itself if they are.
    pub(crate) fn of(
        file: Box<dyn TableFile>,
        columns: PositionColumns,
        unit: PositionUnit,
    ) -> Box<dyn TableFile> {
        let factors = match unit {
            PositionUnit::Degrees => return file,
            PositionUnit::Radians => [1_f64.to_degrees(); 2],
            PositionUnit::Hours => [15.0, 1.0],
        };
        let conversion = Conversion { columns, factors };
        Box::new(Self { file, conversion })
    }
}

impl Conversion {
    fn convert(&self, batch: RowBatch) -> Result<RowBatch, IngestError> {
        let schema = batch.columns.schema();
        let mut arrays = batch.columns.columns().to_vec();
        let [of_ra, of_dec] = self.factors;
        for (at, factor) in [(self.columns.ra, of_ra), (self.columns.dec, of_dec)] {
            arrays[at] = multiplied(&arrays[at], factor);
        }
        Ok(RowBatch {
            columns: RecordBatch::try_new(schema, arrays)?,
            rows: batch.rows,
        })
    }
}

/// A column of floats times a factor.
fn multiplied(array: &ArrayRef, factor: f64) -> ArrayRef {
    if let Some(floats) = array.as_primitive_opt::<Float32Type>() {
        let products: Float32Array = floats.unary(|value| (f64::from(value) * factor) as f32);
        return Arc::new(products);
    }
    let floats = array.as_primitive::<Float64Type>();
    let products: Float64Array = floats.unary(|value| value * factor);
    Arc::new(products)
}

impl TableFile for PositionsInDegrees {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        self.file.columns()
    }

    fn columns_found(&self) -> Result<FileColumns, IngestError> {
        self.file.columns_found()
    }

    fn header_names(&self) -> Option<&[String]> {
        self.file.header_names()
    }

    fn position(&self) -> Option<[String; 2]> {
        self.file.position()
    }

    fn estimated_rows(&self) -> u64 {
        self.file.estimated_rows()
    }

    fn work(&self) -> u64 {
        self.file.work()
    }

    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError> {
        Ok(Box::new(ConvertedSource {
            source: self.file.open(number, context)?,
            conversion: self.conversion,
        }))
    }

    fn read_ahead(&self, context: &ReadContext) {
        self.file.read_ahead(context);
    }

    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError> {
        let batches = self.file.sample(context)?.into_iter();
        batches
            .map(|batch| self.conversion.convert(batch))
            .collect()
    }
}

struct ConvertedSource {
    source: Box<dyn Source>,
    conversion: Conversion,
}

impl Source for ConvertedSource {
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError> {
        let part = self.source.next_part()?;
        let conversion = self.conversion;
        let converted = |part| -> Box<dyn Part> { Box::new(ConvertedPart { part, conversion }) };
        Ok(part.map(converted))
    }
}

struct ConvertedPart {
    part: Box<dyn Part>,
    conversion: Conversion,
}

impl Part for ConvertedPart {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        let batch = self.part.next_batch()?;
        batch
            .map(|batch| self.conversion.convert(batch))
            .transpose()
    }
}
