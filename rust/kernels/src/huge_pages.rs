//! Memory for weights: aligned to cache lines, on huge pages where the system has them.
//!
//! A step reads all weights once, so with small pages it would miss in the TLB at every 4 KiB.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of small pieces; larger ones begin at a huge page.
const LINE_BYTES: usize = 64;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes that are allocated once and never grow; all 0 at first.
pub(crate) struct AlignedBytes {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns plain bytes, and changes them only through `&mut`.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    pub(crate) fn zeroed(len: usize) -> Self {
        let align = if len >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { LINE_BYTES };
        let layout = Layout::from_size_align(len.max(1), align).expect("a size that fits the address space");
        // SAFETY: the layout is not empty.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // Asked for before the memory is touched: pages that exist already stay small.
        advise_huge_pages(start, len);
        // SAFETY: the memory was just allocated with this length.
        unsafe { start.write_bytes(0, len) };
        Self { start, layout }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: allocated with this length, and initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(target_os = "linux")]
fn advise_huge_pages(start: NonNull<u8>, len: usize) {
    if len >= HUGE_PAGE_BYTES {
        // SAFETY: a hint about our own memory, whole pages from an aligned start. It may be refused: then pages stay small.
        unsafe {
            libc::madvise(start.as_ptr().cast(), len / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, libc::MADV_HUGEPAGE)
        };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_start: NonNull<u8>, _len: usize) {}
