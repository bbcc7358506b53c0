//! The tile in plain Rust over arrays of 16; on Arm the compiler makes NEON of it.

use half::f16;

use super::activations::group_words;
use super::gguf_type::GROUP;
use super::layout::{Layout, PANEL};
use super::tile::Tile;
use crate::lanes::Lanes;
use crate::lanes::portable::Portable;

/// # Safety
/// The tile's memory is there.
pub(super) unsafe fn multiply<L: Layout, const PLANES: usize>(tile: &Tile) {
    // SAFETY: the caller's tile has these rows and groups; a record has the bytes that the geometry says.
    unsafe {
        let geometry = const { &L::GEOMETRY };
        for row in 0..tile.rows {
            let mut acc = Portable::splat(0.0);
            for group in 0..tile.groups {
                let record = tile.weights.add(group / geometry.groups * geometry.record_bytes);
                let place = group % geometry.groups;
                let x = tile.x.add(group * group_words(PLANES) * tile.rows);
                let float = |word: usize| f32::from_bits(*x.add(word * tile.rows + row));
                let x_scale = Portable::splat(float(10 * PLANES));
                let halves = if L::HALVES { 2 } else { 1 };
                for half in 0..halves {
                    let elements = half * GROUP / halves..(half + 1) * GROUP / halves;
                    let mut sums = [0i32; PANEL];
                    for element in elements {
                        let x = activation::<PLANES>(x, tile.rows, row, element);
                        for (lane, sum) in sums.iter_mut().enumerate() {
                            *sum += x * code::<L>(record.add(place * geometry.code_bytes), lane, element);
                        }
                    }
                    let sums = Portable::load(sums.map(|sum| sum as f32).as_ptr());
                    acc = sums.mul(scale::<L>(record, place, half)).fma(x_scale, acc);
                }
                if L::MINIMUM {
                    acc = minimum::<L>(record, place).fma(Portable::splat(float(10 * PLANES + 1)), acc);
                }
            }
            if !tile.bias.is_null() {
                acc = acc.add(Portable::load(tile.bias));
            }
            acc.store_partial(tile.out.add(row * tile.out_stride), tile.columns);
        }
    }
}

#[inline(always)]
unsafe fn activation<const PLANES: usize>(x: *const u32, rows: usize, row: usize, element: usize) -> i32 {
    let line = element / 4 * rows + row;
    // SAFETY: the caller's element is inside of the group.
    unsafe {
        if PLANES == 1 {
            i32::from(x.add(line).cast::<i8>().add(element % 4).read())
        } else {
            i32::from(x.add(2 * line).cast::<i16>().add(element % 4).read())
        }
    }
}

#[inline(always)]
unsafe fn code<L: Layout>(codes: *const u8, row: usize, element: usize) -> i32 {
    let (at, shift) = const { &L::GEOMETRY }.code_at(row, element);
    // SAFETY: the caller's row and element are inside of the group.
    let byte = unsafe { codes.add(at).read() };
    match (L::NIBBLES, L::MINIMUM) {
        (true, true) => i32::from(byte >> shift & 15),
        (true, false) => i32::from(byte >> shift & 15) - 8,
        (false, _) => i32::from(byte) - 128,
    }
}

#[inline(always)]
unsafe fn floats(from: *const u8, f: impl Fn(*const u8, usize) -> f32) -> Portable {
    let floats: [f32; PANEL] = std::array::from_fn(|lane| f(from, lane));
    // SAFETY: an array of 16.
    unsafe { Portable::load(floats.as_ptr()) }
}

#[inline(always)]
unsafe fn halves(at: *const u8) -> Portable {
    // SAFETY: the caller has 16 f16 there.
    unsafe { floats(at, |at, lane| f16::from_le_bytes(at.add(2 * lane).cast::<[u8; 2]>().read()).to_f32()) }
}

#[inline(always)]
unsafe fn integers(at: *const u8) -> Portable {
    // SAFETY: the caller has 16 bytes there.
    unsafe { floats(at, |at, lane| f32::from(at.add(lane).cast::<i8>().read())) }
}

#[inline(always)]
unsafe fn scale<L: Layout>(record: *const u8, place: usize, half: usize) -> Portable {
    let geometry = const { &L::GEOMETRY };
    // SAFETY: the caller's record has this group.
    unsafe {
        let scales = record.add(geometry.scales + place * geometry.scale_bytes);
        if L::INTEGER_SCALES {
            return halves(record.add(geometry.shared)).mul(integers(scales.add(half * PANEL)));
        }
        halves(scales)
    }
}

#[inline(always)]
unsafe fn minimum<L: Layout>(record: *const u8, place: usize) -> Portable {
    let geometry = const { &L::GEOMETRY };
    // SAFETY: the caller's record has this group.
    unsafe {
        let scales = record.add(geometry.scales + place * geometry.scale_bytes);
        if L::INTEGER_SCALES {
            return halves(record.add(geometry.shared + 2 * PANEL)).mul(integers(scales.add(PANEL)));
        }
        halves(scales.add(2 * PANEL))
    }
}
