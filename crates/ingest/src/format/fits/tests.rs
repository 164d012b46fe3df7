//! Headers and rows that no program writes.
