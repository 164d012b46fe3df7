//! How much memory the process has allocated: counted where it is allocated, because much of what a query engine holds
//! (buffers that double, decoded blocks, results of functions, packets) is reserved with nobody.
//!
//! Each thread counts for itself and adds to the sum of all when it has something [worth adding](WORTH_ADDING), so that
//! counting costs an addition. A sum is therefore wrong by up to that much for each thread.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Bytes from which on a thread adds what it has counted to the sum.
pub const WORTH_ADDING: i64 = 64 << 10;

/// Bytes that all threads have allocated and not freed.
static ALLOCATED: AtomicI64 = AtomicI64::new(0);

thread_local! {
    // Without destructors, so that an allocator may use them.
    static OF_THREAD: Cell<i64> = const { Cell::new(0) };
    static ADDED: Cell<i64> = const { Cell::new(0) };
}

/// An allocator that counts what another gives and takes back.
#[derive(Debug)]
pub struct CountingAllocator<A>(pub A);

/// Bytes that the process has allocated and not freed; 0 where its allocator is not a [`CountingAllocator`].
pub fn allocated() -> i64 {
    ALLOCATED.load(Relaxed)
}

/// Bytes that this thread has allocated, without those that it has freed, whoever had allocated them.
pub(super) fn of_this_thread() -> i64 {
    OF_THREAD.get()
}

fn count(bytes: i64) {
    // A thread that ends has no cells any more; what it frees then is little.
    let _ = OF_THREAD.try_with(|of_thread| {
        let now = of_thread.get() + bytes;
        of_thread.set(now);
        let _ = ADDED.try_with(|added| {
            let more = now - added.get();
            if more.abs() > WORTH_ADDING {
                added.set(now);
                ALLOCATED.fetch_add(more, Relaxed);
            }
        });
    });
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
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { self.0.realloc(pointer, layout, size) }
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
        let before = of_this_thread();
        // SAFETY: the layout is not empty, and each pointer is freed once with the layout that it has.
        unsafe {
            let pointer = allocator.alloc(layout);
            assert_eq!(of_this_thread() - before, 1 << 20);
            let pointer = allocator.realloc(pointer, layout, 3 << 20);
            assert_eq!(of_this_thread() - before, 3 << 20);
            assert!(allocated() > 0);
            allocator.dealloc(pointer, Layout::from_size_align(3 << 20, 8).unwrap());
        }
        assert_eq!(of_this_thread(), before);
    }
}
