//! Checksums of what the catalog says, so that a changed byte is an error and not another answer.
//!
//! A checksum is XXH3 (64 bits) of a canonical form of rows: each value by its type (a text with its length, an integer, a
//! float's bits), a value that may be NULL behind a mark, a list behind its length. The checksums form a tree: that of a
//! table covers its columns and directors, that of a database its tables' checksums, and so on, so that a row that is gone
//! is noticed like one that was changed. They protect from damage, not from somebody who changes rows and checksums alike.

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

    /// The checksum, as SQLite keeps 64 bits.
    pub(super) fn finish(self) -> i64 {
        self.0.digest().cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_descriptions_run_together() {
        let all = [
            Digest::of("a").text("b").finish(),
            Digest::of("ab").text("").finish(),
            Digest::of("").text("ab").finish(),
            Digest::of("ab").maybe_text(None).finish(),
            Digest::of("ab").maybe_text(Some("")).finish(),
            Digest::of("ab").float(0.0).finish(),
            Digest::of("ab").float(-0.0).finish(),
            Digest::of("ab").list(&[1, 2], |d, v| d.int(*v)).finish(),
            Digest::of("ab")
                .list(&[1], |d, v| d.int(*v))
                .int(2)
                .finish(),
        ];
        for (at, one) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == one), Some(at));
        }
    }
}
