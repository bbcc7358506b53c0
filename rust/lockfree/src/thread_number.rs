//! A small number for each thread, by which threads keep out of each other's way.
//!
//! Owns: the count of threads that have asked. Must not know: what it is used for.

/// The calling thread's number: the first to ask is 0.
pub fn thread_number() -> usize {
    // Not loom's: the number decides where a thread looks first, not what it finds.
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    NUMBER.with(|&number| number)
}
