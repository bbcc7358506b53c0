//! How packed weights lie in memory.
//!
//! A panel is `PANEL` rows of W; it is one stream of records, read from front to back. A record holds the codes of
//! some groups, then their scales. For one group of a panel, line l of 64 bytes has elements 4l..4l+4 of each of the 16
//! rows: a 32-bit lane belongs to one row, so lanes are never summed and four activations are simply broadcast.
//! With 4 bits a group has 4 lines; line l has elements 4l.. in its low halves and 16+4l.. in its high halves.

use super::gguf_type::{BLOCK_GROUPS, GROUP, GgufType};

/// Rows of W in a panel.
pub(crate) const PANEL: usize = 16;
const LINE_BYTES: usize = 64;

/// What differs between layouts; a type, so that each gets a kernel of its own.
pub(super) trait Layout {
    /// Codes of 4 bits, else 8.
    const NIBBLES: bool;
    /// Scales are integers, times a scale of the record: K types.
    const INTEGER_SCALES: bool;
    /// Weights have a minimum.
    const MINIMUM: bool;
    /// Each half of a group has its own scale.
    const HALVES: bool = false;

    /// The same as numbers.
    const GEOMETRY: Geometry =
        Geometry::new(Self::NIBBLES, Self::INTEGER_SCALES, Self::MINIMUM, Self::HALVES);
}

macro_rules! layouts {
    ($($name:ident: $nibbles:literal, $integers:literal, $minimum:literal, $halves:literal;)*) => {$(
        pub(super) struct $name;
        impl Layout for $name {
            const NIBBLES: bool = $nibbles;
            const INTEGER_SCALES: bool = $integers;
            const MINIMUM: bool = $minimum;
            const HALVES: bool = $halves;
        }
    )*};
}
layouts! {
    // name: 4 bits, integer scales, minimum, scales per half
    Nibbles: true, false, false, false;
    NibblesMinimum: true, false, true, false;
    NibblesInteger: true, true, true, false;
    Bytes: false, false, false, false;
    BytesMinimum: false, false, true, false;
    BytesInteger: false, true, true, false;
    BytesHalves: false, true, false, true;
}

/// Calls `$function::<Layout, …>` for the type's layout.
macro_rules! with_layout {
    ($kind:expr, $layout:ident => $body:expr) => {{
        use $crate::quantized::gguf_type::GgufType;
        use $crate::quantized::layout;
        match $kind {
            GgufType::Q4_0 => {
                type $layout = layout::Nibbles;
                $body
            }
            GgufType::Q4_1 => {
                type $layout = layout::NibblesMinimum;
                $body
            }
            GgufType::Q4_K => {
                type $layout = layout::NibblesInteger;
                $body
            }
            GgufType::Q5_0 | GgufType::Q8_0 => {
                type $layout = layout::Bytes;
                $body
            }
            GgufType::Q5_1 => {
                type $layout = layout::BytesMinimum;
                $body
            }
            GgufType::Q5_K => {
                type $layout = layout::BytesInteger;
                $body
            }
            GgufType::Q6_K => {
                type $layout = layout::BytesHalves;
                $body
            }
        }
    }};
}
pub(super) use with_layout;

/// Offsets in a record, in bytes.
#[allow(clippy::struct_excessive_bools)] // what layouts differ in, one by one
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    pub(super) nibbles: bool,
    pub(super) integer_scales: bool,
    pub(super) minimum: bool,
    pub(super) halves: bool,
    /// Groups of a record.
    pub(super) groups: usize,
    /// Codes of a group.
    pub(super) code_bytes: usize,
    /// Where the first group's scales begin.
    pub(super) scales: usize,
    /// Scales of one group: 16 times f16, then as many minima; or twice 16 bytes.
    pub(super) scale_bytes: usize,
    /// Where the record's own scale (and minimum) begin, if it has one.
    pub(super) shared: usize,
    /// Whole lines.
    pub(super) record_bytes: usize,
}

impl Geometry {
    #[allow(clippy::fn_params_excessive_bools)] // only called from `Layout`
    const fn new(nibbles: bool, integer_scales: bool, minimum: bool, halves: bool) -> Self {
        let groups = if integer_scales { BLOCK_GROUPS } else { 2 };
        let code_bytes = PANEL * GROUP / if nibbles { 2 } else { 1 };
        let half_bytes = 2 * PANEL;
        let with_minimum = if minimum { 2 } else { 1 };
        let scale_bytes = if integer_scales { 2 * PANEL } else { half_bytes * with_minimum };
        let scales = groups * code_bytes;
        let shared = scales + groups * scale_bytes;
        let end = shared + if integer_scales { half_bytes * with_minimum } else { 0 };
        Geometry {
            nibbles,
            integer_scales,
            minimum,
            halves,
            groups,
            code_bytes,
            scales,
            scale_bytes,
            shared,
            record_bytes: end.next_multiple_of(LINE_BYTES),
        }
    }

    pub(super) fn of(kind: GgufType) -> Self {
        with_layout!(kind, L => L::GEOMETRY)
    }

    /// Cache lines of a record.
    pub(super) const fn record_lines(&self) -> usize {
        self.record_bytes / LINE_BYTES
    }

    /// Where element `element` of row `row` of a panel has its code in a group's codes, and the bits to shift right.
    pub(super) fn code_at(&self, row: usize, element: usize) -> (usize, u32) {
        let (position, shift) =
            if self.nibbles { (element % (GROUP / 2), element / (GROUP / 2) * 4) } else { (element, 0) };
        (position / 4 * LINE_BYTES + row * 4 + position % 4, shift as u32)
    }
}
