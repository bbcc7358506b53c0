//! The keyed hash that names a block's contents and everything before it.
//!
//! Owns: the key, which is random per process, and how the parts of a message are told apart: each is tagged by its
//! kind and, where its length varies, preceded by it, so that no part can pass for another.
//! Must not know: blocks, the map that the hashes lead to.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::error::{Error, Result};

/// 128-bit keyed hash of a block's tokens and everything before them.
pub type BlockHash = u128;

/// What the next words of a hashed message mean.
const KIND_ROOT: u64 = 0;
const KIND_BLOCK: u64 = 1;
const KIND_TENANT: u64 = 2;
const KIND_SALT: u64 = 3;

/// Who may share a prefix: only requests of the same scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheScope {
    /// Set when tenants must not see each other's prefixes, not even by how fast they answer.
    pub tenant: Option<Arc<str>>,
    /// The request's own wish.
    pub salt: Option<Arc<str>>,
}

/// The keyed hash, shared by all threads that hash prompts. SipHash-1-3 is enough: whoever finds a collision in spite of
/// the key gains nothing, because every hit is confirmed.
#[derive(Clone)]
pub struct BlockHasher {
    hasher: SipHasher13,
    mask: BlockHash,
    block_size: usize,
    /// Of the scope that most requests have.
    default_root: BlockHash,
}

impl BlockHasher {
    /// A hasher with a fresh random key. `hash_bits` below 128 force collisions, for tests of the confirmation.
    pub fn new(block_size: usize, hash_bits: u32) -> Result<Self> {
        Self::with_key(block_size, hash_bits, [random_u64()?, random_u64()?])
    }

    /// The same with a key that is known: for simulations, where collisions must come again.
    pub fn with_key(block_size: usize, hash_bits: u32, key: [u64; 2]) -> Result<Self> {
        if hash_bits > 128 {
            let message = format!("hash_bits must be at most 128, got {hash_bits}");
            return Err(Error::invalid("hash_bits", message));
        }
        let mask = if hash_bits == 0 { 0 } else { BlockHash::MAX >> (128 - hash_bits) };
        let hasher = SipHasher13::new_with_keys(key[0], key[1]);
        let mut hasher = Self { hasher, mask, block_size, default_root: 0 };
        hasher.default_root = hasher.root_of(&CacheScope::default());
        Ok(hasher)
    }

    /// The parent of every first block of a scope.
    pub fn root(&self, scope: &CacheScope) -> BlockHash {
        if *scope == CacheScope::default() { self.default_root } else { self.root_of(scope) }
    }

    fn root_of(&self, scope: &CacheScope) -> BlockHash {
        let mut hasher = self.hasher;
        hasher.write_u64(KIND_ROOT);
        for (kind, part) in [(KIND_TENANT, &scope.tenant), (KIND_SALT, &scope.salt)] {
            if let Some(part) = part {
                hasher.write_u64(kind);
                hasher.write_u64(part.len() as u64);
                hasher.write(part.as_bytes());
            }
        }
        hasher.finish128().as_u128() & self.mask
    }

    /// The hash of one block after `parent`.
    pub fn block(&self, parent: BlockHash, tokens: &[u32]) -> BlockHash {
        debug_assert_eq!(tokens.len(), self.block_size);
        let mut hasher = self.hasher;
        hasher.write_u64(KIND_BLOCK);
        hasher.write_u64(parent as u64);
        hasher.write_u64((parent >> 64) as u64);
        let (pairs, rest) = tokens.as_chunks::<2>();
        for pair in pairs {
            hasher.write_u64(u64::from(pair[0]) | u64::from(pair[1]) << 32);
        }
        for &token in rest {
            hasher.write_u32(token);
        }
        hasher.finish128().as_u128() & self.mask
    }

    /// The chained hashes of all full blocks of `tokens`.
    pub fn chain(&self, scope: &CacheScope, tokens: &[u32]) -> Vec<BlockHash> {
        let mut parent = self.root(scope);
        let blocks = tokens.chunks_exact(self.block_size);
        blocks
            .map(|tokens| {
                parent = self.block(parent, tokens);
                parent
            })
            .collect()
    }
}

/// 64 random bits from the operating system.
pub fn random_u64() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::internal(format!("the operating system gave no random bytes: {error}")))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(tenant: Option<&str>, salt: Option<&str>) -> CacheScope {
        CacheScope { tenant: tenant.map(Arc::from), salt: salt.map(Arc::from) }
    }

    /// D17: a salt can't pass for a tenant, nor a part of one for the whole.
    #[test]
    fn d17_the_parts_of_a_key_are_told_apart() {
        let hasher = BlockHasher::new(2, 128).unwrap();
        let scopes = [
            scope(None, None),
            scope(Some(""), None),
            scope(None, Some("")),
            scope(Some(""), Some("")),
            scope(Some("a"), None),
            scope(None, Some("a")),
            scope(Some("a"), Some("b")),
            scope(Some("b"), Some("a")),
            scope(Some("ab"), None),
            scope(Some("\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0a"), None),
        ];
        for (at, a) in scopes.iter().enumerate() {
            for b in &scopes[..at] {
                assert_ne!(hasher.root(a), hasher.root(b), "{a:?} and {b:?}");
            }
        }
        assert_eq!(hasher.root(&scopes[6]), hasher.root(&scope(Some("a"), Some("b"))));
    }

    #[test]
    fn d17_the_key_is_random() {
        let tokens = [1, 2, 3, 4];
        let (a, b) = (BlockHasher::new(2, 128).unwrap(), BlockHasher::new(2, 128).unwrap());
        let root = CacheScope::default();
        assert_ne!(a.chain(&root, &tokens), b.chain(&root, &tokens));
        assert_eq!(a.chain(&root, &tokens), a.clone().chain(&root, &tokens));
    }
}
