//! Asks servers of cones over HTTP and says how long they took.

fn main() {}
