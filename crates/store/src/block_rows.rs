//! The rows of a decoded block that a scan wants.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, BooleanBufferBuilder,
    PrimitiveArray, UInt32Array, downcast_primitive_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::compute::{filter, take};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use vortex::mask::{AllOr, Mask};

/// Rows of which less than one in so many is wanted are picked one by one.
const FEW: usize = 16;
/// Wanted rows of which so many follow each other, on average, are copied run by run.
const LONG: usize = 16;

/// The rows of a whole block that are in the mask, which begins with row `start` of the block.
///
/// Few rows are copied, so that they do not keep a whole block in memory that nobody counts.
pub(crate) fn rows_of(block: &ArrayRef, start: usize, mask: &Mask) -> Result<ArrayRef, ArrowError> {
    let wanted = mask.true_count();
    if mask.all_true() {
        let rows = block.slice(start, wanted);
        return match wanted * 2 >= block.len() {
            true => Ok(rows),
            false => without_the_rest(&rows),
        };
    }
    if wanted * FEW >= mask.len()
        && let AllOr::Some(bits) = mask.bit_buffer()
    {
        let (rows, bits) = (
            block.slice(start, mask.len()),
            BooleanBuffer::from(bits.clone()),
        );
        let runs = match num_runs(&bits) * LONG <= wanted {
            // Rows are sorted by sub-chunk: at the border of a region whole sub-chunks are wanted.
            true => mask.slices(),
            false => AllOr::None,
        };
        let keep = BooleanArray::new(bits, None);
        let any = || filter(&rows, &keep).map(|it| compacted(&it));
        let AllOr::Some(runs) = runs else {
            return any();
        };
        let rows = rows.as_ref();
        return downcast_primitive_array!(
            rows => Ok(Arc::new(gathered(rows, runs, wanted))),
            _ => any(),
        );
    }
    let rows: Vec<usize> = match mask.indices() {
        AllOr::All | AllOr::None => Vec::new(),
        AllOr::Some(rows) => rows.iter().map(|row| start + row).collect(),
    };
    downcast_primitive_array!(
        block => Ok(Arc::new(taken(block, &rows))),
        _ => {
            let rows: UInt32Array = rows.iter().map(|row| *row as u32).collect();
            take(block, &rows, None).map(|it| compacted(&it))
        }
    )
}

/// Rows of a block that follow each other, copied: a scan of many parts reads the beginnings and ends of very many blocks.
fn without_the_rest(rows: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    downcast_primitive_array!(
        rows => Ok(Arc::new(copied(rows))),
        _ => {
            let all: UInt32Array = (0..rows.len() as u32).collect();
            take(rows, &all, None).map(|it| compacted(&it))
        }
    )
}

/// The same values in memory of their own.
fn copied<T: ArrowPrimitiveType>(rows: &PrimitiveArray<T>) -> PrimitiveArray<T> {
    let values = ScalarBuffer::from(rows.values().to_vec());
    let known = rows.nulls().map(|nulls| {
        let bits = BooleanBuffer::new(nulls.inner().sliced(), 0, nulls.len());
        NullBuffer::new(bits)
    });
    PrimitiveArray::new(values, known).with_data_type(rows.data_type().clone())
}

/// Values that do not hold the text of their whole block.
fn compacted(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Utf8View => Arc::new(values.as_string_view().gc()),
        DataType::BinaryView => Arc::new(values.as_binary_view().gc()),
        _ => Arc::clone(values),
    }
}

/// The values of these rows, copied: a lookup takes one of each column, for which the general way does too much.
fn taken<T: ArrowPrimitiveType>(block: &PrimitiveArray<T>, rows: &[usize]) -> PrimitiveArray<T> {
    let values = block.values();
    let taken = rows.iter().map(|row| values[*row]).collect();
    let known = (block.nulls()).map(|nulls| rows.iter().map(|row| nulls.is_valid(*row)).collect());
    PrimitiveArray::new(taken, known).with_data_type(block.data_type().clone())
}

/// How many times a bit is set that follows one which is not.
fn num_runs(bits: &BooleanBuffer) -> usize {
    let mut before = 0;
    let words = bits.bit_chunks().iter_padded();
    let starts = words.map(|word: u64| {
        let starts = word & !((word << 1) | before);
        before = word >> 63;
        starts.count_ones() as usize
    });
    starts.sum()
}

/// The values of these runs of rows, each from its first row to before its end; so many in all.
fn gathered<T: ArrowPrimitiveType>(
    rows: &PrimitiveArray<T>,
    runs: &[(usize, usize)],
    count: usize,
) -> PrimitiveArray<T> {
    let mut values = Vec::with_capacity(count);
    for (first, end) in runs {
        values.extend_from_slice(&rows.values()[*first..*end]);
    }
    let known = rows.nulls().map(|nulls| {
        let mut known = BooleanBufferBuilder::new(count);
        for (first, end) in runs {
            known.append_buffer(&nulls.inner().slice(*first, end - first));
        }
        NullBuffer::new(known.finish())
    });
    PrimitiveArray::new(ScalarBuffer::from(values), known).with_data_type(rows.data_type().clone())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, StringViewArray, TimestampMicrosecondArray};
    use proptest::prelude::*;

    use super::*;

    /// Whether rows are wanted, in runs of these lengths.
    fn wanted(runs: &[usize]) -> Vec<bool> {
        let runs = runs.iter().enumerate();
        let wanted = runs.flat_map(|(at, length)| std::iter::repeat_n(at % 2 == 1, *length));
        wanted.collect()
    }

    fn columns(rows: usize) -> [ArrayRef; 4] {
        let known = |row: usize| (!row.is_multiple_of(3)).then_some(row as i64);
        let texts = (0..rows).map(|row| known(row).map(|it| format!("the text of row {it}")));
        [
            Arc::new(Float64Array::from_iter_values(
                (0..rows).map(|row| row as f64),
            )),
            Arc::new(
                TimestampMicrosecondArray::from_iter((0..rows).map(known)).with_timezone("+00:00"),
            ),
            Arc::new(BooleanArray::from_iter(
                (0..rows).map(|row| Some(row.is_multiple_of(5))),
            )),
            Arc::new(StringViewArray::from_iter(texts)),
        ]
    }

    proptest! {
        /// Few, many, in runs or not: the rows that are wanted, as arrow's filter gives them.
        #[test]
        fn they_are_those_of_the_mask(
            runs in prop::collection::vec(prop_oneof![0usize..4, 10usize..200], 1..30),
            start in 0usize..70,
        ) {
            let wanted = wanted(&runs);
            let keep = BooleanArray::from(wanted.clone());
            let mask = Mask::from_iter(wanted);
            for block in columns(start + mask.len() + 9) {
                let expected = filter(&block.slice(start, mask.len()), &keep).unwrap();
                let rows = rows_of(&block, start, &mask).unwrap();
                prop_assert_eq!(&rows, &expected);
                prop_assert_eq!(rows.data_type(), expected.data_type());
            }
        }

        #[test]
        fn runs_are_counted(runs in prop::collection::vec(1usize..150, 1..30), skipped in 0usize..70) {
            let wanted = wanted(&runs);
            let skipped = skipped.min(wanted.len());
            let bits = BooleanBuffer::from(wanted).slice(skipped, runs.iter().sum::<usize>() - skipped);
            prop_assert_eq!(num_runs(&bits), bits.set_slices().count());
        }
    }
}
