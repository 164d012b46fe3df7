//! Text files through the reader.
