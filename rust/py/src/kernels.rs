//! `pagurid._core.kernels`: raw entry points of the CPU kernels, called by `pagurid.ops` only.
//!
//! Contract: an address is the `data_ptr()` of a contiguous tensor of the named shape and type that stays alive
//! during the call, and nobody else writes what a kernel reads or touches what it writes. `pagurid.ops.checks`
//! has checked shapes and types; values inside index tensors are checked here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use pagurid_kernels::InvalidArgument;
use pagurid_kernels::linear::Weight;

/// A slice of a tensor's memory.
///
/// # Safety
/// The module's contract.
pub(crate) unsafe fn slice<'a, T>(address: usize, len: usize) -> &'a [T] {
    if len == 0 {
        return &[]; // an empty tensor's address may be null
    }
    // SAFETY: the module's contract.
    unsafe { std::slice::from_raw_parts(address as *const T, len) }
}

/// A slice of a tensor's memory to write.
///
/// # Safety
/// The module's contract.
pub(crate) unsafe fn slice_mut<'a, T>(address: usize, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the module's contract.
    unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) }
}

/// A matrix of `len` numbers in a tensor's memory.
///
/// # Safety
/// The module's contract.
unsafe fn weight_of<'a>(address: usize, len: usize, dtype: &str) -> PyResult<Weight<'a>> {
    // SAFETY: the module's contract.
    unsafe {
        match dtype {
            "float32" => Ok(Weight::F32(slice(address, len))),
            "float16" => Ok(Weight::F16(slice(address, len))),
            "bfloat16" => Ok(Weight::Bf16(slice(address, len))),
            _ => Err(PyValueError::new_err(format!(
                "dtype must be float32, float16 or bfloat16; got {dtype:?}"
            ))),
        }
    }
}

/// Multiply-adds of some 20 µs on one core.
const GIL_WORK: usize = 400_000;

/// Why a kernel gave no result.
pub(crate) enum KernelError {
    Invalid(InvalidArgument),
    /// The panic's words.
    Panic(String),
}

impl From<KernelError> for PyErr {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Invalid(error) => to_python(error),
            KernelError::Panic(words) => PyRuntimeError::new_err(words),
        }
    }
}

impl std::fmt::Display for KernelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KernelError::Invalid(error) => f.write_str(&error.0),
            KernelError::Panic(words) => f.write_str(words),
        }
    }
}

/// Runs a kernel; a panic becomes an error that Python's `except Exception` catches.
pub(crate) fn catch_panic<T>(kernel: impl FnOnce() -> Result<T, InvalidArgument>) -> Result<T, KernelError> {
    match catch_unwind(AssertUnwindSafe(kernel)) {
        Ok(result) => result.map_err(KernelError::Invalid),
        Err(payload) => {
            let words = payload.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(KernelError::Panic(format!("a kernel panicked: {words}")))
        }
    }
}

/// Runs a kernel. The GIL is given up only for longer ones: getting it back from a busy event loop may take the
/// interpreter's switch interval (5 ms), more than all the short calls of a step together.
pub(crate) fn call(
    py: Python<'_>,
    work: usize,
    kernel: impl FnOnce() -> Result<(), InvalidArgument> + Send,
) -> PyResult<()> {
    let guarded = || catch_panic(kernel);
    let result = if work > GIL_WORK { py.detach(guarded) } else { guarded() };
    Ok(result?)
}

pub(crate) fn to_python(error: InvalidArgument) -> PyErr {
    PyValueError::new_err(error.0)
}

/// Raw entry points of the CPU kernels.
#[pymodule]
#[allow(clippy::too_many_arguments)] // one number each: packing them would cost Python more than the call
pub mod kernels {
    use pyo3::prelude::*;

    use pagurid_kernels::attention::AttentionInputs;
    use pagurid_kernels::kv_cache::KvCacheShape;
    use pagurid_kernels::linear::LinearShape;
    use pagurid_kernels::norm::HeadNorm;
    use pagurid_kernels::rope::RopeInputs;
    use pagurid_kernels::{
        Cpu, Isa, activation, attention, linear as linear_kernel, norm, rope, rows, threads,
    };

    #[pymodule_export]
    use crate::quantized::QuantizedWeight;
    #[pymodule_export]
    use crate::tape::{Tape, TapeRecorder};

    use super::{call, slice, slice_mut, to_python, weight_of};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // So that `from pagurid._core.kernels import linear` works, too: a submodule is no file to be found.
        let modules = module.py().import("sys")?.getattr("modules")?;
        modules.set_item("pagurid._core.kernels", module)?;
        module.setattr("__name__", "pagurid._core.kernels")?;
        module.delattr("__all__")
    }

    /// Threads of the kernels; once, before their first use.
    #[pyfunction]
    #[pyo3(signature = (num_threads, /))]
    fn set_num_threads(num_threads: usize) -> PyResult<()> {
        threads::set_num_threads(num_threads).map_err(to_python)
    }

    /// Threads that the kernels use: the cores of this process if nothing was set.
    #[pyfunction]
    fn num_threads() -> usize {
        threads::num_threads()
    }

    /// The instruction set in use: "avx512", "avx2" or "portable"; the environment's `PAGURID_CPU_ISA` forces it.
    #[pyfunction]
    fn isa() -> PyResult<&'static str> {
        Ok(Isa::selected().map_err(to_python)?.name())
    }

    /// out [rows, `out_features`] = x [rows, `in_features`] times weight [`out_features`, `in_features`] transposed;
    /// `dtype` is the weight's: "float32", "float16" or "bfloat16"
    #[pyfunction]
    #[pyo3(signature = (x, weight, out, rows, in_features, out_features, dtype, /))]
    fn linear(
        py: Python<'_>,
        x: usize,
        weight: usize,
        out: usize,
        rows: usize,
        in_features: usize,
        out_features: usize,
        dtype: &str,
    ) -> PyResult<()> {
        let cpu = Cpu::selected().map_err(to_python)?;
        let shape = LinearShape { rows, in_features, out_features };
        // SAFETY: the module's contract.
        let (x, weight, out) = unsafe {
            (
                slice::<f32>(x, rows * in_features),
                weight_of(weight, out_features * in_features, dtype)?,
                slice_mut::<f32>(out, rows * out_features),
            )
        };
        call(py, shape.work(), || {
            linear_kernel::linear(cpu, x, weight, out, shape);
            Ok(())
        })
    }

    /// out [rows, width] = `RMSNorm` of x [rows, width]
    #[pyfunction]
    #[pyo3(signature = (x, weight, out, rows, width, eps, /))]
    fn rms_norm(
        py: Python<'_>,
        x: usize,
        weight: usize,
        out: usize,
        rows: usize,
        width: usize,
        eps: f32,
    ) -> PyResult<()> {
        let cpu = Cpu::selected().map_err(to_python)?;
        let len = rows * width;
        // SAFETY: the module's contract.
        let (x, weight, out) =
            unsafe { (slice::<f32>(x, len), slice::<f32>(weight, width), slice_mut::<f32>(out, len)) };
        call(py, len, || {
            norm::rms_norm(cpu, x, weight, eps, out);
            Ok(())
        })
    }

    /// residual += x; out = `RMSNorm` of residual; all [rows, width]
    #[pyfunction]
    #[pyo3(signature = (x, residual, weight, out, rows, width, eps, /))]
    fn add_rms_norm(
        py: Python<'_>,
        x: usize,
        residual: usize,
        weight: usize,
        out: usize,
        rows: usize,
        width: usize,
        eps: f32,
    ) -> PyResult<()> {
        let cpu = Cpu::selected().map_err(to_python)?;
        let len = rows * width;
        // SAFETY: the module's contract.
        let (x, residual, weight, out) = unsafe {
            (
                slice::<f32>(x, len),
                slice_mut::<f32>(residual, len),
                slice::<f32>(weight, width),
                slice_mut::<f32>(out, len),
            )
        };
        call(py, len, || {
            norm::add_rms_norm(cpu, x, residual, weight, eps, out);
            Ok(())
        })
    }

    /// Each head of q and of k in qkv [rows, (`num_heads` + 2 `num_kv_heads`) `head_dim`] becomes its `RMSNorm`
    #[pyfunction]
    #[pyo3(signature = (qkv, q_weight, k_weight, rows, num_heads, num_kv_heads, head_dim, eps, /))]
    fn norm_heads(
        py: Python<'_>,
        qkv: usize,
        q_weight: usize,
        k_weight: usize,
        rows: usize,
        num_heads: usize,
        num_kv_heads: usize,
        head_dim: usize,
        eps: f32,
    ) -> PyResult<()> {
        let cpu = Cpu::selected().map_err(to_python)?;
        let len = rows * (num_heads + 2 * num_kv_heads) * head_dim;
        // SAFETY: the module's contract.
        let (qkv, q_weight, k_weight) = unsafe {
            (slice_mut::<f32>(qkv, len), slice::<f32>(q_weight, head_dim), slice::<f32>(k_weight, head_dim))
        };
        call(py, len, || {
            norm::norm_heads(cpu, qkv, HeadNorm { q_weight, k_weight, num_heads, num_kv_heads, eps });
            Ok(())
        })
    }

    /// x [rows, width] += bias [width]
    #[pyfunction]
    #[pyo3(signature = (x, bias, rows, width, /))]
    fn add_bias(py: Python<'_>, x: usize, bias: usize, rows: usize, width: usize) -> PyResult<()> {
        // SAFETY: the module's contract.
        let (x, bias) = unsafe { (slice_mut::<f32>(x, rows * width), slice::<f32>(bias, width)) };
        call(py, rows * width, || {
            rows::add_bias(x, bias);
            Ok(())
        })
    }

    /// out [len, width] = rows `indices` [len] (int32) of x [rows, width], whose type is `dtype`, as in `linear`
    #[pyfunction]
    #[pyo3(signature = (x, indices, out, rows, width, len, dtype, /))]
    fn take_rows(
        py: Python<'_>,
        x: usize,
        indices: usize,
        out: usize,
        rows: usize,
        width: usize,
        len: usize,
        dtype: &str,
    ) -> PyResult<()> {
        // SAFETY: the module's contract.
        let (x, indices, out) = unsafe {
            (
                weight_of(x, rows * width, dtype)?,
                slice::<i32>(indices, len),
                slice_mut::<f32>(out, len * width),
            )
        };
        call(py, len * width, || rows::take_rows(x, indices, width, out))
    }

    /// out [rows, width] = silu(gate) * up of `gate_up` [rows, 2 width]
    #[pyfunction]
    #[pyo3(signature = (gate_up, out, rows, width, /))]
    fn silu_mul(py: Python<'_>, gate_up: usize, out: usize, rows: usize, width: usize) -> PyResult<()> {
        let cpu = Cpu::selected().map_err(to_python)?;
        // SAFETY: the module's contract.
        let (gate_up, out) =
            unsafe { (slice::<f32>(gate_up, 2 * rows * width), slice_mut::<f32>(out, rows * width)) };
        // An exponential costs about as much as ten multiply-adds.
        call(py, 10 * rows * width, || {
            activation::silu_mul(cpu, gate_up, out, width);
            Ok(())
        })
    }

    /// qkv [rows, (`num_heads` + 2 `kv_heads`) `head_dim`] → q [rows, `num_heads`, `head_dim`] and the caches
    #[pyfunction]
    #[pyo3(signature = (qkv, cos_sin, positions, slot_mapping, k_cache, v_cache, q, rows, max_positions, num_heads, num_blocks, kv_heads, head_dim, block_size, /))]
    fn rope_kv_write(
        py: Python<'_>,
        qkv: usize,
        cos_sin: usize,
        positions: usize,
        slot_mapping: usize,
        k_cache: usize,
        v_cache: usize,
        q: usize,
        rows: usize,
        max_positions: usize,
        num_heads: usize,
        num_blocks: usize,
        kv_heads: usize,
        head_dim: usize,
        block_size: usize,
    ) -> PyResult<()> {
        let cpu = Cpu::selected().map_err(to_python)?;
        let cache = KvCacheShape { num_blocks, kv_heads, head_dim, block_size };
        let qkv_len = rows * (num_heads + 2 * kv_heads) * head_dim;
        // SAFETY: the module's contract.
        let (inputs, k_cache, v_cache, q) = unsafe {
            let inputs = RopeInputs {
                qkv: slice(qkv, qkv_len),
                cos_sin: slice(cos_sin, max_positions * head_dim),
                positions: slice(positions, rows),
                slot_mapping: slice(slot_mapping, rows),
                num_heads,
            };
            (
                inputs,
                slice_mut::<f32>(k_cache, cache.len()),
                slice_mut::<f32>(v_cache, cache.len()),
                slice_mut::<f32>(q, rows * num_heads * head_dim),
            )
        };
        call(py, 4 * qkv_len, || rope::rope_kv_write(cpu, inputs, k_cache, v_cache, cache, q))
    }

    /// q [rows, `num_heads`, `head_dim`] and the caches → out [rows, `num_heads` `head_dim`]
    #[pyfunction]
    #[pyo3(signature = (q, k_cache, v_cache, query_start, context_lens, block_tables, out, rows, num_heads, sequences, max_blocks, num_blocks, kv_heads, head_dim, block_size, scale, /))]
    fn paged_attention(
        py: Python<'_>,
        q: usize,
        k_cache: usize,
        v_cache: usize,
        query_start: usize,
        context_lens: usize,
        block_tables: usize,
        out: usize,
        rows: usize,
        num_heads: usize,
        sequences: usize,
        max_blocks: usize,
        num_blocks: usize,
        kv_heads: usize,
        head_dim: usize,
        block_size: usize,
        scale: f32,
    ) -> PyResult<()> {
        let cpu = Cpu::selected().map_err(to_python)?;
        let cache = KvCacheShape { num_blocks, kv_heads, head_dim, block_size };
        let len = rows * num_heads * head_dim;
        // SAFETY: the module's contract.
        let (inputs, out) = unsafe {
            let inputs = AttentionInputs {
                q: slice(q, len),
                k_cache: slice(k_cache, cache.len()),
                v_cache: slice(v_cache, cache.len()),
                cache,
                query_start: slice(query_start, sequences + 1),
                context_lens: slice(context_lens, sequences),
                block_tables: slice(block_tables, sequences * max_blocks),
                num_heads,
                scale,
            };
            (inputs, slice_mut::<f32>(out, len))
        };
        // Not read from a checked list yet, so only an estimate: the longest context for every row.
        let longest = inputs.context_lens.iter().copied().max().unwrap_or(0).max(0) as usize;
        call(py, 2 * len * longest, || attention::paged_attention(cpu, &inputs, out))
    }
}
