//! The pool with which operators reserve memory.
//!
//! # Rules
//!
//! 1. What a statement was [promised](sql::Interrupt::promise) when it was admitted is its own, whatever others hold. Admission promises no
//!    more than there is, so this needs nobody else to give way. One that was promised nothing has a [little](LITTLE).
//! 2. Beyond that, operators that can spill share what is left evenly, statement by statement, and the operators of a statement its part; a
//!    quarter of the part is left for merging what they have spilled, which cannot spill. As soon as another statement needs its own, they are
//!    rejected, and spill.
//! 3. What cannot spill may have what nobody holds and nobody was promised.
//! 4. An operator that can spill and holds nothing, or little, is never rejected: it could not go on.
//! 5. Nobody waits here for memory that another has: whoever is rejected spills, or fails and is run once more, alone (`attempts`). So no two
//!    statements can wait for each other.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::{Result, resources_datafusion_err};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use sql::Interrupt;

use super::{is_short, sentence};

/// The fraction of the statements' memory that can be reserved; the rest is for the sorted copies and doubled buffers that operators do
/// not reserve.
pub const RESERVABLE: (u64, u64) = (2, 3);

/// Bytes of a statement that was promised nothing, because it gathers little.
pub(crate) const LITTLE: usize = 8 << 20;
/// What an operator that can spill may have, whatever others hold, if the pool is not small: with less it would spill a few batches at a time.
const LEAST: usize = 4 << 20;
/// The fraction of its part that an operator fills before it spills.
const FILLED: (usize, usize) = (3, 4);
/// What cannot spill may exceed the promise by this: sorted runs are merged while others are still gathered.
const MERGING: (usize, usize) = (3, 2);

/// A pool of fixed size, in which each statement has its own part.
#[derive(Debug)]
pub(crate) struct MeasuredPool {
    /// Bytes that can be reserved.
    reservable: usize,
    /// Bytes that statements may hold, reserved or not.
    size: usize,
    state: Mutex<State>,
}

/// The address of a statement's interrupt; 0 for work on none.
type StatementKey = usize;

#[derive(Debug, Default)]
struct State {
    /// By their numbers.
    consumers: HashMap<usize, Consumer>,
    statements: HashMap<StatementKey, Statement>,
    reserved: usize,
    /// What those have that cannot spill.
    unspillable: usize,
}

/// One operator's reservations.
#[derive(Debug)]
struct Consumer {
    statement: StatementKey,
    reserved: usize,
}

/// The reservations of one statement.
#[derive(Debug, Default)]
struct Statement {
    /// Keeps the address from being another's.
    interrupt: Option<Arc<Interrupt>>,
    consumers: usize,
    reserved: usize,
    unspillable: usize,
    /// Consumers that can spill and hold something.
    spilling: usize,
}

impl Statement {
    /// What it may have, whatever others hold.
    fn own(&self) -> usize {
        let promised = self.interrupt.as_ref().map_or(0, |it| it.promised());
        usize::try_from(promised).unwrap_or(usize::MAX).max(LITTLE)
    }

    /// What it was promised and does not hold.
    fn unused(&self) -> usize {
        let promised = self.interrupt.as_ref().map_or(0, |it| it.promised());
        let promised = usize::try_from(promised).unwrap_or(usize::MAX);
        promised.saturating_sub(self.reserved)
    }
}

impl MeasuredPool {
    pub fn new(size: usize) -> Self {
        Self {
            reservable: size / RESERVABLE.1 as usize * RESERVABLE.0 as usize,
            size,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn grow(&mut self, of: &MemoryConsumer, bytes: usize) {
        self.reserved += bytes;
        self.unspillable += if of.can_spill() { 0 } else { bytes };
        let Some((consumer, statement)) = self.accounts(of) else {
            return;
        };
        statement.reserved += bytes;
        match of.can_spill() {
            true => statement.spilling += usize::from(consumer.reserved == 0 && bytes > 0),
            false => statement.unspillable += bytes,
        }
        consumer.reserved += bytes;
    }

    fn shrink(&mut self, of: &MemoryConsumer, bytes: usize) {
        self.reserved -= bytes;
        self.unspillable -= if of.can_spill() { 0 } else { bytes };
        let Some((consumer, statement)) = self.accounts(of) else {
            return;
        };
        statement.reserved -= bytes;
        consumer.reserved -= bytes;
        match of.can_spill() {
            true => statement.spilling -= usize::from(consumer.reserved == 0 && bytes > 0),
            false => statement.unspillable -= bytes,
        }
    }

    fn accounts(&mut self, of: &MemoryConsumer) -> Option<(&mut Consumer, &mut Statement)> {
        let consumer = self.consumers.get_mut(&of.id())?;
        let statement = self.statements.get_mut(&consumer.statement)?;
        Some((consumer, statement))
    }

    /// Whether an operator may have so many bytes more for a reservation that has `held`. One that merges what it has spilled has two: the runs that
    /// are merged, of which it takes as many as it may, and what becomes of their rows, for which there must be room then.
    fn has_room(&self, of: &MemoryConsumer, held: usize, bytes: usize, reservable: usize) -> bool {
        let Some(consumer) = self.consumers.get(&of.id()) else {
            return false;
        };
        let Some(statement) = self.statements.get(&consumer.statement) else {
            return false;
        };
        let own = statement.own().min(reservable);
        if !of.can_spill() {
            let own = own / MERGING.1 * MERGING.0;
            return statement.reserved + bytes <= own.min(reservable)
                || self.may_borrow(consumer.statement, bytes, reservable);
        }
        let least = LEAST.min(reservable / 8);
        if consumer.reserved == 0 && bytes <= reservable || held + bytes <= least {
            return true;
        }
        let spilling = self.statements.values().filter(|it| it.spilling > 0);
        let fair = reservable.saturating_sub(self.unspillable) / spilling.count().max(1);
        let part = own.saturating_sub(statement.unspillable).max(fair);
        let of_operator = part / statement.spilling.max(1) / FILLED.1 * FILLED.0;
        held + bytes <= of_operator
            && (statement.reserved + bytes <= own
                || !is_short() && self.may_borrow(consumer.statement, bytes, reservable))
    }

    /// Whether there are so many bytes that nobody holds and no other statement was promised.
    fn may_borrow(&self, statement: StatementKey, bytes: usize, reservable: usize) -> bool {
        let others = self.statements.iter().filter(|(key, _)| **key != statement);
        let promised: usize = others.map(|(_, other)| other.unused()).sum();
        self.reserved + promised + bytes <= reservable
    }
}

impl fmt::Display for MeasuredPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(size: {})", self.name(), self.reservable)
    }
}

impl MemoryPool for MeasuredPool {
    fn name(&self) -> &str {
        "measured"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        let interrupt = Interrupt::current().map(|it| Arc::clone(it.statement()));
        let key = interrupt.as_ref().map_or(0, |it| Arc::as_ptr(it).addr());
        let mut state = self.lock();
        let statement = state.statements.entry(key).or_default();
        statement.interrupt = interrupt;
        statement.consumers += 1;
        let account = Consumer {
            statement: key,
            reserved: 0,
        };
        state.consumers.insert(consumer.id(), account);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.lock();
        let Some(account) = state.consumers.remove(&consumer.id()) else {
            return;
        };
        let key = account.statement;
        let left = state.statements.get_mut(&key).is_some_and(|statement| {
            statement.consumers -= 1;
            statement.consumers == 0
        });
        let last = left.then(|| state.statements.remove(&key));
        drop(state);
        // Not under the lock: it may be the last one to hold the statement.
        drop(last);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.lock().grow(reservation.consumer(), additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.lock().shrink(reservation.consumer(), shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        sql::interrupt::check()?;
        let mut state = self.lock();
        if state.has_room(
            reservation.consumer(),
            reservation.size(),
            additional,
            self.reservable,
        ) {
            state.grow(reservation.consumer(), additional);
            return Ok(());
        }
        drop(state);
        let told = sentence("it wanted another", additional, self.size);
        Err(resources_datafusion_err!("{told}"))
    }

    fn reserved(&self) -> usize {
        self.lock().reserved
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.reservable)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;

    fn pool(size: usize) -> Arc<dyn MemoryPool> {
        Arc::new(MeasuredPool::new(size))
    }

    /// An operator of a statement.
    fn of(
        statement: &Arc<Interrupt>,
        can_spill: bool,
        pool: &Arc<dyn MemoryPool>,
    ) -> MemoryReservation {
        let _entered = statement.enter();
        MemoryConsumer::new("operator")
            .with_can_spill(can_spill)
            .register(pool)
    }

    fn promised(bytes: usize) -> Arc<Interrupt> {
        let statement = Interrupt::new();
        statement.promise(bytes as u64);
        statement
    }

    /// Grows a reservation by a MiB until it is rejected; how many it has then.
    fn fill(reservation: &MemoryReservation) -> usize {
        while reservation.try_grow(MIB).is_ok() {}
        reservation.size() / MIB
    }

    #[test]
    fn a_rejection_is_a_sentence_for_whoever_asked() {
        let pool = pool(12 * MIB);
        let sort = MemoryConsumer::new("ExternalSorter[0]").register(&pool);
        sort.try_grow(7 * MIB).unwrap();
        let rejected = sort.try_grow(3 * MIB).unwrap_err().strip_backtrace();
        assert!(
            rejected
                .contains("it wanted another 3 MiB, and all statements together may hold 12 MiB"),
            "{rejected}"
        );
        assert_eq!(pool.reserved(), 7 * MIB);
        drop(sort);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn a_statement_has_what_it_was_promised_whatever_others_hold() {
        let pool = pool(96 * MIB);
        let (greedy, late) = (promised(16 * MIB), promised(16 * MIB));
        let side = of(&greedy, false, &pool);
        assert_eq!(fill(&side), 64, "there is nobody else");
        let (sort, merge) = (of(&late, true, &pool), of(&late, false, &pool));
        assert_eq!(fill(&sort), 12, "three quarters of its own");
        assert_eq!(fill(&merge), 12, "and what merging takes besides");
        side.free();
        assert_eq!(fill(&sort), 36, "all but what the other was promised");
    }

    #[test]
    fn what_was_promised_is_not_lent() {
        let pool = pool(96 * MIB);
        let (first, second) = (promised(0), promised(40 * MIB));
        let idle = of(&second, true, &pool);
        let side = of(&first, false, &pool);
        assert_eq!(fill(&side), 24);
        assert_eq!(fill(&idle), 30);
        drop(idle);
        assert_eq!(fill(&side), 64);
    }

    #[test]
    fn statements_that_spill_share_evenly() {
        let pool = pool(90 * MIB);
        let (one, two) = (Interrupt::new(), Interrupt::new());
        let first = of(&one, true, &pool);
        assert_eq!(fill(&first), 45);
        let (left, right) = (of(&two, true, &pool), of(&two, true, &pool));
        left.try_grow(1).unwrap();
        right.try_grow(1).unwrap();
        first.try_grow(MIB).unwrap_err();
        // It has spilled.
        first.free();
        assert_eq!(
            (fill(&left), fill(&right)),
            (22, 22),
            "one statement's part"
        );
        assert_eq!(fill(&first), 15, "and the rest");
    }

    #[test]
    fn what_holds_nothing_goes_on() {
        let pool = pool(12 * MIB);
        let (one, two) = (Interrupt::new(), Interrupt::new());
        let side = of(&one, false, &pool);
        side.try_grow(8 * MIB).unwrap();
        side.try_grow(1).unwrap_err();
        let sort = of(&two, true, &pool);
        sort.try_grow(5 * MIB).unwrap();
        sort.try_grow(6 * MIB).unwrap_err();
        sort.free();
        sort.try_grow(6 * MIB).unwrap();
        drop((side, sort));
        assert_eq!(pool.reserved(), 0);
    }

    /// An aggregate merged as many of its spilled runs as there was room for, and then had none for their groups.
    #[test]
    fn what_merges_leaves_room_for_what_comes_of_it() {
        let pool = pool(48 * MIB);
        let statement = promised(32 * MIB);
        let (one, two) = (of(&statement, true, &pool), of(&statement, true, &pool));
        one.try_grow(MIB).unwrap();
        two.try_grow(MIB).unwrap();
        let merges = (one.new_empty(), two.new_empty());
        assert_eq!((fill(&merges.0), fill(&merges.1)), (12, 12));
        one.try_grow(3 * MIB).unwrap();
        two.try_grow(3 * MIB).unwrap();
    }

    #[test]
    fn attempts_of_a_statement_have_one_part() {
        let pool = pool(90 * MIB);
        let statement = promised(30 * MIB);
        let other = of(&Interrupt::new(), false, &pool);
        let first = of(&statement.attempt(), false, &pool);
        first.try_grow(30 * MIB).unwrap();
        other.try_grow(30 * MIB).unwrap();
        let second = of(&statement.attempt(), false, &pool);
        second.try_grow(16 * MIB).unwrap_err();
        drop(first);
        second.try_grow(16 * MIB).unwrap();
    }

    proptest! {
        /// Whatever statements reserve and give back: what each was promised can be had, sums are those of the reservations, and nothing is
        /// left at the end.
        #[test]
        fn promises_are_kept(
            promises in proptest::collection::vec(0_usize..20, 1..6),
            steps in proptest::collection::vec((0_usize..12, 1_usize..9, 0_u8..3), 1..200),
        ) {
            let measured = Arc::new(MeasuredPool::new(150 * MIB));
            let pool: Arc<dyn MemoryPool> = Arc::clone(&measured) as _;
            let statements: Vec<_> = promises.iter().map(|it| promised(it * MIB)).collect();
            let operators: Vec<_> = statements
                .iter()
                .flat_map(|it| [of(it, true, &pool), of(it, false, &pool)])
                .collect();
            for (at, mebibytes, how) in steps {
                let at = at % operators.len();
                let operator = &operators[at];
                match how {
                    0 => {
                        operator.free();
                    }
                    _ => {
                        let of_statement = operators[at & !1].size() + operators[at | 1].size();
                        let granted = operator.try_grow(mebibytes * MIB).is_ok();
                        if at % 2 == 1 && of_statement + mebibytes * MIB <= promises[at / 2] * MIB {
                            prop_assert!(granted);
                        }
                    }
                }
                let sum: usize = operators.iter().map(MemoryReservation::size).sum();
                prop_assert_eq!(pool.reserved(), sum);
            }
            drop(operators);
            let state = measured.lock();
            prop_assert!(state.consumers.is_empty() && state.statements.is_empty());
            prop_assert_eq!((state.reserved, state.unspillable), (0, 0));
        }
    }
}
