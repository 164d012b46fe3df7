//! The loops in which queries and loads spend their time, each measured by itself.
//!
//! What they work on is made from fixed seeds, in memory or in a temporary directory that goes away with the program.
//! `bench/README.md` tells how to run them.
#![allow(
    clippy::unwrap_used,
    reason = "nothing can be measured after a failure, which is its own message"
)]

mod columns;
mod lookups;
mod made;
mod neighbours;
mod positions;
mod regions;

use criterion::Criterion;

/// The program's own allocator: decoding allocates.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    positions::chunk_location(&mut criterion);
    positions::separations(&mut criterion);
    neighbours::neighbours(&mut criterion);
    regions::points_in_regions(&mut criterion);
    regions::chunks_of_regions(&mut criterion);
    columns::decode(&mut criterion);
    lookups::sub_chunk_directory(&mut criterion);
    lookups::director_index(&mut criterion);
    criterion.final_summary();
}
