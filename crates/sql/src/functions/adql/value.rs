//! Geometry as values of columns: lists of degrees, in the order in which the Virtual Observatory writes them (DALI 1.1, 3.3.5
//! to 3.3.7), told apart by their types.
//!
//! | shape | type | numbers |
//! |---|---|---|
//! | point | list of 2 | right ascension, declination |
//! | circle | list of 3 | those of the centre, radius |
//! | polygon | list of any length | those of each corner |
//!
//! Only the constructors make such lists, so that their numbers always describe a shape: their items have a name of their own, by which other
//! lists of numbers are no geometry.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, ListArray, StringArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion::common::{Result, exec_err};
use sky::{LonLat, Shape, SkyError};

/// The name of the items of geometries.
const ITEM: &str = "degrees";

/// A kind of geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A position.
    Point,
    /// A centre and a radius.
    Circle,
    /// Corners.
    Polygon,
}

impl Kind {
    /// The kind of values of a type.
    pub fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::FixedSizeList(item, 2) if is_of_geometry(item) => Some(Self::Point),
            DataType::FixedSizeList(item, 3) if is_of_geometry(item) => Some(Self::Circle),
            DataType::List(item) if is_of_geometry(item) => Some(Self::Polygon),
            _ => None,
        }
    }

    /// The kind of values that the Virtual Observatory calls so (DALI 1.1, section 3.3).
    pub fn of_xtype(xtype: &str) -> Option<Self> {
        let mut kinds = [Self::Point, Self::Circle, Self::Polygon].into_iter();
        kinds.find(|kind| kind.xtype() == xtype)
    }

    /// What the Virtual Observatory calls values of this kind (DALI 1.1, section 3.3).
    pub fn xtype(self) -> &'static str {
        match self {
            Self::Point => "point",
            Self::Circle => "circle",
            Self::Polygon => "polygon",
        }
    }

    /// The type of its values.
    pub fn data_type(self) -> DataType {
        let item = item();
        match self {
            Self::Point => DataType::FixedSizeList(item, 2),
            Self::Circle => DataType::FixedSizeList(item, 3),
            Self::Polygon => DataType::List(item),
        }
    }

    /// Geometries of texts of degrees with blanks between them. A text whose numbers describe none is NULL, as what a constructor makes of
    /// such numbers of a row.
    ///
    /// # Errors
    /// The library that puts columns together fails.
    pub fn read(self, texts: &StringArray) -> Result<ArrayRef> {
        let mut built = GeometryBuilder::new(self);
        for text in texts {
            built.push(text.and_then(|text| self.numbers_of(text)).as_deref());
        }
        built.finish()
    }

    fn numbers_of(self, text: &str) -> Option<Vec<f64>> {
        let numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
        let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
        let is_whole = match self {
            Self::Point => numbers.len() == 2,
            Self::Circle => numbers.len() == 3,
            Self::Polygon => true,
        };
        self.kept(numbers).ok().filter(|_| is_whole)
    }

    /// The shape that numbers describe.
    pub(crate) fn shape(self, numbers: &[f64]) -> Result<Shape, SkyError> {
        match (self, numbers) {
            (Self::Point, &[ra, dec]) => LonLat::from_degrees(ra, dec).map(Shape::Point),
            (Self::Circle, &[.., radius]) if !is_radius(radius) => Err(SkyError::Radius(radius)),
            (Self::Circle, &[ra, dec, radius]) => Shape::circle_degrees(ra, dec, radius),
            (_, numbers) => Shape::polygon_degrees(numbers),
        }
    }

    /// Numbers of a geometry as they are kept, if they describe one: right ascensions are in [0, 360).
    pub(super) fn kept(self, mut numbers: Vec<f64>) -> Result<Vec<f64>, SkyError> {
        if self != Self::Point {
            self.shape(&numbers)?;
        }
        // A circle's radius is the rest of its only corner.
        for corner in numbers.chunks_exact_mut(2) {
            let place = LonLat::from_degrees(corner[0], corner[1])?;
            corner.copy_from_slice(&[place.ra().degrees(), place.dec().degrees()]);
        }
        Ok(numbers)
    }
}

/// Whether a number of degrees is the radius of a circle.
pub(super) fn is_radius(degrees: f64) -> bool {
    (0.0..=180.0).contains(&degrees)
}

fn is_of_geometry(item: &Field) -> bool {
    *item.data_type() == DataType::Float64 && item.name() == ITEM
}

fn item() -> Arc<Field> {
    Arc::new(Field::new(ITEM, DataType::Float64, true))
}

/// The rows of a column of geometry.
pub(crate) struct Geometries {
    kind: Kind,
    column: ArrayRef,
    numbers: Float64Array,
}

impl Geometries {
    pub(crate) fn of(column: &ArrayRef) -> Result<Self> {
        let Some(kind) = Kind::of(column.data_type()) else {
            return exec_err!("a {} is no geometry", column.data_type());
        };
        let numbers = match kind {
            Kind::Polygon => column.as_list::<i32>().values(),
            _ => column.as_fixed_size_list().values(),
        };
        let numbers = numbers.as_primitive::<Float64Type>().clone();
        Ok(Self {
            kind,
            column: Arc::clone(column),
            numbers,
        })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The numbers of a row; none where the geometry or one of them is NULL.
    pub(crate) fn numbers(&self, row: usize) -> Option<&[f64]> {
        if self.column.is_null(row) {
            return None;
        }
        let (from, to) = match self.kind {
            Kind::Polygon => {
                let offsets = self.column.as_list::<i32>().value_offsets();
                (offsets[row] as usize, offsets[row + 1] as usize)
            }
            _ => {
                let list = self.column.as_fixed_size_list();
                let from = list.value_offset(row) as usize;
                (from, from + list.value_length() as usize)
            }
        };
        let known = match self.numbers.nulls() {
            Some(nulls) => (from..to).all(|at| nulls.is_valid(at)),
            None => true,
        };
        known.then(|| &self.numbers.values()[from..to])
    }

    /// The shape of a row; none where it is NULL or its numbers describe none.
    pub(crate) fn shape(&self, row: usize) -> Option<Shape> {
        self.kind.shape(self.numbers(row)?).ok()
    }
}

/// A column of geometries of one kind.
pub(crate) struct GeometryBuilder {
    kind: Kind,
    numbers: Vec<f64>,
    ends: Vec<usize>,
    known: Vec<bool>,
}

impl GeometryBuilder {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            numbers: vec![],
            ends: vec![],
            known: vec![],
        }
    }

    /// Adds a row: its numbers, as many as the kind has, or NULL.
    pub(crate) fn push(&mut self, numbers: Option<&[f64]>) {
        match (numbers, self.kind) {
            // Adding 0.0 makes -0.0 positive.
            (Some(numbers), _) => self.numbers.extend(numbers.iter().map(|it| it + 0.0)),
            (None, Kind::Point) => self.numbers.extend([0.0; 2]),
            (None, Kind::Circle) => self.numbers.extend([0.0; 3]),
            (None, Kind::Polygon) => {}
        }
        self.ends.push(self.numbers.len());
        self.known.push(numbers.is_some());
    }

    pub(crate) fn push_position(&mut self, position: Option<LonLat>) {
        let numbers = position.map(|place| [place.ra().degrees(), place.dec().degrees()]);
        self.push(numbers.as_ref().map(|numbers| numbers.as_slice()));
    }

    pub(crate) fn finish(self) -> Result<ArrayRef> {
        let item = item();
        let nulls = Some(NullBuffer::from(self.known)).filter(|nulls| nulls.null_count() > 0);
        let values = Arc::new(Float64Array::from(self.numbers));
        let size = match self.kind {
            Kind::Point => 2,
            Kind::Circle => 3,
            Kind::Polygon => {
                let lengths = std::iter::once(0)
                    .chain(self.ends.iter().copied())
                    .zip(&self.ends)
                    .map(|(from, to)| to - from);
                let offsets = OffsetBuffer::from_lengths(lengths);
                return Ok(Arc::new(ListArray::try_new(item, offsets, values, nulls)?));
            }
        };
        Ok(Arc::new(FixedSizeListArray::try_new(
            item, size, values, nulls,
        )?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_geometries_or_null() {
        let read = |kind: Kind, text: &str| {
            let column = kind
                .read(&StringArray::from(vec![None, Some(text)]))
                .unwrap();
            assert_eq!(*column.data_type(), kind.data_type());
            let geometries = Geometries::of(&column).unwrap();
            assert_eq!(geometries.numbers(0), None);
            geometries.numbers(1).map(<[f64]>::to_vec)
        };
        for (xtype, text, numbers) in [
            ("point", "370 -0", Some(vec![10.0, 0.0])),
            ("point", " 10.5  -2.0 ", Some(vec![10.5, -2.0])),
            ("point", "10 95", None),
            ("point", "10", None),
            ("point", "1 2 3", None),
            ("point", "NaN NaN", None),
            ("point", "ten two", None),
            ("point", "", None),
            ("circle", "10 20 1.5", Some(vec![10.0, 20.0, 1.5])),
            ("circle", "10 20 -1", None),
            ("circle", "10 20", None),
            (
                "polygon",
                "1 1 2 1 2 2",
                Some(vec![1.0, 1.0, 2.0, 1.0, 2.0, 2.0]),
            ),
            ("polygon", "1 1 2 1 2", None),
            ("polygon", "1 1", None),
        ] {
            let kind = Kind::of_xtype(xtype).unwrap();
            assert_eq!(read(kind, text), numbers, "{xtype} {text}");
        }
        assert_eq!(Kind::of_xtype("timestamp"), None);
    }
}
