//! The queue of interactive pieces: first in, first out, but behind another waiting piece of the same chunk.

use std::collections::{BTreeMap, HashMap};

use super::PhaseId;

/// How many pieces join a group at most. A piece waits for the groups before its own alone, so with g groups before it,
/// fewer than (g + 1) * GROUP_SIZE pieces start before it does.
pub(super) const GROUP_SIZE: usize = 16;

/// Where in the queue a piece is: its group, then its place in it.
pub(super) type Entry = (u64, u64);

/// The group of a chunk that others may join: the latest of that chunk.
struct OpenGroup {
    number: u64,
    /// How many have ever joined it.
    joined: usize,
    /// How many of them wait.
    waiting: usize,
}

/// Interactive pieces that wait for a thread.
#[derive(Default)]
pub(super) struct InteractiveQueue {
    entries: BTreeMap<Entry, QueuedPiece>,
    open: HashMap<u32, OpenGroup>,
    groups: u64,
    joined: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueuedPiece {
    pub(super) phase: PhaseId,
    pub(super) piece: usize,
    pub(super) chunk: u32,
}

impl InteractiveQueue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The pieces that wait, in the order in which they start.
    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuedPiece> {
        self.entries.values()
    }

    pub(super) fn push(&mut self, queued: QueuedPiece) -> Entry {
        let open = self.open.entry(queued.chunk).or_insert(OpenGroup {
            number: 0,
            joined: 0,
            waiting: 0,
        });
        if open.waiting == 0 || open.joined == GROUP_SIZE {
            self.groups += 1;
            *open = OpenGroup {
                number: self.groups,
                joined: 0,
                waiting: 0,
            };
        }
        open.joined += 1;
        open.waiting += 1;
        self.joined += 1;
        let entry = (open.number, self.joined);
        self.entries.insert(entry, queued);
        entry
    }

    pub(super) fn remove(&mut self, entry: Entry) -> Option<QueuedPiece> {
        let queued = self.entries.remove(&entry)?;
        if let Some(open) = self.open.get_mut(&queued.chunk)
            && open.number == entry.0
        {
            open.waiting -= 1;
            if open.waiting == 0 {
                self.open.remove(&queued.chunk);
            }
        }
        Some(queued)
    }

    pub(super) fn pop(&mut self) -> Option<(Entry, QueuedPiece)> {
        let entry = *self.entries.first_key_value()?.0;
        self.remove(entry).map(|queued| (entry, queued))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(chunks: &[u32]) -> InteractiveQueue {
        let mut queue = InteractiveQueue::default();
        for (piece, &chunk) in chunks.iter().enumerate() {
            queue.push(QueuedPiece {
                phase: PhaseId(0),
                piece,
                chunk,
            });
        }
        queue
    }

    fn drain(mut queue: InteractiveQueue) -> Vec<usize> {
        let drained = std::iter::from_fn(|| queue.pop())
            .map(|(_, queued)| queued.piece)
            .collect();
        assert!(queue.open.is_empty(), "groups without a piece are kept");
        drained
    }

    #[test]
    fn a_piece_joins_one_of_its_chunk() {
        assert_eq!(drain(queue(&[7, 8, 7, 9, 8, 7])), [0, 2, 5, 1, 4, 3]);
    }

    #[test]
    fn a_popular_chunk_starves_no_other() {
        let mut chunks = vec![1; 1000];
        chunks[1] = 2;
        let order = drain(queue(&chunks));
        let place = order.iter().position(|piece| *piece == 1);
        assert_eq!(place, Some(GROUP_SIZE));
        assert_eq!(order.len(), 1000);
    }

    #[test]
    fn those_who_join_while_the_group_is_served_count_too() {
        let mut queue = queue(&[1, 1, 2]);
        let mut before = 0;
        loop {
            let (_, queued) = queue.pop().unwrap();
            if queued.chunk == 2 {
                break;
            }
            before += 1;
            queue.push(QueuedPiece {
                phase: PhaseId(0),
                piece: 9,
                chunk: 1,
            });
        }
        assert_eq!(before, GROUP_SIZE);
    }

    #[test]
    fn a_removed_piece_leaves_no_group_behind() {
        let mut queue = InteractiveQueue::default();
        let entry = queue.push(QueuedPiece {
            phase: PhaseId(0),
            piece: 0,
            chunk: 1,
        });
        queue.push(QueuedPiece {
            phase: PhaseId(0),
            piece: 1,
            chunk: 2,
        });
        assert!(queue.remove(entry).is_some() && queue.remove(entry).is_none());
        // Piece 2 joins no group that is gone: it comes after piece 1.
        queue.push(QueuedPiece {
            phase: PhaseId(0),
            piece: 2,
            chunk: 1,
        });
        assert_eq!(drain(queue), [1, 2]);
    }
}
