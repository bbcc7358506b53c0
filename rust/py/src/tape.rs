//! `pagurid._core.kernels.TapeRecorder` and `Tape`: a model's step, recorded from Python and played without it.
//!
//! Owns: the way from tensors to addresses. A tape holds a reference to every tensor it reads or writes. Shapes are checked
//! by `pagurid.ops.checks` before an operation is recorded; that widths fit each other is checked by the recorder.

use std::sync::Arc;

use numpy::ndarray::Array2;
use numpy::{PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pagurid_kernels::kv_cache::KvCacheShape;
use pagurid_kernels::tape::{self, Heads, LayerCache, Owner, StepInputs, Tensor, Value, WeightTensor};
use pagurid_kernels::{Cpu, InvalidArgument};
use pagurid_lockfree::Mailbox;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::kernels::{KernelError, catch_panic, to_python};
use crate::quantized::QuantizedWeight;

/// The memory of a contiguous torch tensor of so many elements of type T.
fn tensor<T>(owner: &Bound<'_, PyAny>, shape: &[usize]) -> PyResult<Tensor<T>> {
    let address: usize = owner.call_method0("data_ptr")?.extract()?;
    let keep: Owner = Arc::new(owner.clone().unbind());
    // SAFETY: `pagurid.ops.checks` has checked type and layout, and a tensor's memory stays where it is.
    Ok(unsafe { Tensor::new(address as *mut T, shape.iter().product(), keep) })
}

fn shape<const N: usize>(tensor: &Bound<'_, PyAny>) -> PyResult<[usize; N]> {
    let shape: Vec<usize> = tensor.getattr("shape")?.extract()?;
    shape.try_into().map_err(|shape: Vec<usize>| {
        PyValueError::new_err(format!("expected {N} dimensions; got {}", shape.len()))
    })
}

fn weight_tensor(owner: &Bound<'_, PyAny>, shape: &[usize]) -> PyResult<WeightTensor> {
    match owner.getattr("dtype")?.str()?.to_str()? {
        "torch.float32" => Ok(WeightTensor::F32(tensor(owner, shape)?)),
        "torch.float16" => Ok(WeightTensor::F16(tensor(owner, shape)?)),
        "torch.bfloat16" => Ok(WeightTensor::Bf16(tensor(owner, shape)?)),
        dtype => {
            Err(PyValueError::new_err(format!("weight must be float32, float16 or bfloat16; got {dtype}")))
        }
    }
}

fn vector(owner: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    tensor(owner, &shape::<1>(owner)?)
}

fn layer_cache(k_cache: &Bound<'_, PyAny>, v_cache: &Bound<'_, PyAny>) -> PyResult<Arc<LayerCache>> {
    let k_shape = shape::<4>(k_cache)?;
    let [num_blocks, kv_heads, head_dim, block_size] = k_shape;
    Ok(Arc::new(LayerCache {
        k: tensor(k_cache, &k_shape)?,
        v: tensor(v_cache, &shape::<4>(v_cache)?)?,
        shape: KvCacheShape { num_blocks, kv_heads, head_dim, block_size },
    }))
}

/// Records a step: one method for each op, which returns the number of the op's result. The ops' index tensors are
/// always the step's own, so they are not among the arguments.
#[pyclass(module = "pagurid._core.kernels")]
pub struct TapeRecorder(tape::TapeRecorder);

impl TapeRecorder {
    fn value(&self, number: usize) -> PyResult<Value> {
        self.0.value(number).ok_or_else(|| PyValueError::new_err(format!("there is no value {number} yet")))
    }
}

#[pymethods]
impl TapeRecorder {
    #[new]
    fn new() -> Self {
        Self(tape::TapeRecorder::new())
    }

    /// `weight` [V, width]
    #[pyo3(signature = (weight, /))]
    fn embedding(&mut self, weight: &Bound<'_, PyAny>) -> PyResult<usize> {
        if let Ok(weight) = weight.cast::<QuantizedWeight>() {
            return done(self.0.quantized_embedding(weight.get().linear()));
        }
        let shape = shape::<2>(weight)?;
        done(self.0.embedding(weight_tensor(weight, &shape)?, shape[1]))
    }

    #[pyo3(signature = (x, /))]
    fn take_logits_rows(&mut self, x: usize) -> PyResult<usize> {
        let x = self.value(x)?;
        done(self.0.take_logits_rows(x))
    }

    /// `weight` [out, in]
    #[pyo3(signature = (x, weight, /))]
    fn linear(&mut self, x: usize, weight: &Bound<'_, PyAny>) -> PyResult<usize> {
        let x = self.value(x)?;
        if let Ok(weight) = weight.cast::<QuantizedWeight>() {
            let weight = weight.get();
            return done(self.0.quantized_linear(x, weight.linear(), weight.activation_type()));
        }
        let shape = shape::<2>(weight)?;
        done(self.0.linear(x, weight_tensor(weight, &shape)?, shape[1]))
    }

    /// `bias` [width]
    #[pyo3(signature = (x, bias, /))]
    fn add_bias(&mut self, x: usize, bias: &Bound<'_, PyAny>) -> PyResult<()> {
        let x = self.value(x)?;
        self.0.add_bias(x, vector(bias)?).map_err(to_python)
    }

    /// `weight` [width]
    #[pyo3(signature = (x, weight, eps, /))]
    fn rms_norm(&mut self, x: usize, weight: &Bound<'_, PyAny>, eps: f32) -> PyResult<usize> {
        let x = self.value(x)?;
        done(self.0.rms_norm(x, vector(weight)?, eps))
    }

    /// `weight` [width]
    #[pyo3(signature = (x, residual, weight, eps, /))]
    fn add_rms_norm(
        &mut self,
        x: usize,
        residual: usize,
        weight: &Bound<'_, PyAny>,
        eps: f32,
    ) -> PyResult<usize> {
        let (x, residual) = (self.value(x)?, self.value(residual)?);
        done(self.0.add_rms_norm(x, residual, vector(weight)?, eps))
    }

    /// Weights [`head_dim`]
    #[pyo3(signature = (qkv, q_weight, k_weight, num_heads, num_kv_heads, eps, /))]
    fn norm_heads(
        &mut self,
        qkv: usize,
        q_weight: &Bound<'_, PyAny>,
        k_weight: &Bound<'_, PyAny>,
        num_heads: usize,
        num_kv_heads: usize,
        eps: f32,
    ) -> PyResult<()> {
        let qkv = self.value(qkv)?;
        let heads = Heads { num_heads, num_kv_heads };
        self.0.norm_heads(qkv, vector(q_weight)?, vector(k_weight)?, heads, eps).map_err(to_python)
    }

    #[pyo3(signature = (gate_up, /))]
    fn silu_mul(&mut self, gate_up: usize) -> PyResult<usize> {
        let gate_up = self.value(gate_up)?;
        done(self.0.silu_mul(gate_up))
    }

    #[pyo3(signature = (qkv, cos_sin, k_cache, v_cache, num_heads, /))]
    fn rope_kv_write(
        &mut self,
        qkv: usize,
        cos_sin: &Bound<'_, PyAny>,
        k_cache: &Bound<'_, PyAny>,
        v_cache: &Bound<'_, PyAny>,
        num_heads: usize,
    ) -> PyResult<usize> {
        let qkv = self.value(qkv)?;
        let cos_sin = tensor(cos_sin, &shape::<2>(cos_sin)?)?;
        done(self.0.rope_kv_write(qkv, cos_sin, layer_cache(k_cache, v_cache)?, num_heads))
    }

    #[pyo3(signature = (q, k_cache, v_cache, num_heads, scale, /))]
    fn paged_attention(
        &mut self,
        q: usize,
        k_cache: &Bound<'_, PyAny>,
        v_cache: &Bound<'_, PyAny>,
        num_heads: usize,
        scale: f32,
    ) -> PyResult<usize> {
        let q = self.value(q)?;
        done(self.0.paged_attention(q, layer_cache(k_cache, v_cache)?, num_heads, scale))
    }

    /// The tape; the recorder is empty afterwards.
    #[pyo3(signature = (logits, /))]
    fn finish(&mut self, logits: usize) -> PyResult<Tape> {
        let logits = self.value(logits)?;
        let tape = std::mem::take(&mut self.0).finish(logits).map_err(to_python)?;
        let mailbox = Mailbox::default();
        mailbox.store(Box::new(tape));
        Ok(Tape(mailbox))
    }
}

fn done(recorded: Result<Value, InvalidArgument>) -> PyResult<usize> {
    recorded.map(Value::number).map_err(to_python)
}

/// A recorded step, played by one thread at a time.
#[pyclass(frozen, module = "pagurid._core.kernels")]
pub struct Tape(Mailbox<tape::Tape>);

impl Tape {
    /// Computes a step and hands its logits and their shape [R, V] to `then`.
    ///
    /// # Safety
    /// Nobody else uses the KV caches meanwhile.
    pub(crate) unsafe fn play_inputs<T>(
        &self,
        inputs: &StepInputs<'_>,
        then: impl FnOnce(&[f32], (usize, usize)) -> T,
    ) -> Result<T, KernelError> {
        let Some(mut tape) = self.0.take() else {
            return Err(KernelError::Invalid(InvalidArgument("another thread plays this tape".to_owned())));
        };
        let vocab_size = tape.vocab_size();
        // SAFETY: the caller's promise; weights are written by nobody once they are loaded.
        let played = catch_panic(|| unsafe { tape.play(Cpu::selected()?, inputs) });
        let result = played.map(|logits| then(logits, (inputs.logits_rows.len(), vocab_size)));
        self.0.store(tape);
        result
    }
}

#[pymethods]
impl Tape {
    /// The logits [R, V] of one step, whose numbers are as in `StepInputs`: int32, `slot_mapping` int64.
    #[pyo3(signature = (*, token_ids, positions, slot_mapping, query_start, context_lens, block_tables, logits_rows))]
    #[allow(clippy::too_many_arguments)] // keyword arguments, each with a name
    fn play<'py>(
        &self,
        py: Python<'py>,
        token_ids: PyReadonlyArray1<'_, i32>,
        positions: PyReadonlyArray1<'_, i32>,
        slot_mapping: PyReadonlyArray1<'_, i64>,
        query_start: PyReadonlyArray1<'_, i32>,
        context_lens: PyReadonlyArray1<'_, i32>,
        block_tables: PyReadonlyArray2<'_, i32>,
        logits_rows: PyReadonlyArray1<'_, i32>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let inputs = StepInputs {
            token_ids: token_ids.as_slice()?,
            positions: positions.as_slice()?,
            slot_mapping: slot_mapping.as_slice()?,
            query_start: query_start.as_slice()?,
            context_lens: context_lens.as_slice()?,
            block_tables: block_tables.as_slice()?,
            logits_rows: logits_rows.as_slice()?,
            block_copies: &[],
        };
        // SAFETY: the caller's part: the caches belong to who recorded the tape.
        let played = py.detach(|| unsafe {
            self.play_inputs(&inputs, |logits, shape| {
                Array2::from_shape_vec(shape, logits.to_vec()).expect("as many as the shape says")
            })
        });
        Ok(PyArray2::from_owned_array(py, played.map_err(PyErr::from)?))
    }
}
