//! The pool with which operators reserve memory.

use std::fmt;

use datafusion::common::{Result, resources_datafusion_err};
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

use super::{is_short, sentence};

/// The fraction of the statements' memory that can be reserved; the rest is for the sorted copies and doubled buffers that operators do
/// not reserve.
pub const RESERVABLE: (u64, u64) = (2, 3);

/// What an operator that can spill may have, whatever others hold: with less it could not go on when it has spilled. Queries wait until
/// there is room for [more than that](crate::least_memory) for each such operator.
const LEAST: usize = 8 << 20;

/// A pool of fixed size, which operators that can spill share evenly. It also rejects their reservations when unreserved memory runs short;
/// operators that cannot spill continue, because they may not be the cause.
#[derive(Debug)]
pub(crate) struct MeasuredPool {
    inner: FairSpillPool,
    size: usize,
}

impl MeasuredPool {
    pub fn new(size: usize) -> Self {
        Self {
            inner: FairSpillPool::new(size / RESERVABLE.1 as usize * RESERVABLE.0 as usize),
            size,
        }
    }
}

impl fmt::Display for MeasuredPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl MemoryPool for MeasuredPool {
    fn name(&self) -> &str {
        "measured"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.inner.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        sql::interrupt::check()?;
        let can_spill = reservation.consumer().can_spill();
        let has_room = || !can_spill || reservation.size() == 0 || !is_short();
        if has_room() {
            if self.inner.try_grow(reservation, additional).is_ok() {
                return Ok(());
            }
            if can_spill && reservation.size() + additional <= LEAST {
                self.inner.grow(reservation, additional);
                return Ok(());
            }
        }
        let told = sentence("it wanted another", additional, self.size);
        Err(resources_datafusion_err!("{told}"))
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.inner.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_rejection_is_a_sentence_for_whoever_asked() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MeasuredPool::new(12 << 20));
        let sort = MemoryConsumer::new("ExternalSorter[0]").register(&pool);
        sort.try_grow(7 << 20).unwrap();
        let rejected = sort.try_grow(3 << 20).unwrap_err().strip_backtrace();
        assert!(
            rejected
                .contains("it wanted another 3 MiB, and all statements together may hold 12 MiB"),
            "{rejected}"
        );
        assert_eq!(pool.reserved(), 7 << 20);
    }

    #[test]
    fn what_can_spill_goes_on_beside_what_takes_all() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MeasuredPool::new(12 << 20));
        let side = MemoryConsumer::new("HashJoinInput").register(&pool);
        side.try_grow(8 << 20).unwrap();
        side.try_grow(1).unwrap_err();
        let spilling = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true);
        let sort = spilling.register(&pool);
        sort.try_grow(5 << 20).unwrap();
        sort.try_grow(6 << 20).unwrap_err();
        sort.free();
        sort.try_grow(6 << 20).unwrap();
        drop((side, sort));
        assert_eq!(pool.reserved(), 0);
    }
}
