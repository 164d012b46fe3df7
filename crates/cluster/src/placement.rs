//! Placement: which workers shall hold a chunk of a database.
//!
//! Weighted rendezvous hashing (Thaler and Ravishankar 1998; weights after Schindelhauer and Schomaker 2005): each worker draws a
//! number for each chunk, and those with the smallest hold it. A worker that comes takes chunks from the others and moves none between
//! them; one that goes leaves its chunks to others and moves nothing else.

use sky::ChunkId;
use xxhash_rust::xxh3::Xxh3;

/// A worker as placement sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    /// Its name, which it keeps for life.
    pub name: String,
    /// The share of the chunks that it takes, relative to that of others; above 0.
    pub weight: f64,
}

impl Candidate {
    /// A worker whose disk has so many bytes. Disks of a cluster rarely differ by much, and one of unknown size is as good as another.
    pub fn new(name: &str, disk_bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            weight: (disk_bytes as f64 / 1e9).max(1.0),
        }
    }
}

/// The candidates by their places in the list, best first.
pub(crate) fn rank(database: &str, chunk: ChunkId, candidates: &[Candidate]) -> Vec<usize> {
    rank_among(database, chunk, candidates, 0..candidates.len())
}

/// The same of some of the candidates.
pub(crate) fn rank_among(
    database: &str,
    chunk: ChunkId,
    candidates: &[Candidate],
    among: impl Iterator<Item = usize>,
) -> Vec<usize> {
    let mut ranked: Vec<(f64, usize)> = among
        .map(|at| (draw(database, chunk, &candidates[at]), at))
        .collect();
    // The names decide between equal draws, so that everybody ranks alike.
    ranked.sort_by(|(a, left), (b, right)| {
        let names = || candidates[*left].name.cmp(&candidates[*right].name);
        a.total_cmp(b).then_with(names)
    });
    ranked.into_iter().map(|(_, at)| at).collect()
}

/// An exponentially distributed number with the rate `weight`: the least of several is each one's with a probability that is its share of
/// the weights.
fn draw(database: &str, chunk: ChunkId, candidate: &Candidate) -> f64 {
    let mut hasher = Xxh3::new();
    hasher.update(database.as_bytes());
    hasher.update(&[0]);
    hasher.update(&chunk.0.to_le_bytes());
    hasher.update(candidate.name.as_bytes());
    // 53 bits are a number in (0, 1).
    let uniform = ((hasher.digest() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -uniform.ln() / candidate.weight.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(count: usize) -> Vec<Candidate> {
        let worker = |at: usize| Candidate {
            name: format!("worker-{at}"),
            weight: 1.0,
        };
        (0..count).map(worker).collect()
    }

    const CHUNKS: i32 = 9_000;

    fn holders(workers: &[Candidate], replicas: usize) -> Vec<Vec<String>> {
        let names = |ranked: Vec<usize>| {
            let first = ranked.into_iter().take(replicas);
            first.map(|at| workers[at].name.clone()).collect()
        };
        (0..CHUNKS)
            .map(|chunk| names(rank("db", ChunkId(chunk), workers)))
            .collect()
    }

    #[test]
    fn a_worker_that_comes_takes_its_share_and_moves_nothing_else() {
        let replicas = 3;
        let (before, after) = (
            holders(&workers(9), replicas),
            holders(&workers(10), replicas),
        );
        let mut moved = 0;
        for (before, after) in before.iter().zip(&after) {
            let new: Vec<&String> = after.iter().filter(|it| !before.contains(it)).collect();
            assert!(
                new.iter().all(|it| *it == "worker-9"),
                "{before:?} {after:?}"
            );
            moved += new.len();
        }
        let share = moved as f64 / (f64::from(CHUNKS) * replicas as f64);
        assert!((share - 0.1).abs() < 0.01, "{share}");
    }

    #[test]
    fn a_worker_that_goes_moves_only_what_it_held() {
        let all = workers(6);
        let left: Vec<Candidate> = all
            .iter()
            .filter(|it| it.name != "worker-2")
            .cloned()
            .collect();
        for (before, after) in holders(&all, 2).iter().zip(&holders(&left, 2)) {
            let stays = before.iter().filter(|it| *it != "worker-2");
            assert!(
                stays.clone().all(|it| after.contains(it)),
                "{before:?} {after:?}"
            );
        }
    }

    #[test]
    fn weights_are_shares() {
        let mut two = workers(2);
        two[1].weight = 3.0;
        let first = holders(&two, 1);
        let heavy = first.iter().filter(|it| it[0] == "worker-1").count();
        let share = heavy as f64 / f64::from(CHUNKS);
        assert!((share - 0.75).abs() < 0.02, "{share}");
    }
}
