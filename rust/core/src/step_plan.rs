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
    /// `[max_num_batched_tokens]`; −1 − r: the token that logits row r of the step before this one will give
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
    /// `[max_num_seqs]`: rows whose logits are needed, ascending; one that several sequences choose from is repeated
    pub logits_rows: Box<[AtomicI32]>,
    /// Copies in use.
    pub num_block_copies: AtomicUsize,
    /// `[max_num_seqs, 2]`: (from, to), blocks to be copied before the step runs; all are read before any is written
    pub block_copies: Box<[AtomicI32]>,
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
            num_block_copies: AtomicUsize::new(0),
            block_copies: zeroed_i32(2 * sequences),
        }
    }
}

/// Which version of which block table a row of `block_tables` holds, and how much of it.
#[derive(Clone, Copy, Default)]
struct TableRow {
    version: u64,
    filled: usize,
}

/// A chunk of one sequence.
pub struct PlannedRows<'a> {
    /// Its tokens of this step, in pieces.
    pub tokens: [&'a [u32]; 3],
    /// Position of the first.
    pub first_position: usize,
    /// Its blocks.
    pub blocks: &'a [BlockId],
    /// Changes whenever a block that is already in the table does.
    pub table_version: u64,
}

/// The next token of one answer: it goes into the last block, and its logits are needed.
pub struct DecodeRow<'a> {
    /// As in `token_ids`.
    pub token: i32,
    /// Its position.
    pub position: usize,
    /// The last of its sequence's blocks.
    pub tail: BlockId,
    /// Its sequence's blocks.
    pub blocks: &'a [BlockId],
    /// Changes whenever a block that is already in the table does.
    pub table_version: u64,
}

/// Writes the buffers; the scheduler's.
pub struct StepPlan {
    buffers: Arc<StepBuffers>,
    block_size: usize,
    table_rows: Box<[TableRow]>,
    num_tokens: usize,
    num_sequences: usize,
    num_logits_rows: usize,
    num_block_copies: usize,
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
            num_block_copies: 0,
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
        (self.num_tokens, self.num_sequences, self.num_logits_rows, self.num_block_copies) = (0, 0, 0, 0);
    }

    /// Appends one row of one sequence; returns the number of its logits row.
    pub fn push_decode(&mut self, row: &DecodeRow<'_>) -> u32 {
        let offset = row.position - (row.blocks.len() - 1) * self.block_size;
        self.put_row(self.num_tokens, row.token, row.position, row.tail as usize * self.block_size + offset);
        self.num_tokens += 1;
        self.put_sequence(1, row.position + 1, row.blocks, row.table_version);
        self.push_logits_row()
    }

    /// Appends a chunk of one sequence.
    pub fn push_chunk(&mut self, rows: &PlannedRows<'_>) {
        let first_row = self.num_tokens;
        for (offset, &token) in rows.tokens.into_iter().flatten().enumerate() {
            let position = rows.first_position + offset;
            let block = rows.blocks[position / self.block_size] as usize;
            let slot = block * self.block_size + position % self.block_size;
            self.put_row(first_row + offset, token as i32, position, slot);
        }
        let num_tokens = rows.tokens.iter().map(|piece| piece.len()).sum::<usize>();
        self.num_tokens += num_tokens;
        self.put_sequence(num_tokens, rows.first_position + num_tokens, rows.blocks, rows.table_version);
    }

    fn put_row(&self, row: usize, token: i32, position: usize, slot: usize) {
        self.buffers.token_ids[row].store(token, Ordering::Relaxed);
        self.buffers.positions[row].store(position as i32, Ordering::Relaxed);
        self.buffers.slot_mapping[row].store(slot as i64, Ordering::Relaxed);
    }

    fn put_sequence(&mut self, num_tokens: usize, context_len: usize, blocks: &[BlockId], version: u64) {
        let buffers = &*self.buffers;
        let sequence = self.num_sequences;
        self.num_sequences += 1;
        let first_row = self.num_tokens - num_tokens;
        buffers.query_start[sequence].store(first_row as i32, Ordering::Relaxed);
        buffers.query_start[sequence + 1].store(self.num_tokens as i32, Ordering::Relaxed);
        buffers.context_lens[sequence].store(context_len as i32, Ordering::Relaxed);

        // Sequences keep their row from step to step as a rule: then only new blocks are written.
        let table_row = &mut self.table_rows[sequence];
        if table_row.version != version {
            *table_row = TableRow { version, filled: 0 };
        }
        if table_row.filled < blocks.len() {
            let table = &buffers.block_tables[sequence * buffers.max_blocks_per_sequence..];
            for (entry, &block) in table.iter().zip(blocks).skip(table_row.filled) {
                entry.store(block as i32, Ordering::Relaxed);
            }
            table_row.filled = blocks.len();
        }
    }

    /// The newest row's logits are needed; returns the number of the logits row.
    pub fn push_logits_row(&mut self) -> u32 {
        let logits_row = self.num_logits_rows;
        self.buffers.logits_rows[logits_row].store(self.num_tokens as i32 - 1, Ordering::Relaxed);
        self.num_logits_rows += 1;
        logits_row as u32
    }

    /// `from` must be copied to `to` before the step runs.
    pub fn push_block_copy(&mut self, from: BlockId, to: BlockId) {
        let at = 2 * self.num_block_copies;
        self.buffers.block_copies[at].store(from as i32, Ordering::Relaxed);
        self.buffers.block_copies[at + 1].store(to as i32, Ordering::Relaxed);
        self.num_block_copies += 1;
    }

    /// Shows the step to the readers.
    pub fn publish(&self) {
        self.buffers.num_tokens.store(self.num_tokens, Ordering::Release);
        self.buffers.num_sequences.store(self.num_sequences, Ordering::Release);
        self.buffers.num_logits_rows.store(self.num_logits_rows, Ordering::Release);
        self.buffers.num_block_copies.store(self.num_block_copies, Ordering::Release);
    }
}
