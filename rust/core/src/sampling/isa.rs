//! Which instructions the loops over logits are compiled for: chosen when the program runs.
//!
//! Owns: the choice, and `per_isa!`, which compiles one body once per choice. Invariants: a value of `Isa` is proof that
//! this machine has the instructions; every choice gives the same bits, because the bodies are plain Rust, which never
//! fuses or reorders arithmetic. Must not know: what the bodies compute. `pagurid-kernels` has a switch of its own, for
//! kernels written with intrinsics.

use std::sync::OnceLock;

/// Forces an instruction set, here as in the kernels: `avx512`, `avx2` or `portable`.
pub const ISA_VARIABLE: &str = "PAGURID_CPU_ISA";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What the build's target has at least: SSE2, or NEON on Arm.
    Portable,
}

/// An instruction set that this machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(pub(super) Kind);

impl Isa {
    /// What this machine has, the fastest first.
    pub fn available() -> Vec<Isa> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2");
            if has_avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
            {
                found.push(Isa(Kind::Avx512));
            }
            if has_avx2 {
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

    /// The fastest, or the one that the environment asks for. A name that is unknown here changes nothing: the kernels
    /// refuse it, and tokens don't depend on it.
    pub fn selected() -> Isa {
        static SELECTED: OnceLock<Isa> = OnceLock::new();
        *SELECTED.get_or_init(|| {
            let (name, available) = (std::env::var(ISA_VARIABLE), Self::available());
            let forced = available.iter().find(|isa| name.as_deref() == Ok(isa.name()));
            *forced.unwrap_or(&available[0])
        })
    }
}

/// Functions with an `Isa` before their arguments, whose body is compiled for each of them.
macro_rules! per_isa {
    ($($(#[$attribute:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(-> $output:ty)? $body:block)*) => {$(
        $(#[$attribute])*
        $visibility fn $name(isa: $crate::sampling::isa::Isa, $($argument: $type),*) $(-> $output)? {
            use $crate::sampling::isa::Kind;

            #[inline(always)]
            fn plain($($argument: $type),*) $(-> $output)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,avx512f,avx512vl,avx512bw,avx512dq")]
            fn avx512($($argument: $type),*) $(-> $output)? {
                plain($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($argument: $type),*) $(-> $output)? {
                plain($($argument),*)
            }

            match isa.0 {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: an `Isa` of this kind exists only where the features were detected.
                Kind::Avx512 => unsafe { avx512($($argument),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Kind::Avx2 => unsafe { avx2($($argument),*) },
                Kind::Portable => plain($($argument),*),
            }
        }
    )*};
}
pub(super) use per_isa;
