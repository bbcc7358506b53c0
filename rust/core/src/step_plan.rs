//! The step plan: flat buffers of fixed capacity that never move, which torch reads without a copy.
//!
//! Owns: the buffers and how sequences are laid out in them. Rows are tokens, grouped by sequence.
//! Invariants: the first `num_*` entries are what the last `plan` wrote; every block number ever written lies in the
//! pool, so stale entries beyond them are harmless.
//! The elements are atomics written with Relaxed: a plain store on every machine, and no undefined behaviour should
//! a reader hold a view for too long. Readers on the engine thread are ordered by program order.
//! Must not know: who is scheduled and why.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicUsize, Ordering};

use crate::block_pool::BlockId;
use crate::scheduler::config::SchedulerConfig;

fn zeroed_i32(len: usize) -> Box<[AtomicI32]> {
    (0..len).map(|_| AtomicI32::new(0)).collect()
}

/// The buffers, shared with their readers.
pub struct StepBuffers {
    /// Rows in use.
    pub num_tokens: AtomicUsize,
    /// Sequences in use.
    pub num_sequences: AtomicUsize,
    /// Logits rows in use.
    pub num_logits_rows: AtomicUsize,
    /// Width of `block_tables`.
    pub max_blocks_per_sequence: usize,
    /// `[max_num_batched_tokens]`
    pub token_ids: Box<[AtomicI32]>,
    /// `[max_num_batched_tokens]`
    pub positions: Box<[AtomicI32]>,
    /// `[max_num_batched_tokens]`: block · `block_size` + offset
    pub slot_mapping: Box<[AtomicI64]>,
    /// `[max_num_seqs + 1]`: rows `query_start[s]` .. `query_start[s + 1]` belong to sequence s
    pub query_start: Box<[AtomicI32]>,
    /// `[max_num_seqs]`: tokens in the KV cache after this step
    pub context_lens: Box<[AtomicI32]>,
    /// `[max_num_seqs, max_blocks_per_sequence]`
    pub block_tables: Box<[AtomicI32]>,
    /// `[max_num_seqs]`: rows whose logits are needed, ascending
    pub logits_rows: Box<[AtomicI32]>,
}

impl StepBuffers {
    fn new(config: &SchedulerConfig) -> Self {
        let (rows, sequences) = (config.max_num_batched_tokens, config.max_num_seqs);
        let max_blocks_per_sequence = config.max_blocks_per_sequence();
        Self {
            num_tokens: AtomicUsize::new(0),
            num_sequences: AtomicUsize::new(0),
            num_logits_rows: AtomicUsize::new(0),
            max_blocks_per_sequence,
            token_ids: zeroed_i32(rows),
            positions: zeroed_i32(rows),
            slot_mapping: (0..rows).map(|_| AtomicI64::new(0)).collect(),
            query_start: zeroed_i32(sequences + 1),
            context_lens: zeroed_i32(sequences),
            block_tables: zeroed_i32(sequences * max_blocks_per_sequence),
            logits_rows: zeroed_i32(sequences),
        }
    }
}

/// Which version of which block table a row of `block_tables` holds, and how much of it.
#[derive(Clone, Copy, Default)]
struct TableRow {
    version: u64,
    filled: usize,
}

/// What the layout needs to know of one sequence.
pub struct PlannedRows<'a> {
    /// Its tokens of this step: those of the prompt, then those of the answer.
    pub tokens: [&'a [u32]; 2],
    /// Position of the first.
    pub first_position: usize,
    /// Its blocks.
    pub blocks: &'a [BlockId],
    /// Changes whenever a block that is already in the table does.
    pub table_version: u64,
    /// Whether the logits of its last row are needed.
    pub needs_logits: bool,
}

/// Writes the buffers; the scheduler's.
pub struct StepPlan {
    buffers: Arc<StepBuffers>,
    block_size: usize,
    table_rows: Box<[TableRow]>,
    num_tokens: usize,
    num_sequences: usize,
    num_logits_rows: usize,
}

impl StepPlan {
    /// Buffers for the largest step that `config` allows.
    pub fn new(config: &SchedulerConfig) -> Self {
        Self {
            buffers: Arc::new(StepBuffers::new(config)),
            block_size: config.block_size,
            table_rows: vec![TableRow::default(); config.max_num_seqs].into_boxed_slice(),
            num_tokens: 0,
            num_sequences: 0,
            num_logits_rows: 0,
        }
    }

    /// For readers.
    pub fn buffers(&self) -> &Arc<StepBuffers> {
        &self.buffers
    }

    /// Rows of the step.
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Sequences of the step.
    pub fn num_sequences(&self) -> usize {
        self.num_sequences
    }

    /// Rows whose logits are needed.
    pub fn num_logits_rows(&self) -> usize {
        self.num_logits_rows
    }

    /// Starts a new step.
    pub fn clear(&mut self) {
        (self.num_tokens, self.num_sequences, self.num_logits_rows) = (0, 0, 0);
    }

    /// Appends one sequence.
    pub fn push(&mut self, rows: &PlannedRows<'_>) {
        let buffers = &*self.buffers;
        let first_row = self.num_tokens;
        for (offset, &token) in rows.tokens.into_iter().flatten().enumerate() {
            let (row, position) = (first_row + offset, rows.first_position + offset);
            let slot = rows.blocks[position / self.block_size] as usize * self.block_size
                + position % self.block_size;
            buffers.token_ids[row].store(token as i32, Ordering::Relaxed);
            buffers.positions[row].store(position as i32, Ordering::Relaxed);
            buffers.slot_mapping[row].store(slot as i64, Ordering::Relaxed);
        }
        let num_tokens = rows.tokens[0].len() + rows.tokens[1].len();
        self.num_tokens += num_tokens;

        let sequence = self.num_sequences;
        self.num_sequences += 1;
        let context_len = rows.first_position + num_tokens;
        buffers.query_start[sequence].store(first_row as i32, Ordering::Relaxed);
        buffers.query_start[sequence + 1].store(self.num_tokens as i32, Ordering::Relaxed);
        buffers.context_lens[sequence].store(context_len as i32, Ordering::Relaxed);

        // Sequences keep their row from step to step as a rule: then only new blocks are written.
        let table_row = &mut self.table_rows[sequence];
        if table_row.version != rows.table_version {
            *table_row = TableRow { version: rows.table_version, filled: 0 };
        }
        let table = &buffers.block_tables[sequence * buffers.max_blocks_per_sequence..];
        for (entry, &block) in table.iter().zip(rows.blocks).skip(table_row.filled) {
            entry.store(block as i32, Ordering::Relaxed);
        }
        table_row.filled = rows.blocks.len();

        if rows.needs_logits {
            buffers.logits_rows[self.num_logits_rows].store(self.num_tokens as i32 - 1, Ordering::Relaxed);
            self.num_logits_rows += 1;
        }
    }

    /// Shows the step to the readers.
    pub fn publish(&self) {
        self.buffers.num_tokens.store(self.num_tokens, Ordering::Release);
        self.buffers.num_sequences.store(self.num_sequences, Ordering::Release);
        self.buffers.num_logits_rows.store(self.num_logits_rows, Ordering::Release);
    }
}
