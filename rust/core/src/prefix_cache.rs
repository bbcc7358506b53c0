//! Which block holds which prefix: chained keyed hashes, every hit confirmed.
//!
//! Owns: the map from hash to block and, for each published block, its parent and its tokens.
//! Invariants: a hash names at most one block; a hit is confirmed against parent and tokens, so that a collision,
//! found or forged, can never share KV; a published block's parent is published (or the root) as long as it is.
//! Must not know: owners, eviction order, sequences.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::block_pool::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};

/// 128-bit keyed hash of a block's tokens and everything before them.
pub type BlockHash = u128;

/// What the first word of a hashed message means: parts of the key can't pass for one another.
const KIND_ROOT: u64 = 0;
const KIND_BLOCK: u64 = 1;

/// The keyed hash, shared by all threads that hash prompts.
#[derive(Clone)]
pub struct BlockHasher {
    hasher: SipHasher24,
    mask: BlockHash,
    block_size: usize,
}

impl BlockHasher {
    /// A hasher with a fresh random key. `hash_bits` below 128 force collisions, for tests of the confirmation.
    pub fn new(block_size: usize, hash_bits: u32) -> Result<Self> {
        if hash_bits > 128 {
            return Err(Error::invalid(
                "hash_bits",
                format!("hash_bits must be at most 128, got {hash_bits}"),
            ));
        }
        let key = [random_u64()?, random_u64()?];
        Ok(Self::with_key(block_size, hash_bits, key))
    }

    fn with_key(block_size: usize, hash_bits: u32, key: [u64; 2]) -> Self {
        let mask = if hash_bits == 0 { 0 } else { BlockHash::MAX >> (128 - hash_bits) };
        Self { hasher: SipHasher24::new_with_keys(key[0], key[1]), mask, block_size }
    }

    /// The parent of every first block.
    pub fn root(&self) -> BlockHash {
        let mut hasher = self.hasher;
        hasher.write_u64(KIND_ROOT);
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
    pub fn chain(&self, tokens: &[u32]) -> Vec<BlockHash> {
        let mut parent = self.root();
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

/// The keys are hashes already, and keyed: their low half is as good as any.
#[derive(Default)]
struct LowHalf(u64);

impl Hasher for LowHalf {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only u128 keys are hashed")
    }
    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

#[derive(Clone, Copy, Default)]
struct Entry {
    hash: [u64; 2],
    parent: BlockId,
    /// Published blocks whose parent this one is.
    children: u32,
    published: bool,
}

/// What became of a block that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// It can be hit from now on.
    Published,
    /// This other block holds the same prefix already.
    Duplicate(BlockId),
    /// Not published: another prefix has the same hash, or caching is off.
    Refused,
}

/// Hash → block, and what confirms a hit.
pub struct PrefixCache {
    block_size: usize,
    by_hash: HashMap<BlockHash, BlockId, BuildHasherDefault<LowHalf>>,
    entries: Box<[Entry]>,
    /// `[num_blocks, block_size]`: the tokens of published blocks.
    tokens: Box<[u32]>,
}

impl PrefixCache {
    /// A cache for blocks 1 to `num_blocks` − 1.
    pub fn new(num_blocks: usize, block_size: usize) -> Self {
        Self {
            block_size,
            by_hash: HashMap::with_capacity_and_hasher(num_blocks, BuildHasherDefault::default()),
            entries: vec![Entry::default(); num_blocks].into_boxed_slice(),
            tokens: vec![0; num_blocks * block_size].into_boxed_slice(),
        }
    }

    /// Blocks that can be hit.
    pub fn num_published_blocks(&self) -> usize {
        self.by_hash.len()
    }

    /// Whether `block` can be hit.
    pub fn is_published(&self, block: BlockId) -> bool {
        self.entries[block as usize].published
    }

    fn tokens_of(&self, block: BlockId) -> &[u32] {
        &self.tokens[block as usize * self.block_size..][..self.block_size]
    }

    fn holds(&self, block: BlockId, parent: BlockId, tokens: &[u32]) -> bool {
        self.entries[block as usize].parent == parent && self.tokens_of(block) == tokens
    }

    /// The block that holds exactly `tokens` after exactly `parent`.
    pub fn find(&self, hash: BlockHash, parent: BlockId, tokens: &[u32]) -> Option<BlockId> {
        let block = *self.by_hash.get(&hash)?;
        self.holds(block, parent, tokens).then_some(block)
    }

    /// Offers `block`, which holds `tokens` after the published block `parent` (or the root).
    pub fn publish(
        &mut self,
        block: BlockId,
        parent: BlockId,
        hash: BlockHash,
        tokens: &[u32],
    ) -> Publication {
        debug_assert!(!self.is_published(block) && (parent == NULL_BLOCK || self.is_published(parent)));
        if let Some(&other) = self.by_hash.get(&hash) {
            let same = self.holds(other, parent, tokens);
            return if same { Publication::Duplicate(other) } else { Publication::Refused };
        }
        self.by_hash.insert(hash, block);
        self.tokens[block as usize * self.block_size..][..self.block_size].copy_from_slice(tokens);
        let entry = &mut self.entries[block as usize];
        *entry = Entry { hash: [hash as u64, (hash >> 64) as u64], parent, children: 0, published: true };
        if parent != NULL_BLOCK {
            self.entries[parent as usize].children += 1;
        }
        Publication::Published
    }

    /// Forgets what `block` holds.
    pub fn unpublish(&mut self, block: BlockId) {
        let entry = std::mem::take(&mut self.entries[block as usize]);
        debug_assert!(entry.published);
        debug_assert_eq!(entry.children, 0, "the tail of a prefix goes before its head");
        self.by_hash.remove(&(u128::from(entry.hash[0]) | u128::from(entry.hash[1]) << 64));
        if entry.parent != NULL_BLOCK {
            self.entries[entry.parent as usize].children -= 1;
        }
    }

    /// Checks everything this file promises.
    pub fn check_invariants(&self) -> Result<()> {
        let mut children = vec![0; self.entries.len()];
        let mut published = 0;
        for (block, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.published) {
            published += 1;
            let hash = u128::from(entry.hash[0]) | u128::from(entry.hash[1]) << 64;
            if self.by_hash.get(&hash) != Some(&(block as BlockId)) {
                return Err(Error::internal(format!("published block {block} is not found by its hash")));
            }
            if entry.parent != NULL_BLOCK {
                if !self.is_published(entry.parent) {
                    let parent = entry.parent;
                    return Err(Error::internal(format!("block {block} outlived its parent {parent}")));
                }
                children[entry.parent as usize] += 1;
            }
        }
        if published != self.by_hash.len() {
            let hashes = self.by_hash.len();
            return Err(Error::internal(format!("{hashes} hashes name {published} published blocks")));
        }
        match (0..children.len()).find(|&block| children[block] != self.entries[block].children) {
            None => Ok(()),
            Some(block) => Err(Error::internal(format!(
                "block {block} counts {} children but has {}",
                self.entries[block].children, children[block]
            ))),
        }
    }
}
