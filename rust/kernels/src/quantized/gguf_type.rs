//! The quantised types of GGUF files, and how their blocks are read.
//!
//! A weight is `code * scale + minimum` (some types have no minimum), with codes of 4 or 8 bits after reading and a
//! scale per group of 32 (`Q6_K`: of 16). K types have blocks of 256 whose groups' scales are integers times a
//! scale of the block.

use half::f16;

/// Weights that share a scale.
pub(crate) const GROUP: usize = 32;
/// Groups of a block of a K type.
pub(super) const BLOCK_GROUPS: usize = 8;

/// A quantised type of a GGUF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names are GGUF's
#[allow(non_camel_case_types)]
pub enum GgufType {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl GgufType {
    /// All that can be multiplied with as they are.
    pub const ALL: [GgufType; 8] = [
        GgufType::Q4_0,
        GgufType::Q4_1,
        GgufType::Q5_0,
        GgufType::Q5_1,
        GgufType::Q8_0,
        GgufType::Q4_K,
        GgufType::Q5_K,
        GgufType::Q6_K,
    ];

    /// GGUF's name.
    pub fn name(self) -> &'static str {
        match self {
            GgufType::Q4_0 => "Q4_0",
            GgufType::Q4_1 => "Q4_1",
            GgufType::Q5_0 => "Q5_0",
            GgufType::Q5_1 => "Q5_1",
            GgufType::Q8_0 => "Q8_0",
            GgufType::Q4_K => "Q4_K",
            GgufType::Q5_K => "Q5_K",
            GgufType::Q6_K => "Q6_K",
        }
    }

    /// The type with this name, if it is one of `ALL`.
    pub fn named(name: &str) -> Option<GgufType> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Weights of a block.
    pub fn block_len(self) -> usize {
        match self {
            GgufType::Q4_K | GgufType::Q5_K | GgufType::Q6_K => GROUP * BLOCK_GROUPS,
            _ => GROUP,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            GgufType::Q4_0 => 18,
            GgufType::Q4_1 => 20,
            GgufType::Q5_0 => 22,
            GgufType::Q5_1 => 24,
            GgufType::Q8_0 => 34,
            GgufType::Q4_K => 144,
            GgufType::Q5_K => 176,
            GgufType::Q6_K => 210,
        }
    }
}

/// What a block says about its groups; only the fields that its type has are set.
#[derive(Default)]
pub(super) struct Block {
    /// 0..16 for types of 4 bits; for others a signed code plus 128.
    pub(super) codes: [[u8; GROUP]; BLOCK_GROUPS],
    /// Scale of a group, or of the whole block (K types).
    pub(super) scale: f16,
    /// Minimum of a group, or what the groups' integer minima are multiplied with.
    pub(super) minimum: f16,
    /// K types: integers per group; for `Q6_K` the scales of both halves, else scale and minimum.
    pub(super) integers: [[u8; 2]; BLOCK_GROUPS],
}

/// What a signed code is stored with, so that it is unsigned.
pub(super) const OFFSET: u8 = 128;

impl Block {
    /// Reads a block of `block_bytes` bytes.
    pub(super) fn read(kind: GgufType, bytes: &[u8]) -> Block {
        let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let mut block = Block::default();
        let codes = &mut block.codes;
        match kind {
            GgufType::Q4_0 => {
                block.scale = half(0);
                codes[0] = nibbles(&bytes[2..]);
            }
            GgufType::Q4_1 => {
                (block.scale, block.minimum) = (half(0), half(2));
                codes[0] = nibbles(&bytes[4..]);
            }
            GgufType::Q5_0 | GgufType::Q5_1 => {
                let high = if kind == GgufType::Q5_0 { 2 } else { 4 };
                block.scale = half(0);
                if kind == GgufType::Q5_1 {
                    block.minimum = half(2);
                }
                let bits = u32::from_le_bytes(std::array::from_fn(|i| bytes[high + i]));
                let zero = if kind == GgufType::Q5_0 { OFFSET - 16 } else { OFFSET };
                codes[0] = nibbles(&bytes[high + 4..]);
                for (i, code) in codes[0].iter_mut().enumerate() {
                    *code = zero + (*code | ((bits >> i & 1) as u8) << 4);
                }
            }
            GgufType::Q8_0 => {
                block.scale = half(0);
                codes[0] = std::array::from_fn(|i| bytes[2 + i] ^ OFFSET);
            }
            GgufType::Q4_K | GgufType::Q5_K => {
                (block.scale, block.minimum) = (half(0), -half(2));
                block.integers = std::array::from_fn(|group| scale_and_minimum(&bytes[4..16], group));
                let low = if kind == GgufType::Q4_K { 16 } else { 48 };
                for (group, codes) in codes.iter_mut().enumerate() {
                    for (i, code) in codes.iter_mut().enumerate() {
                        *code = bytes[low + group / 2 * GROUP + i] >> (4 * (group % 2)) & 15;
                        if kind == GgufType::Q5_K {
                            *code = OFFSET + (*code | (bytes[16 + i] >> group & 1) << 4);
                        }
                    }
                }
            }
            GgufType::Q6_K => {
                block.scale = half(208);
                for (group, codes) in codes.iter_mut().enumerate() {
                    // 128 weights have 64 bytes of low and 32 of high bits; a group is a quarter of them.
                    let (part, quarter) = (group / 4, group % 4);
                    for (i, code) in codes.iter_mut().enumerate() {
                        let low = bytes[part * 64 + quarter % 2 * GROUP + i] >> (4 * (quarter / 2)) & 15;
                        let high = bytes[128 + part * GROUP + i] >> (2 * quarter) & 3;
                        *code = OFFSET - 32 + (low | high << 4);
                    }
                    block.integers[group] = [bytes[192 + 2 * group], bytes[193 + 2 * group]];
                }
            }
        }
        block
    }
}

/// 16 bytes: elements 0..16 are the low halves, 16..32 the high ones.
fn nibbles(bytes: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|i| bytes[i % 16] >> (4 * (i / 16)) & 15)
}

/// Two 6-bit integers per group in 12 bytes: of the groups 4 to 7 the top bits lie above those of the groups 0 to 3.
fn scale_and_minimum(packed: &[u8], group: usize) -> [u8; 2] {
    if group < 4 {
        return [packed[group] & 63, packed[group + 4] & 63];
    }
    let low = packed[group + 4];
    [low & 15 | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4]
}
