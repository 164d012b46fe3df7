//! Elements of arrays, which become texts with blanks between them.

use std::fmt::Write as _;

/// An element of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Element {
    Null,
    Truth(bool),
    Integer(i64),
    Unsigned(u64),
    Float(f32),
    Double(f64),
}

/// Appends an array.
pub(super) fn put_array(elements: impl IntoIterator<Item = Element>, to: &mut String) {
    for (at, element) in elements.into_iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        // Writing to a text cannot fail.
        let _ = match element {
            Element::Null => write!(to, "{space}NaN"),
            Element::Truth(value) => write!(to, "{space}{}", if value { 'T' } else { 'F' }),
            Element::Integer(value) => write!(to, "{space}{value}"),
            Element::Unsigned(value) => write!(to, "{space}{value}"),
            Element::Float(value) => write!(to, "{space}{value}"),
            Element::Double(value) => write!(to, "{space}{value}"),
        };
    }
}
