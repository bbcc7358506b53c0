//! What the kernels run on: an instruction set, chosen when the program runs, and a number of threads.
//!
//! Invariant: a value of `Isa` is proof that this machine has the instructions.

use std::sync::OnceLock;

use crate::{InvalidArgument, threads};

/// Forces an instruction set: `avx512`, `avx2` or `portable`.
pub const ISA_VARIABLE: &str = "PAGURID_CPU_ISA";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Plain Rust over arrays of 16 floats; on Arm the compiler makes NEON of it.
    Portable,
}

/// An instruction set that this machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(pub(crate) Kind);

impl Isa {
    /// What this machine has, the fastest first.
    pub fn available() -> Vec<Isa> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let narrow = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            // Without the VL part the compiler may use only half of the registers.
            if narrow
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                found.push(Isa(Kind::Avx512));
            }
            if narrow {
                found.push(Isa(Kind::Avx2));
            }
        }
        found.push(Isa(Kind::Portable));
        found
    }

    /// Its name in `PAGURID_CPU_ISA`.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            Kind::Portable => "portable",
        }
    }

    /// The fastest, or the one that the environment asks for; the environment is read once.
    pub fn selected() -> Result<Isa, InvalidArgument> {
        static SELECTED: OnceLock<Result<Isa, InvalidArgument>> = OnceLock::new();
        SELECTED.get_or_init(|| Self::named(std::env::var(ISA_VARIABLE).ok().as_deref())).clone()
    }

    fn named(name: Option<&str>) -> Result<Isa, InvalidArgument> {
        let available = Self::available();
        match name {
            None | Some("") => Ok(available[0]),
            Some(name) => available.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| {
                let names: Vec<_> = available.iter().map(|isa| isa.name()).collect();
                InvalidArgument(format!(
                    "{ISA_VARIABLE} must be one of {} here; got {name:?}",
                    names.join(", ")
                ))
            }),
        }
    }
}

/// Where a kernel runs.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    /// With these instructions.
    pub isa: Isa,
    /// On at most so many threads, the caller's included.
    pub num_threads: usize,
}

impl Cpu {
    /// The process's choice.
    pub fn selected() -> Result<Cpu, InvalidArgument> {
        Ok(Cpu { isa: Isa::selected()?, num_threads: threads::num_threads() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isa_is_chosen_by_name() {
        for isa in Isa::available() {
            assert_eq!(Isa::named(Some(isa.name())), Ok(isa));
        }
        assert_eq!(Isa::named(None), Ok(Isa::available()[0]));
        let message = Isa::named(Some("sse9")).unwrap_err().0;
        assert!(message.contains("portable") && message.contains("\"sse9\""), "{message}");
    }
}
