//! The pool with which operators reserve memory.

use std::fmt;

use datafusion::common::{Result, resources_datafusion_err};
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

use super::{is_short, sentence};

/// Of what statements may have, this part can be reserved: sorted copies and doubled buffers, which operators make besides, are not.
const RESERVABLE: (usize, usize) = (2, 3);

/// A pool of a size, which those that can go on on disk share evenly. It also says no to them where memory runs short for what
/// nobody has reserved; the others then go on, as it may not be their fault.
#[derive(Debug)]
pub(crate) struct MeasuredPool {
    inner: FairSpillPool,
    size: usize,
}

impl MeasuredPool {
    pub fn new(size: usize) -> Self {
        Self {
            inner: FairSpillPool::new(size / RESERVABLE.1 * RESERVABLE.0),
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
        if has_room() && self.inner.try_grow(reservation, additional).is_ok() {
            return Ok(());
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
    fn a_refusal_is_a_sentence_for_whoever_asked() {
        let pool: Arc<dyn MemoryPool> = Arc::new(MeasuredPool::new(12 << 20));
        let sort = MemoryConsumer::new("ExternalSorter[0]").register(&pool);
        sort.try_grow(7 << 20).unwrap();
        let refused = sort.try_grow(3 << 20).unwrap_err().strip_backtrace();
        assert!(
            refused
                .contains("it wanted another 3 MiB, and all statements together may hold 12 MiB"),
            "{refused}"
        );
        assert_eq!(pool.reserved(), 7 << 20);
    }
}
