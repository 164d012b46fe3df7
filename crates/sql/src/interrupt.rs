//! Interrupts: a flag that ends a statement's work, and that its loops check.
//!
//! An operator computes until it returns, and cannot be ended from outside. So every thread that works on a statement has
//! [entered](Interrupt::enter) its [`Interrupt`], and code that may compute for long calls [`check`], which returns an error once the
//! statement has ended. The interrupt also sums up what the threads allocate, so that the statement that holds the most is known when
//! memory runs short.
//!
//! A statement may be computed in several attempts, one after another. Each has an interrupt of its own: it ends with the statement, and may
//! end before it, for want of memory.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use datafusion::common::{DataFusionError, Result};

use crate::time_account::{TimeAccount, thread_time};
use crate::{RowWarnings, SqlError};

/// Ends the work on one statement, and counts the memory that the work holds.
#[derive(Debug)]
pub struct Interrupt {
    ended: AtomicBool,
    /// The reason, unless the result is just no longer needed.
    why: OnceLock<EndReason>,
    /// Whose processor time the work takes, if that is counted.
    account: Option<Arc<TimeAccount>>,
    bytes: heap::Account,
    /// How often it was checked.
    checks: AtomicU64,
    /// What an upper layer keeps with the statement.
    extension: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// What its functions warn of as they meet the values of rows.
    warnings: Arc<RowWarnings>,
    /// Bytes of memory that the statement may reserve, whatever others have.
    promised: AtomicU64,
    /// The statement of which this is an attempt.
    statement: Option<Arc<Self>>,
}

/// Why a statement was ended.
#[derive(Debug)]
enum EndReason {
    /// Memory runs short, in words.
    Memory(String),
    /// A limit of the user's is reached.
    Limit(SqlError),
}

thread_local! {
    /// The statement that the current thread works on.
    static CURRENT: RefCell<Option<Arc<Interrupt>>> = const { RefCell::new(None) };
    /// What the thread had taken of the processor when it began to work on it, if that is counted.
    static BEGUN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The running statements, to find the largest.
static RUNNING: Mutex<Vec<Weak<Interrupt>>> = Mutex::new(Vec::new());

impl Interrupt {
    /// The interrupt of a new statement. Its processor time is counted as that of the statement on which this thread works.
    pub fn new() -> Arc<Self> {
        let account = CURRENT.with_borrow(|current| current.as_ref()?.account.clone());
        Self::running(account, Arc::default(), None)
    }

    /// The interrupt of a new statement, whose processor time is counted.
    pub fn for_account(account: &Arc<TimeAccount>) -> Arc<Self> {
        Self::running(Some(Arc::clone(account)), Arc::default(), None)
    }

    /// The interrupt of an attempt to compute the statement. It ends with the statement; the statement does not end with it.
    pub fn attempt(self: &Arc<Self>) -> Arc<Self> {
        Self::running(
            self.account.clone(),
            Arc::clone(&self.warnings),
            Some(Arc::clone(self.statement())),
        )
    }

    fn running(
        account: Option<Arc<TimeAccount>>,
        warnings: Arc<RowWarnings>,
        statement: Option<Arc<Self>>,
    ) -> Arc<Self> {
        let interrupt = Arc::new(Self {
            ended: AtomicBool::new(false),
            why: OnceLock::new(),
            account,
            bytes: heap::Account::default(),
            checks: AtomicU64::new(0),
            extension: OnceLock::new(),
            warnings,
            promised: AtomicU64::new(0),
            statement,
        });
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if running.len() == running.capacity() {
            running.retain(|one| one.strong_count() > 0);
        }
        running.push(Arc::downgrade(&interrupt));
        interrupt
    }

    /// The statement of which this is an attempt, or itself.
    pub fn statement(self: &Arc<Self>) -> &Arc<Self> {
        self.statement.as_ref().unwrap_or(self)
    }

    /// The interrupt of the statement on which this thread works, or else a new one.
    pub fn current_or_new() -> Arc<Self> {
        Self::current().unwrap_or_else(Self::new)
    }

    /// The interrupt of the statement on which this thread works.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Ends the statement because its result is no longer needed.
    pub fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    /// Ends the statement because memory runs short.
    pub fn end_for_memory(&self, sentence: String) {
        // The first reason counts.
        let _ = self.why.set(EndReason::Memory(sentence));
        self.end();
    }

    /// Counts the processor time that a thread has taken for the statement, which ends when its user has taken all.
    fn charge(&self, begun: Duration, now: Duration) {
        let Some(account) = &self.account else {
            return;
        };
        account.charge(now.saturating_sub(begun));
        if let Err(error) = account.check() {
            let _ = self.why.set(EndReason::Limit(error));
            self.end();
        }
    }

    /// Whether it was ended because memory ran short.
    pub fn is_ended_for_memory(&self) -> bool {
        matches!(self.why.get(), Some(EndReason::Memory(_)))
    }

    /// Whether the statement has ended.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Relaxed) || self.statement.as_ref().is_some_and(|it| it.is_ended())
    }

    /// Bytes of memory that the work on it has allocated and not freed.
    pub fn bytes(&self) -> i64 {
        self.bytes.load(Relaxed)
    }

    /// Promises the statement that it may reserve so many bytes of memory, whatever others have.
    pub fn promise(&self, bytes: u64) {
        match &self.statement {
            Some(statement) => statement.promise(bytes),
            None => self.promised.store(bytes, Relaxed),
        }
    }

    /// Bytes of memory that the statement was promised.
    pub fn promised(&self) -> u64 {
        match &self.statement {
            Some(statement) => statement.promised(),
            None => self.promised.load(Relaxed),
        }
    }

    /// A number that changes as long as anything works on the statement: whatever computes for more than some milliseconds checks it.
    pub fn progress(&self) -> u64 {
        self.checks.load(Relaxed)
    }

    /// Keeps a value of an upper layer with the statement, for whatever thread works on it. Returns whether there was none before.
    pub fn set_extension(&self, extension: Arc<dyn Any + Send + Sync>) -> bool {
        match &self.statement {
            Some(statement) => statement.set_extension(extension),
            None => self.extension.set(extension).is_ok(),
        }
    }

    /// The value that was kept, if it is of this type.
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        match &self.statement {
            Some(statement) => statement.extension(),
            None => Arc::clone(self.extension.get()?).downcast().ok(),
        }
    }

    /// What was warned of about the values of rows.
    pub fn warnings(&self) -> &Arc<RowWarnings> {
        &self.warnings
    }

    /// Succeeds while the statement runs.
    ///
    /// # Errors
    /// The statement has ended.
    pub fn check(&self) -> Result<()> {
        if let Some(statement) = &self.statement {
            statement.check()?;
        }
        self.checks.fetch_add(1, Relaxed);
        if !self.ended.load(Relaxed) {
            return Ok(());
        }
        Err(match self.why.get() {
            Some(EndReason::Memory(sentence)) => {
                DataFusionError::ResourcesExhausted(sentence.clone())
            }
            Some(EndReason::Limit(error)) => DataFusionError::External(Box::new(error.clone())),
            None => DataFusionError::Execution("the statement was cancelled".to_owned()),
        })
    }

    /// Makes this thread work on the statement until the result is dropped.
    pub fn enter(self: &Arc<Self>) -> InterruptGuard {
        let is_same = |it: &Arc<Self>| Arc::ptr_eq(it, self);
        if CURRENT.with_borrow(|current| current.as_ref().is_some_and(is_same)) {
            return InterruptGuard { left: None };
        }
        InterruptGuard {
            left: Some(work_on(Some(Arc::clone(self)))),
        }
    }

    /// A future whose polls are work on the statement.
    pub fn scope<F: Future>(self: &Arc<Self>, future: F) -> InterruptScope<F> {
        InterruptScope {
            interrupt: Arc::clone(self),
            future: Box::pin(future),
        }
    }

    /// The statement that holds the most memory of those that run.
    pub fn largest() -> Option<Arc<Self>> {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let running = running.iter().filter_map(Weak::upgrade);
        running
            .filter(|one| !one.is_ended())
            .max_by_key(|one| one.bytes())
    }

    /// Bytes that statements hold which have ended and not yet noticed.
    pub fn bytes_to_come_back() -> i64 {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = running.iter().filter_map(Weak::upgrade);
        let ended = ended.filter(|one| one.is_ended());
        ended.map(|one| one.bytes().max(0)).sum()
    }
}

/// Makes this thread work on another statement, or on none. Returns the previous one.
fn work_on(next: Option<Arc<Interrupt>>) -> Option<Arc<Interrupt>> {
    heap::give_back_where_asked();
    heap::add_to(next.as_ref().map(|next| Arc::clone(&next.bytes)));
    let counts = |it: &Option<Arc<Interrupt>>| it.as_ref().is_some_and(|it| it.account.is_some());
    let begins = counts(&next);
    let left = CURRENT.replace(next);
    if begins || counts(&left) {
        let now = thread_time();
        let begun = BEGUN.replace(now);
        if let Some(left) = &left {
            left.charge(begun, now);
        }
    }
    left
}

/// Marks a thread as working on a statement.
#[derive(Debug)]
pub struct InterruptGuard {
    /// The previous statement of the thread, if it was another one.
    left: Option<Option<Arc<Interrupt>>>,
}

impl Drop for InterruptGuard {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            work_on(left);
        }
    }
}

/// A future whose polls are work on a statement.
#[derive(Debug)]
pub struct InterruptScope<F> {
    interrupt: Arc<Interrupt>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for InterruptScope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let interrupt = Arc::clone(&self.interrupt);
        let _entered = interrupt.enter();
        self.future.as_mut().poll(context)
    }
}

/// The same future as work on the statement on which this thread works now, if any: for tasks that the work spawns.
pub fn carried<F: Future>(future: F) -> InterruptScope<F> {
    Interrupt::current_or_new().scope(future)
}

/// How long a check waits while the memory budget is exceeded.
const WHILE_MEMORY_IS_SHORT: Duration = Duration::from_millis(2);

/// An additional action of a check: if the work takes long, it moves the thread's other tasks to another thread.
static RELIEVE: OnceLock<fn()> = OnceLock::new();

/// Sets the action of every check, unless one was set before.
pub fn relieve_with(relieve: fn()) {
    RELIEVE.get_or_init(|| relieve);
}

/// Succeeds while the statement runs on which this thread works, or if it works on none. To be called at least every few milliseconds.
///
/// # Errors
/// The statement has ended.
pub fn check() -> Result<()> {
    if let Some(relieve) = RELIEVE.get() {
        relieve();
    }
    if heap::is_over_bound() {
        // Two threads fill a gigabyte before the monitoring thread polls: they wait until it has ended a statement.
        thread::sleep(WHILE_MEMORY_IS_SHORT);
    }
    heap::give_back_where_asked();
    CURRENT.with_borrow(|current| match current {
        Some(current) => current.check(),
        None => Ok(()),
    })
}

/// The same for loops whose iterations take a microsecond or less: most calls do nothing.
///
/// # Errors
/// The statement has ended.
pub fn check_now_and_then() -> Result<()> {
    const ROUNDS: u32 = 32;
    thread_local! {
        static ROUND: Cell<u32> = const { Cell::new(0) };
    }
    let round = ROUND.get().wrapping_add(1);
    ROUND.set(round);
    match round % ROUNDS {
        0 => check(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_of_the_statement_that_was_entered_last() {
        assert!(check().is_ok());
        let (outer, inner) = (Interrupt::new(), Interrupt::new());
        let entered = outer.enter();
        inner.end();
        assert!(check().is_ok());
        {
            let _inner = inner.enter();
            let _again = inner.enter();
            assert_eq!(
                check().unwrap_err().strip_backtrace(),
                "Execution error: the statement was cancelled"
            );
        }
        assert!(check().is_ok());
        outer.end_for_memory("too much".to_owned());
        outer.end();
        assert!(matches!(
            check().unwrap_err(),
            DataFusionError::ResourcesExhausted(why) if why == "too much"
        ));
        drop(entered);
        assert!(Interrupt::current().is_none());
    }

    #[test]
    fn an_attempt_ends_with_its_statement_and_not_the_statement_with_it() {
        let statement = Interrupt::new();
        let first = statement.attempt();
        first.end_for_memory("too much".to_owned());
        assert!(first.check().is_err() && statement.check().is_ok());
        let second = first.attempt();
        assert!(Arc::ptr_eq(second.statement(), &statement));
        assert!(second.set_extension(Arc::new(17)));
        second.promise(5);
        assert_eq!(
            (
                statement.extension::<i32>().as_deref(),
                statement.promised()
            ),
            (Some(&17), 5)
        );
        assert!(Arc::ptr_eq(second.warnings(), statement.warnings()));
        let before = statement.progress();
        assert!(second.check().is_ok() && statement.progress() > before);
        statement.end();
        assert!(second.is_ended());
        assert_eq!(
            second.check().unwrap_err().strip_backtrace(),
            "Execution error: the statement was cancelled"
        );
    }

    #[test]
    fn the_largest_is_one_that_still_runs() {
        let (small, large) = (Interrupt::new(), Interrupt::new());
        small.bytes.store(i64::MAX - 2, Relaxed);
        large.bytes.store(i64::MAX - 1, Relaxed);
        assert!(Arc::ptr_eq(&Interrupt::largest().unwrap(), &large));
        large.end();
        assert!(Arc::ptr_eq(&Interrupt::largest().unwrap(), &small));
    }
}
