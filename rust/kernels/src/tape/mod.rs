//! The recorded step: a model's kernels in order, played without anything in between.
//!
//! Owns: the list of kernels, the memory of the activations, and the play. Who records it calls one method of
//! `TapeRecorder` for each op of the model's forward pass.
//! Invariants: playing is the same calls with the same numbers as computing op by op, so the bits are the same; once
//! the memory has grown to a step's size, a step of that size allocates nothing.
//! Must not know: Python, which model it is, where the step's numbers come from.

mod operation;
mod places;
mod recorder;
mod tensor;

pub use operation::{Heads, LayerCache, Value};
pub use places::Rows;
pub use recorder::TapeRecorder;
pub use tensor::{Owner, Tensor, WeightTensor};

use crate::attention::{AttentionInputs, paged_attention};
use crate::linear::{LinearShape, linear};
use crate::norm::{HeadNorm, add_rms_norm, norm_heads, rms_norm};
use crate::quantized::{ActivationType, Activations};
use crate::rope::{RopeInputs, rope_kv_write};
use crate::rows::{add_bias, take_rows};
use crate::{Cpu, InvalidArgument, activation};
use operation::Operation;
use places::{LINE_FLOATS, Life, place};

/// The numbers that one step reads: T tokens of S sequences.
#[derive(Debug, Clone, Copy)]
pub struct StepInputs<'a> {
    /// [T]
    pub token_ids: &'a [i32],
    /// [T]
    pub positions: &'a [i32],
    /// [T]
    pub slot_mapping: &'a [i64],
    /// [S + 1]
    pub query_start: &'a [i32],
    /// [S]
    pub context_lens: &'a [i32],
    /// [S, `max_blocks`]
    pub block_tables: &'a [i32],
    /// [R]
    pub logits_rows: &'a [i32],
    /// [n, 2]: (from, to), blocks of the KV caches that are copied before anything else
    pub block_copies: &'a [i32],
}

impl StepInputs<'_> {
    fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.token_ids.len(),
            Rows::Logits => self.logits_rows.len(),
        }
    }

    fn check(&self) -> Result<(), InvalidArgument> {
        let (tokens, sequences) = (self.token_ids.len(), self.context_lens.len());
        let per_token = self.positions.len() == tokens && self.slot_mapping.len() == tokens;
        let per_sequence = self.query_start.len() == sequences + 1
            && (self.block_tables.is_empty() || sequences > 0)
            && self.block_tables.len().is_multiple_of(sequences.max(1));
        if per_token && per_sequence {
            return Ok(());
        }
        Err(InvalidArgument(format!(
            "a step needs token_ids, positions and slot_mapping [T], query_start [S + 1], context_lens [S] and \
             block_tables [S, max_blocks]; got {tokens}, {}, {}, {}, {sequences} and {}",
            self.positions.len(),
            self.slot_mapping.len(),
            self.query_start.len(),
            self.block_tables.len()
        )))
    }
}

/// A recorded step.
pub struct Tape {
    operations: Vec<Operation>,
    layout: Layout,
    /// Of the activations, for each kind of rows; grows to the largest step.
    memory: [Vec<Line>; 2],
    quantized: [Activations; 2],
    logits: Value,
}

/// Where each activation is.
struct Layout {
    lives: Vec<Life>,
    places: Vec<usize>,
    /// Floats that one row takes of each kind of rows.
    row_floats: [usize; 2],
}

/// A cache line of floats, so that vectors never straddle two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE_FLOATS]);

/// The activations of one play.
#[derive(Clone, Copy)]
struct Step<'a> {
    layout: &'a Layout,
    memory: [*mut f32; 2],
    inputs: &'a StepInputs<'a>,
}

impl<'a> Step<'a> {
    fn width(self, value: Value) -> usize {
        self.layout.lives[value.0].width
    }

    fn rows(self, value: Value) -> usize {
        self.inputs.rows(self.layout.lives[value.0].rows)
    }

    fn start(self, value: Value) -> *mut f32 {
        let memory = self.memory[self.layout.lives[value.0].rows as usize];
        memory.wrapping_add(self.layout.places[value.0] * self.rows(value))
    }

    /// # Safety
    /// The value is not being written to.
    unsafe fn read(self, value: Value) -> &'a [f32] {
        // SAFETY: the memory has room for the step's rows, all of it initialised.
        unsafe { std::slice::from_raw_parts(self.start(value), self.rows(value) * self.width(value)) }
    }

    /// # Safety
    /// The value is used by nobody else.
    #[allow(clippy::mut_from_ref)] // several values of one memory, each its own part
    unsafe fn write(self, value: Value) -> &'a mut [f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start(value), self.rows(value) * self.width(value)) }
    }
}

impl Tape {
    fn new(operations: Vec<Operation>, lives: Vec<Life>, logits: Value) -> Self {
        let (places, row_floats) = place(&lives);
        Self {
            operations,
            layout: Layout { lives, places, row_floats },
            memory: [Vec::new(), Vec::new()],
            quantized: [Activations::new(ActivationType::Int8), Activations::new(ActivationType::Int16)],
            logits,
        }
    }

    /// Floats of a row of logits.
    pub fn vocab_size(&self) -> usize {
        self.layout.lives[self.logits.0].width
    }

    /// Computes one step; returns the logits [R, V].
    ///
    /// # Safety
    /// Nobody else uses the KV caches meanwhile, or writes to the weights.
    pub unsafe fn play(&mut self, cpu: Cpu, inputs: &StepInputs) -> Result<&[f32], InvalidArgument> {
        inputs.check()?;
        self.make_room(inputs);
        let memory = self.memory.each_mut().map(|memory| memory.as_mut_ptr().cast());
        let step = Step { layout: &self.layout, memory, inputs };
        for operation in &self.operations {
            if let Operation::RopeKvWrite { cache, .. } = operation {
                // SAFETY: the caller's promise.
                let (k, v) = unsafe { (cache.k.write(), cache.v.write()) };
                cache.shape.copy_blocks(k, inputs.block_copies)?;
                cache.shape.copy_blocks(v, inputs.block_copies)?;
            }
            // SAFETY: the values of an operation are different ones (the recorder saw to it), alive at the same time and
            // so in different places; `&mut self` makes this the only play. The caches are the caller's promise.
            unsafe { perform(cpu, step, &mut self.quantized, operation)? }
        }
        let logits = self.memory[Rows::Logits as usize].as_ptr().cast::<f32>();
        let rows = inputs.logits_rows.len();
        // SAFETY: the memory has room for the step's rows; the value is in its place there.
        Ok(unsafe {
            let start = logits.add(self.layout.places[self.logits.0] * rows);
            std::slice::from_raw_parts(start, rows * self.vocab_size())
        })
    }

    fn make_room(&mut self, inputs: &StepInputs) {
        for rows in [Rows::Tokens, Rows::Logits] {
            let lines = inputs.rows(rows) * self.layout.row_floats[rows as usize] / LINE_FLOATS;
            let memory = &mut self.memory[rows as usize];
            if memory.len() < lines {
                *memory = Vec::new(); // first: what is in it is of no use any more
                *memory = vec![Line([0.0; LINE_FLOATS]); lines];
            }
        }
    }
}

/// # Safety
/// Nobody else uses the operation's values and cache, or writes to its weights.
unsafe fn perform(
    cpu: Cpu,
    step: Step,
    quantized: &mut [Activations; 2],
    operation: &Operation,
) -> Result<(), InvalidArgument> {
    let inputs = step.inputs;
    // SAFETY: the caller's promise, for every access below.
    unsafe {
        match operation {
            Operation::Embedding { weight, out } => {
                let width = step.width(*out);
                return take_rows(weight.read(), inputs.token_ids, width, step.write(*out));
            }
            Operation::QuantizedEmbedding { weight, out } => {
                return weight.read_rows(inputs.token_ids, step.write(*out));
            }
            Operation::TakeLogitsRows { x, out } => {
                let width = step.width(*out);
                return take_rows(step.read(*x), inputs.logits_rows, width, step.write(*out));
            }
            Operation::Linear { x, weight, out } => {
                let shape = LinearShape {
                    rows: step.rows(*x),
                    in_features: step.width(*x),
                    out_features: step.width(*out),
                };
                linear(cpu, step.read(*x), weight.read(), step.write(*out), shape);
            }
            Operation::QuantizedLinear { x, weight, activations, out } => {
                let room = &mut quantized[*activations as usize];
                weight.multiply(cpu, step.read(*x), room, step.write(*out));
            }
            Operation::AddBias { x, bias } => add_bias(step.write(*x), bias.read()),
            Operation::RmsNorm { x, weight, eps, out } => {
                rms_norm(cpu, step.read(*x), weight.read(), *eps, step.write(*out));
            }
            Operation::AddRmsNorm { x, residual, weight, eps, out } => {
                add_rms_norm(
                    cpu,
                    step.read(*x),
                    step.write(*residual),
                    weight.read(),
                    *eps,
                    step.write(*out),
                );
            }
            Operation::NormHeads { qkv, q_weight, k_weight, heads, eps } => {
                let norm = HeadNorm {
                    q_weight: q_weight.read(),
                    k_weight: k_weight.read(),
                    num_heads: heads.num_heads,
                    num_kv_heads: heads.num_kv_heads,
                    eps: *eps,
                };
                norm_heads(cpu, step.write(*qkv), norm);
            }
            Operation::SiluMul { gate_up, out } => {
                activation::silu_mul(cpu, step.read(*gate_up), step.write(*out), step.width(*out));
            }
            Operation::RopeKvWrite { qkv, cos_sin, cache, num_heads, out } => {
                let rope = RopeInputs {
                    qkv: step.read(*qkv),
                    cos_sin: cos_sin.read(),
                    positions: inputs.positions,
                    slot_mapping: inputs.slot_mapping,
                    num_heads: *num_heads,
                };
                let (k, v) = (cache.k.write(), cache.v.write());
                return rope_kv_write(cpu, rope, k, v, cache.shape, step.write(*out));
            }
            Operation::PagedAttention { q, cache, num_heads, scale, out } => {
                let attention = AttentionInputs {
                    q: step.read(*q),
                    k_cache: cache.k.read(),
                    v_cache: cache.v.read(),
                    cache: cache.shape,
                    query_start: inputs.query_start,
                    context_lens: inputs.context_lens,
                    block_tables: inputs.block_tables,
                    num_heads: *num_heads,
                    scale: *scale,
                };
                return paged_attention(cpu, &attention, step.write(*out));
            }
        }
    }
    Ok(())
}
