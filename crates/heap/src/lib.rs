//! How much memory the process has allocated: counted where it is allocated, because much of what a query engine holds
//! (buffers that double, decoded blocks, results of functions, packets) is reserved with nobody.
//!
//! Each thread counts for itself and adds to the sum of all when it has something [worth adding](WORTH_ADDING), so that
//! counting costs an addition. A sum is therefore wrong by up to that much for each thread.
//!
//! All unsafe code of the workspace is here: the calls of the allocator and of the system about its pages, and the account of a thread, which
//! the allocator reaches by a pointer because it may not use anything that has a destructor. May depend on the allocator that it counts for, and on nothing else.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use mimalloc::MiMalloc;

/// Bytes from which on a thread adds what it has counted to the sum.
pub const WORTH_ADDING: i64 = 64 << 10;

/// Bytes that all threads have allocated and not freed.
static ALLOCATED: AtomicI64 = AtomicI64::new(0);

thread_local! {
    // Without destructors, so that an allocator may use them.
    static HEARD: Cell<u64> = const { Cell::new(0) };
    static PENDING: Cell<i64> = const { Cell::new(0) };
    static ACCOUNT: Cell<*const AtomicI64> = const { Cell::new(std::ptr::null()) };
    /// What keeps the account in being.
    static HELD: RefCell<Held> = const { RefCell::new(Held(None)) };
}

/// Bytes that are allocated for one owner and not freed.
pub type Account = Arc<AtomicI64>;

/// A thread's account. When the thread ends nothing is added to it any more before it goes.
#[derive(Debug)]
struct Held(Option<Account>);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = ACCOUNT.try_with(|account| account.set(std::ptr::null()));
    }
}

unsafe extern "C" {
    /// mimalloc's: gives free pages back to the system, at once where forced.
    fn mi_collect(force: bool);
}

/// The program's allocator: mimalloc, counted. Scans make and drop a buffer for each block of each column: mimalloc keeps them at
/// hand, where the system's allocator would give the pages back and fault them in anew.
pub const fn counting() -> CountingAllocator<MiMalloc> {
    CountingAllocator(MiMalloc)
}

/// Has mimalloc give back to the system what it keeps at hand for this thread.
pub fn give_back() {
    // SAFETY: any thread may call it at any time.
    unsafe { mi_collect(true) };
}

#[cfg(target_os = "linux")]
unsafe extern "C" {
    /// Linux's, by the C library.
    fn prctl(option: i32, ...) -> i32;
}

/// Has the system give this process memory in pages of its smallest size from now on, where it would give pages of 2 MiB. Those are quicker to
/// get and to read, but each is held as long as anything in it is: where many threads allocate and free, that is twice what is in use and more.
/// Returns whether the system does.
pub fn use_small_pages() -> bool {
    #[cfg(target_os = "linux")]
    {
        const PR_SET_THP_DISABLE: i32 = 41;
        // SAFETY: it changes how the system chooses pages, and nothing of what is in them. The arguments are those that it wants.
        unsafe { prctl(PR_SET_THP_DISABLE, 1_usize, 0_usize, 0_usize, 0_usize) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// An allocator that counts what another gives and takes back.
#[derive(Debug)]
pub struct CountingAllocator<A>(pub A);

/// Bytes from which on those that allocate more had better wait.
static BOUND: AtomicI64 = AtomicI64::new(i64::MAX);

/// Sets how much may be allocated before checks wait until a statement was chosen to end.
pub fn bound(bytes: i64) {
    BOUND.store(bytes, Relaxed);
}

/// Whether more is allocated than may be.
pub fn is_over_bound() -> bool {
    allocated() > BOUND.load(Relaxed)
}

/// What has the allocator give pages back to the system that it keeps at hand.
static GIVE_BACK: OnceLock<fn()> = OnceLock::new();

/// Says what has the allocator give pages back to the system that it keeps at hand.
pub fn give_back_by(give_back: fn()) {
    GIVE_BACK.get_or_init(|| give_back);
}

/// How often threads were asked to have the allocator give back what it keeps at hand for them.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Asks every thread to have the allocator give pages back that it keeps at hand for it: nobody else can. Each does when it next allocates
/// or frees something [worth adding](WORTH_ADDING), or checks whether its statement goes on.
pub fn ask_to_give_back() {
    ASKED.fetch_add(1, Relaxed);
    give_back_where_asked();
}

/// Has the allocator give back what it keeps at hand for this thread, where somebody has requested that since the last time.
pub fn give_back_where_asked() {
    let asked = ASKED.load(Relaxed);
    let heard = HEARD.try_with(|heard| heard.replace(asked));
    if heard.is_ok_and(|heard| heard != asked)
        && let Some(give_back) = GIVE_BACK.get()
    {
        give_back();
    }
}

/// Bytes that the process has allocated and not freed; 0 where its allocator is not a [`CountingAllocator`].
pub fn allocated() -> i64 {
    ALLOCATED.load(Relaxed)
}

/// Has what this thread allocates from now on added to an account as well, or to none; gives the one to which it was added before.
pub fn add_to(account: Option<Account>) -> Option<Account> {
    add_pending();
    let pointer = account
        .as_deref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // The account before is in being until the pointer is no longer its own.
    let before = HELD.with_borrow_mut(|held| std::mem::replace(&mut held.0, account));
    ACCOUNT.set(pointer);
    before
}

fn count(bytes: i64) {
    // A thread that ends has no cells any more; what it frees then is little.
    let pending = PENDING.try_with(|pending| {
        let now = pending.get() + bytes;
        pending.set(now);
        now
    });
    if pending.is_ok_and(|pending| pending.abs() > WORTH_ADDING) {
        add_pending();
        // Threads that read back what was spilled do nothing else, and are many: each would keep what others have freed.
        give_back_where_asked();
    }
}

/// Adds what the thread has counted to the sum and to its account.
fn add_pending() {
    let pending = PENDING.try_with(|pending| pending.replace(0)).unwrap_or(0);
    ALLOCATED.fetch_add(pending, Relaxed);
    let account = ACCOUNT.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: HELD keeps the account until another is there, or none.
    if let Some(account) = unsafe { account.as_ref() } {
        account.fetch_add(pending, Relaxed);
    }
}

// SAFETY: every call is the inner allocator's own; counting neither allocates nor panics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // For a while there are both.
        count(size as i64);
        // SAFETY: as above.
        let moved = unsafe { self.0.realloc(pointer, layout, size) };
        count(-(layout.size() as i64));
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn what_is_freed_is_no_longer_counted() {
        let allocator = CountingAllocator(System);
        let layout = Layout::from_size_align(1 << 20, 8).unwrap();
        let account = Account::default();
        let before = add_to(Some(Arc::clone(&account)));
        // SAFETY: the layout is not empty, and each pointer is freed once with the layout that it has.
        unsafe {
            let pointer = allocator.alloc(layout);
            assert_eq!(account.load(Relaxed), 1 << 20);
            let pointer = allocator.realloc(pointer, layout, 3 << 20);
            assert_eq!(account.load(Relaxed), 3 << 20);
            assert!(allocated() > 0);
            allocator.dealloc(pointer, Layout::from_size_align(3 << 20, 8).unwrap());
            assert_eq!(account.load(Relaxed), 0);
            let small = Layout::from_size_align(1000, 8).unwrap();
            let pointer = allocator.alloc(small);
            assert!(add_to(before).is_some_and(|it| Arc::ptr_eq(&it, &account)));
            assert_eq!(account.load(Relaxed), 1000);
            allocator.dealloc(pointer, small);
        }
        assert_eq!(account.load(Relaxed), 1000);
    }
}
