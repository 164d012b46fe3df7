//! The function by which rows are sorted: where a position is among chunks and sub-chunks.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use sky::{Chunker, LonLat};

use super::progress::Counters;

/// Its name, which sessions of this command alone know.
pub const PLACE: &str = "meridian_place";

/// `meridian_place(ra, dec)`: the numbers of the chunk and, in the lower 32 bits, the sub-chunk of a position in degrees; NULL of what is
/// no position. It counts the rows that it sees.
pub fn place(chunker: Chunker, counters: Arc<Counters>) -> ScalarUDF {
    ScalarUDF::new_from_impl(Place {
        signature: Signature::exact(
            vec![DataType::Float64, DataType::Float64],
            Volatility::Immutable,
        ),
        chunker,
        counters,
    })
}

#[derive(Debug)]
struct Place {
    signature: Signature,
    chunker: Chunker,
    counters: Arc<Counters>,
}

impl Place {
    fn cut(&self) -> (u32, u32) {
        (self.chunker.num_stripes(), self.chunker.num_sub_stripes())
    }

    fn number(&self, ra: f64, dec: f64) -> Option<i64> {
        let position = LonLat::from_degrees(ra, dec).ok()?;
        let location = self.chunker.locate(position);
        // Neither number is negative.
        Some((i64::from(location.chunk.0) << 32) | i64::from(location.sub_chunk.0))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cut() == other.cut()
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.cut().hash(state);
    }
}

impl ScalarUDFImpl for Place {
    fn name(&self) -> &str {
        PLACE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        let [ra, dec] = [0, 1].map(|at| columns[at].as_primitive::<Float64Type>());
        self.counters.add_read(ra.len() as u64);
        let places = ra.iter().zip(dec.iter());
        let places = places.map(|(ra, dec)| self.number(ra?, dec?));
        Ok(ColumnarValue::Array(Arc::new(
            places.collect::<Int64Array>(),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_order_of_chunks_and_sub_chunks() {
        let chunker = Chunker::new(18, 6).expect("a cut");
        let place = Place {
            signature: Signature::any(2, Volatility::Immutable),
            chunker: chunker.clone(),
            counters: Arc::default(),
        };
        let mut places = Vec::new();
        for (ra, dec) in [
            (0.0, -90.0),
            (359.9, 89.9),
            (10.0, 0.1),
            (10.0, 0.9),
            (200.0, -45.0),
        ] {
            let location = chunker.locate(LonLat::from_degrees(ra, dec).expect("a position"));
            let number = place.number(ra, dec).expect("a place");
            places.push((number, location));
        }
        places.sort_unstable();
        assert!(places.is_sorted_by_key(|(_, location)| *location));
        assert_eq!(place.number(10.0, 91.0), None);
        assert_eq!(place.number(f64::NAN, 1.0), None);
    }
}
