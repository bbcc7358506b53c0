//! The tokens of an answer.
//!
//! Owns: a list whose newest few lie in the list itself: thousands of sequences that each append to a page of their own
//! in every step would spend the step on looking up pages. Must not know: what tokens mean.

/// The newest ones, which lie in the list itself.
const RECENT: usize = 8;

/// See the module.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct TokenList {
    older: Vec<u32>,
    recent: [u32; RECENT],
    num_recent: u32,
}

impl TokenList {
    /// Tokens in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.older.len() + self.num_recent as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for so many in all, so that none of them has to move the others.
    pub fn reserve(&mut self, tokens: usize) {
        self.older.reserve(tokens.saturating_sub(self.older.len()));
    }

    /// One more.
    #[inline]
    pub fn push(&mut self, token: u32) {
        if self.num_recent as usize == RECENT {
            self.older.extend_from_slice(&self.recent);
            self.num_recent = 0;
        }
        self.recent[self.num_recent as usize] = token;
        self.num_recent += 1;
    }

    /// Tokens `from .. to`, in two pieces.
    pub fn range(&self, from: usize, to: usize) -> [&[u32]; 2] {
        let (older, recent) = (&self.older, &self.recent[..self.num_recent as usize]);
        let border = older.len();
        let recent = &recent[from.saturating_sub(border)..to.saturating_sub(border)];
        [&older[from.min(border)..to.min(border)], recent]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list() {
        let (mut list, mut plain) = (TokenList::default(), Vec::new());
        for token in 0..40 {
            list.push(token);
            plain.push(token);
            assert_eq!((list.len(), list.is_empty()), (plain.len(), false));
            for from in 0..plain.len() {
                for to in from..=plain.len() {
                    assert_eq!(list.range(from, to).concat(), plain[from..to]);
                }
            }
        }
    }
}
