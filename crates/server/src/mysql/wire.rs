//! The protocol's encodings of numbers and texts, and a reader of bytes that a client may have made up.
//!
//! Source: *MySQL Source Code Documentation*, "Client/Server Protocol", "Protocol Basics".

/// What stands before a NULL in a row of text.
const NULL: u8 = 0xfb;

/// Appends a number in as few bytes as it takes, with its width before it.
pub(crate) fn put_length(bytes: &mut Vec<u8>, length: u64) {
    match length {
        0..=0xfa => bytes.push(length as u8),
        0xfb..=0xffff => {
            bytes.push(0xfc);
            bytes.extend_from_slice(&(length as u16).to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            bytes.push(0xfd);
            bytes.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
        }
        _ => {
            bytes.push(0xfe);
            bytes.extend_from_slice(&length.to_le_bytes());
        }
    }
}

/// Appends bytes with their number before them.
pub(crate) fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_length(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

/// Appends text with a zero behind it; zeros within it are left out.
pub(crate) fn put_terminated(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text.bytes().filter(|byte| *byte != 0));
    bytes.push(0);
}

/// Appends NULL to a row of text.
pub(crate) fn put_null(bytes: &mut Vec<u8>) {
    bytes.push(NULL);
}

/// Bytes that do not contain the expected value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MalformedPacket;

/// Reads what a client sent, from the front.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], MalformedPacket> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(MalformedPacket)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedPacket> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(MalformedPacket)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MalformedPacket> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MalformedPacket> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedPacket> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MalformedPacket> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn f32(&mut self) -> Result<f32, MalformedPacket> {
        self.array().map(f32::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64, MalformedPacket> {
        self.array().map(f64::from_le_bytes)
    }

    /// A number with its width before it.
    pub(crate) fn length(&mut self) -> Result<u64, MalformedPacket> {
        match self.u8()? {
            small @ 0..=0xfa => Ok(small.into()),
            0xfc => self.u16().map(u64::from),
            0xfd => {
                let [a, b, c] = self.array()?;
                Ok(u32::from_le_bytes([a, b, c, 0]).into())
            }
            0xfe => self.u64(),
            0xfb | 0xff => Err(MalformedPacket),
        }
    }

    /// Bytes with their number before them.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], MalformedPacket> {
        let length = usize::try_from(self.length()?).map_err(|_| MalformedPacket)?;
        self.bytes(length)
    }

    /// Bytes up to a zero, which is taken too, or to the end.
    pub(crate) fn terminated(&mut self) -> &'a [u8] {
        let mut parts = self.rest.splitn(2, |byte| *byte == 0);
        let taken = parts.next().unwrap_or_default();
        self.rest = parts.next().unwrap_or_default();
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lengths_are_read_as_they_were_written(length: u64) {
            let mut bytes = vec![];
            put_length(&mut bytes, length);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.length(), Ok(length));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_rejected(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while let Ok(taken) = reader.sized() {
                prop_assert!(taken.len() <= bytes.len());
                if reader.is_empty() {
                    break;
                }
            }
            let taken = reader.terminated();
            prop_assert!(!taken.contains(&0));
            let _ = reader.u64();
            prop_assert!(reader.rest().len() <= bytes.len());
        }
    }

    #[test]
    fn the_widths_change_where_they_should() {
        for (length, bytes) in [
            (250, 1),
            (251, 3),
            (65_535, 3),
            (65_536, 4),
            (16_777_215, 4),
            (16_777_216, 9),
        ] {
            let mut written = vec![];
            put_length(&mut written, length);
            assert_eq!(written.len(), bytes, "{length}");
        }
    }

    #[test]
    fn texts_end_at_a_zero_or_with_the_packet() {
        let mut reader = Reader::new(b"user\0rest");
        assert_eq!(reader.terminated(), b"user");
        assert_eq!(reader.terminated(), b"rest");
        assert_eq!(reader.terminated(), b"");
    }
}
