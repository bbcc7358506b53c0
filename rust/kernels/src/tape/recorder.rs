//! Writing a tape: each method appends the kernel of the op of its name, and returns the number of its result.
//!
//! Owns: the numbers of activations, and the check that an operation's shapes fit each other, once for all steps.
//! Must not know: how a tape is played.

use std::sync::Arc;

use super::Tape;
use super::operation::{Heads, LayerCache, Operation, Value};
use super::places::{Life, Rows};
use super::tensor::{Tensor, WeightTensor};
use crate::InvalidArgument;
use crate::attention::MAX_HEAD_DIM;
use crate::quantized::{ActivationType, PackedLinear};

/// A tape in the making.
#[derive(Default)]
pub struct TapeRecorder {
    operations: Vec<Operation>,
    lives: Vec<Life>,
}

type Recorded = Result<Value, InvalidArgument>;

fn refuse<T>(message: String) -> Result<T, InvalidArgument> {
    Err(InvalidArgument(message))
}

impl TapeRecorder {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Floats in a row of a value.
    pub fn width(&self, value: Value) -> usize {
        self.lives[value.0].width
    }

    /// Which rows a value has.
    pub fn rows(&self, value: Value) -> Rows {
        self.lives[value.0].rows
    }

    /// Value number `index`, if there is one.
    pub fn value(&self, index: usize) -> Option<Value> {
        (index < self.lives.len()).then_some(Value(index))
    }

    /// A value that the next operation makes.
    fn make(&mut self, rows: Rows, width: usize) -> Value {
        let first = self.operations.len();
        self.lives.push(Life { rows, width, first, last: first });
        Value(self.lives.len() - 1)
    }

    /// The next operation uses a value of this width.
    fn take(&mut self, name: &str, value: Value, width: usize) -> Result<(), InvalidArgument> {
        let operation = self.operations.len();
        let life = &mut self.lives[value.0];
        if life.width != width {
            return refuse(format!("{name} must be {width} wide; got {}", life.width));
        }
        life.last = operation;
        Ok(())
    }

    /// token ids [T] → rows of weight [V, width]
    pub fn embedding(&mut self, weight: WeightTensor, width: usize) -> Recorded {
        let out = self.make(Rows::Tokens, width);
        self.operations.push(Operation::Embedding { weight, out });
        Ok(out)
    }

    /// token ids [T] → rows of weight in float32
    pub fn quantized_embedding(&mut self, weight: Arc<PackedLinear>) -> Recorded {
        let out = self.make(Rows::Tokens, weight.in_features());
        self.operations.push(Operation::QuantizedEmbedding { weight, out });
        Ok(out)
    }

    /// x [T, width] → its rows that logits are wanted of
    pub fn take_logits_rows(&mut self, x: Value) -> Recorded {
        if self.rows(x) != Rows::Tokens {
            return refuse("rows were already taken of x".to_owned());
        }
        let width = self.width(x);
        self.take("x", x, width)?;
        let out = self.make(Rows::Logits, width);
        self.operations.push(Operation::TakeLogitsRows { x, out });
        Ok(out)
    }

    /// x [rows, in] → x weightᵀ [rows, out], weight [out, in]
    pub fn linear(&mut self, x: Value, weight: WeightTensor, in_features: usize) -> Recorded {
        self.take("x", x, in_features)?;
        let out = self.make(self.rows(x), weight.len() / in_features);
        self.operations.push(Operation::Linear { x, weight, out });
        Ok(out)
    }

    /// x [rows, in] → x weightᵀ + bias [rows, out]
    pub fn quantized_linear(
        &mut self,
        x: Value,
        weight: Arc<PackedLinear>,
        activations: ActivationType,
    ) -> Recorded {
        self.take("x", x, weight.in_features())?;
        let out = self.make(self.rows(x), weight.out_features());
        self.operations.push(Operation::QuantizedLinear { x, weight, activations, out });
        Ok(out)
    }

    /// x [rows, width] += bias [width]
    pub fn add_bias(&mut self, x: Value, bias: Tensor) -> Result<(), InvalidArgument> {
        self.take("x", x, bias.len())?;
        self.operations.push(Operation::AddBias { x, bias });
        Ok(())
    }

    /// x [rows, width] → its norm times weight [width]
    pub fn rms_norm(&mut self, x: Value, weight: Tensor, eps: f32) -> Recorded {
        self.take("x", x, weight.len())?;
        let out = self.make(self.rows(x), weight.len());
        self.operations.push(Operation::RmsNorm { x, weight, eps, out });
        Ok(out)
    }

    /// residual [rows, width] += x; → the norm of residual times weight [width]
    pub fn add_rms_norm(&mut self, x: Value, residual: Value, weight: Tensor, eps: f32) -> Recorded {
        self.take("x", x, weight.len())?;
        self.take("residual", residual, weight.len())?;
        if x == residual || self.rows(x) != self.rows(residual) {
            return refuse("x and residual must be two values with the same rows".to_owned());
        }
        let out = self.make(self.rows(x), weight.len());
        self.operations.push(Operation::AddRmsNorm { x, residual, weight, eps, out });
        Ok(out)
    }

    /// Each head of q and k in qkv [T, (`num_heads` + 2 `num_kv_heads`) D] becomes its norm; weights [D]
    pub fn norm_heads(
        &mut self,
        qkv: Value,
        q_weight: Tensor,
        k_weight: Tensor,
        heads: Heads,
        eps: f32,
    ) -> Result<(), InvalidArgument> {
        if q_weight.len() != k_weight.len() {
            return refuse(format!(
                "both weights must be [head_dim]; got {} and {}",
                q_weight.len(),
                k_weight.len()
            ));
        }
        self.take("qkv", qkv, (heads.num_heads + 2 * heads.num_kv_heads) * q_weight.len())?;
        self.operations.push(Operation::NormHeads { qkv, q_weight, k_weight, heads, eps });
        Ok(())
    }

    /// gate beside up [rows, 2 width] → silu(gate) up [rows, width]
    pub fn silu_mul(&mut self, gate_up: Value) -> Recorded {
        let width = self.width(gate_up);
        if !width.is_multiple_of(2) {
            return refuse(format!("gate_up must have an even width; got {width}"));
        }
        self.take("gate_up", gate_up, width)?;
        let out = self.make(self.rows(gate_up), width / 2);
        self.operations.push(Operation::SiluMul { gate_up, out });
        Ok(out)
    }

    /// qkv [T, (`num_heads` + 2 `kv_heads`) D] → turned q [T, `num_heads` D]; k and v go to their slots
    pub fn rope_kv_write(
        &mut self,
        qkv: Value,
        cos_sin: Tensor,
        cache: Arc<LayerCache>,
        num_heads: usize,
    ) -> Recorded {
        let shape = cache.shape;
        if !(1..=MAX_HEAD_DIM).contains(&shape.head_dim) || !shape.head_dim.is_multiple_of(2) {
            return refuse(format!(
                "head_dim must be even and in 1..={MAX_HEAD_DIM}; got {}",
                shape.head_dim
            ));
        }
        self.take("qkv", qkv, (num_heads + 2 * shape.kv_heads) * shape.head_dim)?;
        if self.rows(qkv) != Rows::Tokens {
            return refuse("qkv must have a row for each token".to_owned());
        }
        let out = self.make(Rows::Tokens, num_heads * shape.head_dim);
        self.operations.push(Operation::RopeKvWrite { qkv, cos_sin, cache, num_heads, out });
        Ok(out)
    }

    /// q [T, `num_heads` D] → attention [T, `num_heads` D]
    pub fn paged_attention(
        &mut self,
        q: Value,
        cache: Arc<LayerCache>,
        num_heads: usize,
        scale: f32,
    ) -> Recorded {
        let width = num_heads * cache.shape.head_dim;
        self.take("q", q, width)?;
        if self.rows(q) != Rows::Tokens || !num_heads.is_multiple_of(cache.shape.kv_heads) {
            return refuse(format!(
                "q must have a row for each token and a multiple of {} heads",
                cache.shape.kv_heads
            ));
        }
        let out = self.make(Rows::Tokens, width);
        self.operations.push(Operation::PagedAttention { q, cache, num_heads, scale, out });
        Ok(out)
    }

    /// The tape; it gives `logits` [R, V].
    pub fn finish(mut self, logits: Value) -> Result<Tape, InvalidArgument> {
        if self.rows(logits) != Rows::Logits {
            return refuse("logits must have a row for each token that they are wanted of".to_owned());
        }
        self.lives[logits.0].last = self.operations.len();
        Ok(Tape::new(self.operations, self.lives, logits))
    }
}
