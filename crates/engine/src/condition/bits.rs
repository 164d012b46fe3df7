//! Bitmaps from comparisons, eight rows a byte.

use arrow::array::Array;
use arrow::buffer::{BooleanBuffer, Buffer};

/// Sets the bit of each row of `values` for which `test` is true.
#[inline(always)]
pub(super) fn bits<T: Copy>(values: &[T], test: impl Fn(T) -> bool) -> BooleanBuffer {
    let (whole, rest) = values.as_chunks::<8>();
    collect(
        whole.len(),
        rest.len(),
        |byte, at| test(whole[byte][at]),
        |at| test(rest[at]),
    )
}

/// The same for pairs of values.
#[inline(always)]
pub(super) fn bits_of_pairs<T: Copy, U: Copy>(
    left: &[T],
    right: &[U],
    test: impl Fn(T, U) -> bool,
) -> BooleanBuffer {
    debug_assert_eq!(left.len(), right.len());
    let (left, left_rest) = left.as_chunks::<8>();
    let (right, right_rest) = right.as_chunks::<8>();
    collect(
        left.len().min(right.len()),
        left_rest.len().min(right_rest.len()),
        |byte, at| test(left[byte][at], right[byte][at]),
        |at| test(left_rest[at], right_rest[at]),
    )
}

/// A bitmap of `whole` bytes and `rest` bits more.
///
/// The eight truths of a byte are written out, not looped over: so that compilers test eight rows with one instruction and
/// gather the bits with another.
#[inline(always)]
fn collect(
    whole: usize,
    rest: usize,
    in_byte: impl Fn(usize, usize) -> bool,
    in_rest: impl Fn(usize) -> bool,
) -> BooleanBuffer {
    let mut bytes = vec![0_u8; whole + usize::from(rest > 0)];
    for (at, byte) in bytes[..whole].iter_mut().enumerate() {
        *byte = u8::from(in_byte(at, 0))
            | u8::from(in_byte(at, 1)) << 1
            | u8::from(in_byte(at, 2)) << 2
            | u8::from(in_byte(at, 3)) << 3
            | u8::from(in_byte(at, 4)) << 4
            | u8::from(in_byte(at, 5)) << 5
            | u8::from(in_byte(at, 6)) << 6
            | u8::from(in_byte(at, 7)) << 7;
    }
    for at in 0..rest {
        bytes[whole] |= u8::from(in_rest(at)) << at;
    }
    BooleanBuffer::new(Buffer::from_vec(bytes), 0, whole * 8 + rest)
}

/// The rows of `found` that are in `alive` and not NULL in any of the columns.
pub(super) fn restrict(
    found: BooleanBuffer,
    alive: &BooleanBuffer,
    columns: &[&dyn Array],
) -> BooleanBuffer {
    let mut found = if alive.count_set_bits() == alive.len() {
        found
    } else {
        &found & alive
    };
    for nulls in columns.iter().filter_map(|column| column.nulls()) {
        found = &found & nulls.inner();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_gets_its_own_bit() {
        for rows in [0_u64, 1, 7, 8, 9, 63, 64, 65, 1000] {
            let values: Vec<u64> = (0..rows).map(|at| at * 0x9e37_79b9 % 97).collect();
            let expected: Vec<bool> = values.iter().map(|value| value % 3 == 1).collect();
            let found: Vec<bool> = bits(&values, |value| value % 3 == 1).iter().collect();
            assert_eq!(found, expected);
            let pairs = bits_of_pairs(&values, &values, |a, b| (a + b) % 3 == 2);
            assert_eq!(pairs.iter().collect::<Vec<_>>(), expected);
        }
    }
}
