//! A call of the pool allocates nothing, whether its workers are awake or asleep.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pagurid_kernels::threads::{for_each_piece, set_num_threads};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_call_allocates_nothing() {
    set_num_threads(3).unwrap();
    // All three work, so the workers have started; then each has slept once.
    let present = AtomicUsize::new(0);
    for_each_piece(3, 3, &|_| {
        present.fetch_add(1, Ordering::Relaxed);
        while present.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
    });
    let calls = |calls: usize, pause: Duration| {
        for _ in 0..calls {
            for_each_piece(3, 5, &|_| std::thread::yield_now());
            std::thread::sleep(pause);
        }
    };
    calls(10, Duration::from_millis(1));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    calls(1000, Duration::ZERO);
    calls(100, Duration::from_millis(1));
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
}
