//! Checksums of the rows of the catalog, so that a changed byte is an error and not another result.
//!
//! A checksum is XXH3 (64 bits) of a canonical form of rows: each value by its type (a text with its length, an integer, a
//! float's bits), a value that may be NULL behind a mark, a list behind its length. The checksums form a tree: that of a
//! table covers its columns and directors, that of a database its tables' checksums, and so on, so that a row that is gone
//! is noticed like one that was changed. They protect from damage, not from a change of rows and checksums alike.

use xxhash_rust::xxh3::Xxh3;

/// The canonical form of rows on its way into a checksum.
pub(super) struct Digest(Xxh3);

impl Digest {
    /// Begins with what kind of thing is described, so that no row passes for one of another table.
    pub(super) fn of(what: &str) -> Self {
        Self(Xxh3::new()).text(what)
    }

    pub(super) fn int(mut self, value: i64) -> Self {
        self.0.update(&value.to_le_bytes());
        self
    }

    pub(super) fn float(self, value: f64) -> Self {
        self.int(value.to_bits().cast_signed())
    }

    pub(super) fn text(self, value: &str) -> Self {
        let mut with_length = self.len(value.len());
        with_length.0.update(value.as_bytes());
        with_length
    }

    /// The number of values that follow.
    pub(super) fn len(self, count: usize) -> Self {
        self.int(count as i64)
    }

    /// A value that may be NULL; `put` adds it if it is not.
    pub(super) fn maybe<T>(self, value: Option<T>, put: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => put(self.int(1), value),
            None => self.int(0),
        }
    }

    pub(super) fn maybe_text(self, value: Option<&str>) -> Self {
        self.maybe(value, Self::text)
    }

    /// A list: its length, and each of its members as `put` adds it.
    pub(super) fn list<T>(self, list: &[T], put: impl Fn(Self, &T) -> Self) -> Self {
        list.iter().fold(self.len(list.len()), put)
    }

    /// The checksum, as the database keeps 64 bits.
    pub(super) fn finish(self) -> i64 {
        self.0.digest().cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each kind of thing the types of its values are always the same, in the same order: so only values of one type have
    /// to be told apart, and where one ends and the next begins.
    #[test]
    fn no_two_descriptions_run_together() {
        let start = || Digest::of("ab");
        for (one, other) in [
            (Digest::of("a").text("b"), Digest::of("").text("ab")),
            (start().text("c").text(""), start().text("").text("c")),
            (start().maybe_text(None), start().maybe_text(Some(""))),
            (start().float(0.0), start().float(-0.0)),
            (start().int(0).int(1), start().int(1).int(0)),
            (
                start().list(&[1, 2], |d, v| d.int(*v)).int(3),
                start().list(&[1], |d, v| d.int(*v)).int(2).int(3),
            ),
        ] {
            assert_ne!(one.finish(), other.finish());
        }
        assert_eq!(start().int(7).finish(), start().int(7).finish());
    }
}
