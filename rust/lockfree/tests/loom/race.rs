//! How a race is run: a setting, the threads, and what must hold after all of them.

use std::sync::Arc;

/// Goes through the interleavings of `threads` on what `setup` makes; `check` gets what each of them returned.
///
/// Loom first runs the threads in the order in which they were created. When it looks for another order it knows
/// only the last access to each atomic: a thread's read is hidden by the next thread's read, and a write that follows
/// does not lead to an attempt to do it before the first read. A write before a read always leads to the other
/// order. So every order of creation is tried.
pub fn race<S: 'static, R: 'static, const N: usize>(
    setup: fn() -> S,
    threads: [fn(&S) -> R; N],
    check: fn(&S, Vec<R>),
) {
    for order in orders(N) {
        loom::model(move || {
            let setting = Arc::new(setup());
            let spawn = |&number: &usize| {
                let setting = Arc::clone(&setting);
                (number, loom::thread::spawn(move || threads[number](&setting)))
            };
            let mut running: Vec<_> = order.iter().map(spawn).collect();
            running.sort_by_key(|&(number, _)| number);
            let results = running.into_iter().map(|(_, thread)| thread.join().unwrap()).collect();
            check(&setting, results);
        });
    }
}

/// All orders of `0..count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let with_last = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(with_last).collect()
}
