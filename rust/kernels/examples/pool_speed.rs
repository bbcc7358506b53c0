//! What the pool of threads costs, and what it gets out of the cores quiet and beside a busy process.
//!
//! `cargo run --release -p pagurid-kernels --example pool_speed [ROUNDS]` prints medians; quiet and busy rounds take
//! turns. Times include one reading of the clock, some 30 ns.

use std::hint::black_box;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pagurid_kernels::threads::{for_each_piece, num_threads};

/// The argument that makes this program the busy process beside another.
const BUSY: &str = "--busy";
const ROUND: Duration = Duration::from_millis(500);
/// One call is a small layer: some pieces of some 10 µs each, as the kernels cut them.
const PIECES: usize = 16;
const PIECE_BYTES: usize = 128 << 10;
/// More than a cache holds.
const MEMORY_BYTES: usize = 512 << 20;

fn main() {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some(BUSY) {
        loop {
            compute();
        }
    }
    let rounds = argument.map_or(7, |rounds| rounds.parse().expect("ROUNDS is a number"));
    println!("threads                                   {:8}", num_threads());
    calls();
    idle();
    beside_a_busy_process(rounds);
}

/// One call at a time.
fn calls() {
    let work = |_| compute();
    let alone = median(2000, || time(|| (0..2).for_each(work)));
    println!("2 pieces of work on one thread            {alone:8.2} µs");
    println!("2 pieces of work, back to back            {:8.2} µs", median(2000, || time(|| call(2, &work))));
    println!("2 pieces of work, after a pause of 1 ms   {:8.2} µs", after_pauses(&work));
    let nothing = |_| ();
    println!(
        "2 empty pieces, back to back              {:8.2} µs",
        median(20_000, || time(|| call(2, &nothing)))
    );
    println!("2 empty pieces, after a pause of 1 ms     {:8.2} µs", after_pauses(&nothing));
}

fn after_pauses(work: &(dyn Fn(usize) + Sync)) -> f64 {
    median(1000, || {
        std::thread::sleep(Duration::from_millis(1));
        time(|| call(2, work))
    })
}

/// What all threads use while there is nothing to do.
fn idle() {
    call(PIECES, &|_| compute());
    let before = cpu_time();
    std::thread::sleep(Duration::from_secs(1));
    if let (Some(before), Some(after)) = (before, cpu_time()) {
        println!("CPU time in an idle second                {:8.1} µs", micros(after.saturating_sub(before)));
    }
}

/// Rounds alone and beside a process that wants a whole core, in turns.
fn beside_a_busy_process(rounds: usize) {
    let memory = vec![1u64; MEMORY_BYTES / size_of::<u64>()];
    let stretches: Vec<&[u64]> = memory.chunks_exact(PIECE_BYTES / size_of::<u64>()).collect();
    let read = |number: usize| {
        let stretches = &stretches[number * PIECES % stretches.len()..];
        call(PIECES, &|i| {
            black_box(stretches[i].iter().fold(0u64, |sum, &x| sum.wrapping_add(x)));
        });
    };
    let count = |_| call(PIECES, &|_| compute());
    let [mut read_quiet, mut read_busy, mut count_quiet, mut count_busy] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        read_quiet.push(calls_per_s(read));
        count_quiet.push(calls_per_s(count));
        let _busy = Busy::start();
        read_busy.push(calls_per_s(read));
        count_busy.push(calls_per_s(count));
    }
    let gb = (PIECES * PIECE_BYTES) as f64 / 1e9;
    let (quiet, busy) = (middle(read_quiet), middle(read_busy));
    println!("reading memory, quiet                     {:8.2} GB/s", quiet * gb);
    println!("reading memory, beside a busy process     {:8.2} of that", busy / quiet);
    let (quiet, busy) = (middle(count_quiet), middle(count_busy));
    println!("computing, quiet                          {:8.0} pieces/ms", quiet * PIECES as f64 / 1e3);
    println!("computing, beside a busy process          {:8.2} of that", busy / quiet);
}

fn call(pieces: usize, work: &(dyn Fn(usize) + Sync)) {
    for_each_piece(num_threads(), pieces, work);
}

/// One piece that is bound by arithmetic; the sums stay in registers.
#[inline(never)]
fn compute() {
    let mut sums = [1.0f32; 32];
    for i in 0..4000u16 {
        let factor = black_box(f32::from(i));
        for sum in &mut sums {
            *sum = *sum * 0.5 + factor;
        }
    }
    black_box(sums);
}

/// A process that is busy as long as this lives.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new(program).arg(BUSY).spawn().expect("this program can be started");
        std::thread::sleep(Duration::from_millis(100));
        Self(child)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // If it is gone already, that is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn calls_per_s(mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < ROUND {
        call(calls);
        calls += 1;
    }
    calls as f64 / start.elapsed().as_secs_f64()
}

/// CPU time of all threads so far, where Linux tells it.
fn cpu_time() -> Option<Duration> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let nanos = threads.map(|thread| {
        let figures = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        figures.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanos.sum::<Option<u64>>().map(Duration::from_nanos)
}

fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    micros(start.elapsed())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(times: usize, mut sample: impl FnMut() -> f64) -> f64 {
    middle((0..times).map(|_| sample()).collect())
}

fn middle(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
