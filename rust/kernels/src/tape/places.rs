//! Where activations lie, so that those whose lives don't overlap share memory.
//!
//! Places are counted in floats of one row: with T rows all of them are T times as far from the start. So a step of
//! few rows touches little memory, close together.

/// Which rows of a step a value has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// One for each token.
    Tokens,
    /// One for each token that logits are wanted of.
    Logits,
}

/// One row's floats are rounded up to this: whole cache lines.
pub(super) const LINE_FLOATS: usize = 16;

/// An activation: `[rows, width]`, from the operation that makes it to the last that uses it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) rows: Rows,
    pub(super) width: usize,
    /// Operation that makes it.
    pub(super) first: usize,
    /// Operation that uses it last.
    pub(super) last: usize,
}

impl Life {
    fn floats(&self) -> usize {
        self.width.next_multiple_of(LINE_FLOATS)
    }
}

/// The place of each life among those with the same rows, and how many floats of a row that takes for each kind.
pub(super) fn place(lives: &[Life]) -> (Vec<usize>, [usize; 2]) {
    let mut places: Vec<usize> = Vec::with_capacity(lives.len());
    let mut ends = [0; 2];
    for life in lives {
        // Lives come in the order of their first operation: what is over by then is in nobody's way.
        let mut taken: Vec<(usize, usize)> = lives
            .iter()
            .zip(&places)
            .filter(|(other, _)| other.rows == life.rows && other.last >= life.first)
            .map(|(other, &start)| (start, start + other.floats()))
            .collect();
        taken.sort_unstable();
        let mut start = 0;
        for (from, to) in taken {
            if start + life.floats() <= from {
                break;
            }
            start = start.max(to);
        }
        places.push(start);
        let end = &mut ends[life.rows as usize];
        *end = (*end).max(start + life.floats());
    }
    (places, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_that_overlap_never_share_memory() {
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..200 {
            let lives: Vec<Life> = (0..=random(40))
                .map(|first| Life {
                    rows: if random(3) == 0 { Rows::Logits } else { Rows::Tokens },
                    width: 1 + random(100),
                    first,
                    last: first + random(6),
                })
                .collect();
            let (places, ends) = place(&lives);
            for (i, (a, &at)) in lives.iter().zip(&places).enumerate() {
                assert_eq!(at % LINE_FLOATS, 0);
                assert!(at + a.floats() <= ends[a.rows as usize]);
                for (b, &other) in lives.iter().zip(&places).skip(i + 1) {
                    let together = a.rows == b.rows && b.first <= a.last;
                    let apart = at + a.floats() <= other || other + b.floats() <= at;
                    assert!(!together || apart, "{a:?} at {at} and {b:?} at {other}");
                }
            }
        }
    }

    #[test]
    fn a_chain_of_equal_layers_needs_no_more_memory_than_two() {
        let chain = |layers: usize| -> Vec<Life> {
            (0..layers).map(|i| Life { rows: Rows::Tokens, width: 64, first: i, last: i + 1 }).collect()
        };
        assert_eq!(place(&chain(100)).1, [128, 0]);
    }
}
