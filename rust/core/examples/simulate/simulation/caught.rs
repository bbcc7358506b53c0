//! Panics as messages: what broke and where, without a word on the screen.
//!
//! Owns: the process's panic hook, which stays what it was for all panics outside `catch`.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Some while this thread is inside `catch`.
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs it; a panic is its message and place.
pub fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            let is_caught = MESSAGE.with_borrow_mut(|message| {
                message.as_mut().map(|message| *message = panic.to_string()).is_some()
            });
            if !is_caught {
                others(panic);
            }
        }));
    });
    MESSAGE.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(run));
    let message = MESSAGE.take().unwrap_or_default();
    result.map_err(|_| message)
}
