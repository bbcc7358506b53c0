//! Where threads meet without a lock: each structure is small, owns its orderings and is checked under loom.
//!
//! Owns: every weak ordering of the request path, of the block pool and of the kernels' pool of threads. Built with
//! `--cfg loom` the same code runs on loom's atomics, and the `loom_*` tests go through its interleavings.
//! Must not know: requests, tokens, schedules.

mod backoff;
pub mod batch_channel;
pub mod block_refs;
pub mod bounded_queue;
pub mod index_stack;
pub mod job_slot;
pub mod mailbox;
pub mod notice_list;
mod padded;
pub mod seq_lock;
pub mod sleepers;
pub mod slot_word;
pub mod submission_queue;
pub mod sync;
mod thread_number;
pub mod wake_up;

pub use batch_channel::{Batch, BatchChannel};
pub use block_refs::BlockRefs;
pub use bounded_queue::BoundedQueue;
pub use index_stack::{IndexStack, StackLink};
pub use job_slot::{JobSlot, OpenJob, Share};
pub use mailbox::Mailbox;
pub use notice_list::{NoticeLink, NoticeList};
pub use seq_lock::SeqLock;
pub use sleepers::Sleepers;
pub use slot_word::{Life, SlotWord};
pub use submission_queue::SubmissionQueue;
pub use wake_up::WakeUp;
