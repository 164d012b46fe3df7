//! Thrift's compact protocol, as far as it takes to look at a Parquet file's structures before a library takes memory for what they
//! claim. Nothing is built of them, and nothing recurses deeper than [`MOST_NESTED`].
//!
//! Source: *Thrift compact protocol encoding*, Apache Thrift's specification.

/// Structures within structures, at most.
const MOST_NESTED: usize = 16;

/// Types of fields and elements, by their numbers.
pub(super) mod types {
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const I16: u8 = 4;
    pub const I32: u8 = 5;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const MAP: u8 = 11;
    pub const STRUCT: u8 = 12;
}

/// Why bytes cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThriftError {
    /// They end within a value.
    Short,
    /// They are no values.
    Wrong,
}

/// Reads values one behind the other.
#[derive(Debug, Clone)]
pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldHead {
    pub id: i16,
    pub ty: u8,
}

impl<'a> Thrift<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub fn position(&self) -> usize {
        self.at
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn byte(&mut self) -> Result<u8, ThriftError> {
        let byte = self.bytes.get(self.at).ok_or(ThriftError::Short)?;
        self.at += 1;
        Ok(*byte)
    }

    fn pass(&mut self, bytes: usize) -> Result<(), ThriftError> {
        if bytes > self.left() {
            return Err(ThriftError::Short);
        }
        self.at += bytes;
        Ok(())
    }

    fn unsigned(&mut self) -> Result<u64, ThriftError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ThriftError::Wrong)
    }

    /// A whole number of any width.
    pub fn integer(&mut self) -> Result<i64, ThriftError> {
        let folded = self.unsigned()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    /// The next field of a structure, whose last one had the given number; `None` at its end.
    pub fn field(&mut self, last: &mut i16) -> Result<Option<FieldHead>, ThriftError> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        let id = match head >> 4 {
            0 => i16::try_from(self.integer()?).map_err(|_| ThriftError::Wrong)?,
            step => last
                .checked_add(i16::from(step))
                .ok_or(ThriftError::Wrong)?,
        };
        *last = id;
        Ok(Some(FieldHead { id, ty: head & 0xf }))
    }

    /// The type of a list's elements and their number, which its bytes have room for.
    pub fn list(&mut self) -> Result<(u8, usize), ThriftError> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => self.unsigned()?,
            length => u64::from(length),
        };
        // Every element takes a byte at least.
        match usize::try_from(length) {
            Ok(length) if length <= self.left() => Ok((head & 0xf, length)),
            _ => Err(ThriftError::Short),
        }
    }

    /// Passes over the value of a field.
    pub fn skip(&mut self, field: FieldHead) -> Result<(), ThriftError> {
        match field.ty {
            // It is in the type.
            types::TRUE | types::FALSE => Ok(()),
            ty => self.skip_value(ty, 0),
        }
    }

    /// Passes over a structure.
    #[cfg(test)]
    fn skip_struct(&mut self) -> Result<(), ThriftError> {
        self.skip_value(types::STRUCT, 0)
    }

    fn skip_value(&mut self, ty: u8, depth: usize) -> Result<(), ThriftError> {
        if depth > MOST_NESTED {
            return Err(ThriftError::Wrong);
        }
        match ty {
            types::TRUE | types::FALSE | types::BYTE => self.pass(1),
            types::I16 | types::I32 | types::I64 => self.unsigned().map(drop),
            types::DOUBLE => self.pass(8),
            types::BINARY => {
                let length = usize::try_from(self.unsigned()?).map_err(|_| ThriftError::Wrong)?;
                self.pass(length)
            }
            types::LIST | types::SET => {
                let (ty, length) = self.list()?;
                (0..length).try_for_each(|_| self.skip_value(ty, depth + 1))
            }
            types::MAP => self.skip_map(depth),
            types::STRUCT => {
                let mut last = 0;
                while let Some(field) = self.field(&mut last)? {
                    if !matches!(field.ty, types::TRUE | types::FALSE) {
                        self.skip_value(field.ty, depth + 1)?;
                    }
                }
                Ok(())
            }
            _ => Err(ThriftError::Wrong),
        }
    }

    fn skip_map(&mut self, depth: usize) -> Result<(), ThriftError> {
        let length = self.unsigned()?;
        if length == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        if usize::try_from(length).map_or(true, |length| length > self.left()) {
            return Err(ThriftError::Short);
        }
        (0..length).try_for_each(|_| {
            self.skip_value(kinds >> 4, depth + 1)?;
            self.skip_value(kinds & 0xf, depth + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_found_behind_what_is_passed_over() {
        // 1: i32 = -3, 3: binary "ab", 4: list of two i32, 20: true, 21: i64 = 300
        let bytes = [
            0x15, 5, 0x28, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x01, 40, 0x16, 0xd8, 4, 0,
        ];
        let mut thrift = Thrift::new(&bytes);
        let mut last = 0;
        let mut fields = Vec::new();
        while let Some(field) = thrift.field(&mut last).unwrap() {
            fields.push(field.id);
            match field.id {
                1 => assert_eq!(thrift.integer(), Ok(-3)),
                21 => assert_eq!(thrift.integer(), Ok(300)),
                _ => thrift.skip(field).unwrap(),
            }
        }
        assert_eq!(fields, [1, 3, 4, 20, 21]);
        assert_eq!(thrift.position(), bytes.len());
    }

    #[test]
    fn lists_have_no_more_elements_than_bytes() {
        // A list that claims 2^31 - 1 structures.
        let bytes = [0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0];
        assert_eq!(Thrift::new(&bytes).list(), Err(ThriftError::Short));
    }

    #[test]
    fn nothing_is_nested_without_end() {
        let bytes = [0x1c; 100_000];
        assert_eq!(Thrift::new(&bytes).skip_struct(), Err(ThriftError::Wrong));
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let mut thrift = Thrift::new(&bytes);
            let _ = thrift.skip_struct();
            prop_assert!(thrift.position() <= bytes.len());
        }
    }
}
