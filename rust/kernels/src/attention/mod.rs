//! Causal attention of new tokens over a paged KV cache, for prefill and decode alike.
//!
//! Owns: the checks, and the cut into units of work. A unit is some query rows of one sequence against one KV
//! head; the query heads that share it are in one unit, so K and V are read once for all of them.
//! Invariant: the keys are cut into chunks of `CHUNK` at fixed absolute positions; each chunk gives a row a
//! maximum, a sum and an output, and these are folded from left to right. So a row's bits depend neither on
//! the batch nor on the threads, the block numbers, the block size, or on how its prompt was cut.

mod chunk;
mod keys;
mod parts;
mod values;

use std::cell::RefCell;

use crate::kv_cache::KvCacheShape;
use crate::lanes::LANES;
use crate::shared_output::SharedOutput;
use crate::threads::for_each_piece;
use crate::{Cpu, InvalidArgument};
use keys::Scratch;
use parts::PartShape;

/// Keys of a chunk.
pub(crate) const CHUNK: usize = 128;
/// Vectors of 16 keys in a chunk.
const GROUPS: usize = CHUNK / LANES;
/// Query rows (positions times heads) of a unit.
const MAX_UNIT_ROWS: usize = 64;
/// The widest head.
pub const MAX_HEAD_DIM: usize = 256;
/// Multiply-adds that one thread does before another could wake up.
const INLINE_WORK: usize = 100_000;

/// What is read. T rows, S sequences.
#[derive(Debug, Clone, Copy)]
pub struct AttentionInputs<'a> {
    /// [T, `num_heads`, D]
    pub q: &'a [f32],
    /// One layer's K.
    pub k_cache: &'a [f32],
    /// One layer's V.
    pub v_cache: &'a [f32],
    /// Shape of both.
    pub cache: KvCacheShape,
    /// [S + 1]
    pub query_start: &'a [i32],
    /// [S]
    pub context_lens: &'a [i32],
    /// [S, `max_blocks`]
    pub block_tables: &'a [i32],
    /// Heads of q.
    pub num_heads: usize,
    /// Factor of the scores.
    pub scale: f32,
}

impl AttentionInputs<'_> {
    fn max_blocks(&self) -> usize {
        self.block_tables.len().checked_div(self.context_lens.len()).unwrap_or(0)
    }

    fn rows_of(&self, sequence: usize) -> (usize, usize) {
        (self.query_start[sequence] as usize, self.query_start[sequence + 1] as usize)
    }

    /// Every value that becomes an address, once.
    fn check(&self, rows: usize) -> Result<(), InvalidArgument> {
        let sequences = self.context_lens.len();
        let starts = self.query_start;
        if starts[0] != 0 || starts[sequences] as usize != rows || starts.windows(2).any(|w| w[0] > w[1]) {
            return Err(InvalidArgument(format!(
                "query_start must rise from 0 to the number of rows, {rows}; got {starts:?}"
            )));
        }
        let max_blocks = self.max_blocks();
        for sequence in 0..sequences {
            let context = self.context_lens[sequence];
            let (start, end) = self.rows_of(sequence);
            if start == end {
                continue;
            }
            let most = max_blocks * self.cache.block_size;
            if context < (end - start) as i32 || context as usize > most {
                return Err(InvalidArgument(format!(
                    "context_lens[{sequence}] must be in {}..={most} for its {} rows and {max_blocks} blocks of {}; \
                     got {context}",
                    end - start,
                    end - start,
                    self.cache.block_size
                )));
            }
            let used = (context as usize).div_ceil(self.cache.block_size);
            let table = &self.block_tables[sequence * max_blocks..][..used];
            if let Some(&block) = table.iter().find(|&&b| b < 0 || b as usize >= self.cache.num_blocks) {
                return Err(InvalidArgument(format!(
                    "block_tables[{sequence}] must name blocks in 0..{}; got {block}",
                    self.cache.num_blocks
                )));
            }
        }
        Ok(())
    }
}

/// Query rows of one sequence against one KV head: `positions` rows of q from `first_row`, `heads` heads of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    sequence: usize,
    first_row: usize,
    positions: usize,
    kv_head: usize,
    first_head: usize,
    heads: usize,
    /// Keys that the first position sees; each later one sees one more.
    first_seen: usize,
}

impl Unit {
    fn rows(&self) -> usize {
        self.positions * self.heads
    }

    /// Keys that a row of the unit sees (rows are positions times heads).
    #[inline(always)]
    fn seen(&self, row: usize) -> usize {
        self.first_seen + row / self.heads
    }

    fn chunks(&self) -> usize {
        self.seen(self.rows() - 1).div_ceil(CHUNK)
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// out [T, `num_heads` D]
pub fn paged_attention(cpu: Cpu, inputs: &AttentionInputs, out: &mut [f32]) -> Result<(), InvalidArgument> {
    let cache = inputs.cache;
    let row_len = inputs.num_heads * cache.head_dim;
    assert_eq!(inputs.q.len(), out.len());
    assert_eq!((inputs.k_cache.len(), inputs.v_cache.len()), (cache.len(), cache.len()));
    assert!((1..=MAX_HEAD_DIM).contains(&cache.head_dim) && cache.block_size > 0);
    assert!(inputs.num_heads.is_multiple_of(cache.kv_heads));
    assert_eq!(inputs.query_start.len(), inputs.context_lens.len() + 1);
    assert_eq!(inputs.block_tables.len(), inputs.context_lens.len() * inputs.max_blocks());
    if out.is_empty() {
        return Ok(());
    }
    inputs.check(out.len() / row_len)?;

    let units = units_of(inputs);
    let out = SharedOutput::new(out);
    let shape = PartShape { head_dim: cache.head_dim };
    let work: usize = units.iter().map(|u| u.rows() * u.seen(u.rows() - 1) * cache.head_dim).sum();
    let num_threads = if work <= INLINE_WORK { 1 } else { cpu.num_threads };
    let most_chunks = units.iter().map(Unit::chunks).max().unwrap_or(0);
    if num_threads == 1 || units.len() >= 4 * num_threads || most_chunks == 1 {
        for_each_piece(num_threads, units.len(), &|i| {
            SCRATCH.with_borrow_mut(|scratch| {
                let unit = &units[i];
                for chunk in 0..unit.chunks() {
                    let (state, next) = scratch.parts(unit.rows() * shape.len());
                    // The first chunk is seen by every row, so it starts all the states.
                    let to = if chunk == 0 { state } else { next };
                    chunk::attend(cpu.isa, inputs, unit, chunk, true, scratch, to);
                    if chunk > 0 {
                        for row in (0..unit.rows()).filter(|&row| unit.seen(row) > chunk * CHUNK) {
                            let at = row * shape.len();
                            // SAFETY: both buffers have room for the unit's rows.
                            unsafe {
                                parts::fold(cpu.isa, state.wrapping_add(at), next.wrapping_add(at), shape);
                            }
                        }
                    }
                }
                let (state, _) = scratch.parts(unit.rows() * shape.len());
                for row in 0..unit.rows() {
                    let to = out.at(row_offset(inputs, unit, row));
                    // SAFETY: the state has the unit's rows, and the output row is this unit's alone.
                    unsafe { parts::finish(cpu.isa, state.wrapping_add(row * shape.len()), to, shape) }
                }
            });
        });
        return Ok(());
    }

    // Few rows and many keys: each chunk is a piece of its own, and the folding comes after.
    let mut pieces = Vec::new();
    let mut first_parts = Vec::with_capacity(units.len());
    let mut parts_len = 0;
    for unit in &units {
        first_parts.push(parts_len);
        for chunk in 0..unit.chunks() {
            pieces.push((unit, chunk, parts_len));
            parts_len += unit.rows() * shape.len();
        }
    }
    let mut parts = vec![0f32; parts_len];
    let shared_parts = SharedOutput::new(&mut parts);
    for_each_piece(num_threads, pieces.len(), &|i| {
        let (unit, chunk, at) = pieces[i];
        SCRATCH.with_borrow_mut(|scratch| {
            chunk::attend(cpu.isa, inputs, unit, chunk, false, scratch, shared_parts.at(at));
        });
    });
    for (unit, &first) in units.iter().zip(&first_parts) {
        let chunk_len = unit.rows() * shape.len();
        for row in 0..unit.rows() {
            let state = shared_parts.at(first + row * shape.len());
            for chunk in 1..unit.seen(row).div_ceil(CHUNK) {
                // SAFETY: every chunk that the row sees has its part.
                unsafe { parts::fold(cpu.isa, state, state.wrapping_add(chunk * chunk_len), shape) }
            }
            // SAFETY: as above; the row is inside of the output.
            unsafe { parts::finish(cpu.isa, state, out.at(row_offset(inputs, unit, row)), shape) }
        }
    }
    Ok(())
}

/// Where a row of a unit is in q, and in the output.
#[inline(always)]
fn row_offset(inputs: &AttentionInputs, unit: &Unit, row: usize) -> usize {
    let position = unit.first_row + row / unit.heads;
    (position * inputs.num_heads + unit.first_head + row % unit.heads) * inputs.cache.head_dim
}

fn units_of(inputs: &AttentionInputs) -> Vec<Unit> {
    let kv_heads = inputs.cache.kv_heads;
    let group = inputs.num_heads / kv_heads;
    let heads_at_once = group.min(MAX_UNIT_ROWS);
    let positions_at_once = MAX_UNIT_ROWS / heads_at_once;
    let mut units = Vec::new();
    for sequence in 0..inputs.context_lens.len() {
        let (start, end) = inputs.rows_of(sequence);
        let context = inputs.context_lens[sequence] as usize;
        // Later rows see more: starting with them, threads end at about the same time.
        let mut row_end = end;
        while row_end > start {
            // Cut at fixed multiples from the end, so only the first unit is short.
            let first_row = row_end.saturating_sub(positions_at_once).max(start);
            for kv_head in 0..kv_heads {
                for first in (0..group).step_by(heads_at_once) {
                    units.push(Unit {
                        sequence,
                        first_row,
                        positions: row_end - first_row,
                        kv_head,
                        first_head: kv_head * group + first,
                        heads: heads_at_once.min(group - first),
                        first_seen: context - (end - first_row) + 1,
                    });
                }
            }
            row_end = first_row;
        }
    }
    units
}

/// Floats of a head, rounded up to whole vectors.
fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(LANES)
}
