//! Where the scheduler's sequences live: at a key that stays theirs, and near the processor when they are needed.
//!
//! Owns: the slots and which of them are vacant. At thousands of sequences a step's time is the time to fetch them, so a
//! loop over them asks for the ones to come (`prefetch`), without looking at them.
//! Must not know: what a sequence is for.

use std::ops::{Index, IndexMut};

use crate::sequence::Sequence;

/// Key of a sequence.
pub type SequenceKey = usize;

/// Bytes per cache line.
const LINE: usize = 64;

/// See the module.
#[derive(Default)]
pub struct SequenceArena {
    slots: Vec<Option<Sequence>>,
    vacant: Vec<SequenceKey>,
}

impl SequenceArena {
    /// Sequences in it.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a sequence in.
    pub fn insert(&mut self, sequence: Sequence) -> SequenceKey {
        let Some(key) = self.vacant.pop() else {
            self.slots.push(Some(sequence));
            return self.slots.len() - 1;
        };
        self.slots[key] = Some(sequence);
        key
    }

    /// Takes a sequence out.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, key: SequenceKey) -> Sequence {
        let sequence = self.slots[key].take().expect("the key is a live sequence's");
        self.vacant.push(key);
        sequence
    }

    /// The sequence, if there is one.
    pub fn get(&self, key: SequenceKey) -> Option<&Sequence> {
        self.slots.get(key)?.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: SequenceKey) -> Option<&mut Sequence> {
        self.slots.get_mut(key)?.as_mut()
    }

    /// Two different sequences at once.
    pub fn pair_mut(&mut self, keys: [SequenceKey; 2]) -> Option<[&mut Sequence; 2]> {
        let [a, b] = self.slots.get_disjoint_mut(keys).ok()?;
        Some([a.as_mut()?, b.as_mut()?])
    }

    /// All sequences with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (SequenceKey, &Sequence)> {
        self.slots.iter().enumerate().filter_map(|(key, slot)| Some((key, slot.as_ref()?)))
    }

    /// Has the part of a sequence fetched that every step touches. Costs nothing if it is near already, or not there.
    #[inline]
    pub fn prefetch(&self, key: SequenceKey) {
        if let Some(slot) = self.slots.get(key) {
            let start = std::ptr::from_ref(slot).cast::<u8>();
            for line in 0..Sequence::HOT_BYTES.div_ceil(LINE) {
                prefetch(start.wrapping_add(line * LINE));
            }
        }
    }
}

#[inline]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it reads nothing that could be seen, and any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Index<SequenceKey> for SequenceArena {
    type Output = Sequence;

    fn index(&self, key: SequenceKey) -> &Sequence {
        self.slots[key].as_ref().expect("the key is a live sequence's")
    }
}

impl IndexMut<SequenceKey> for SequenceArena {
    fn index_mut(&mut self, key: SequenceKey) -> &mut Sequence {
        self.slots[key].as_mut().expect("the key is a live sequence's")
    }
}
