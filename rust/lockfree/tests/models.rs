//! Random operations on one thread against naive models that are right at a glance; looked at after every operation.
#![cfg(not(loom))]

use std::collections::{BTreeSet, VecDeque};

use pagurid_lockfree::{BlockRefs, BoundedQueue, IndexStack, StackLink};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum BlockOp {
    Allocate(usize),
    Share(prop::sample::Index),
    Release(prop::sample::Index),
    /// Some of the references that are held, in any order.
    ReleaseAll(Vec<prop::sample::Index>),
}

fn block_op() -> impl Strategy<Value = BlockOp> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        (0..80_usize).prop_map(BlockOp::Allocate),
        index().prop_map(BlockOp::Share),
        index().prop_map(BlockOp::Release),
        prop::collection::vec(index(), 0..80).prop_map(BlockOp::ReleaseAll),
    ]
}

/// The naive pool: owners by block, and all references that are held.
struct Blocks {
    owners: Vec<u32>,
    held: Vec<u32>,
}

impl Blocks {
    fn free(&self) -> impl Iterator<Item = u32> {
        (1..self.owners.len() as u32).filter(|&block| self.owners[block as usize] == 0)
    }

    fn add(&mut self, block: u32) {
        self.owners[block as usize] += 1;
        self.held.push(block);
    }

    fn remove(&mut self, at: prop::sample::Index) -> Option<u32> {
        let block = (!self.held.is_empty()).then(|| self.held.swap_remove(at.index(self.held.len())))?;
        self.owners[block as usize] -= 1;
        Some(block)
    }
}

proptest! {
    #[test]
    fn blocks_have_the_owners_that_they_should(
        num_blocks in 1..200_usize,
        ops in prop::collection::vec(block_op(), 0..60),
    ) {
        let blocks = BlockRefs::new(num_blocks);
        let mut model = Blocks { owners: vec![0; num_blocks], held: Vec::new() };
        for op in ops {
            match op {
                BlockOp::Allocate(count) => {
                    let mut got = vec![7];
                    let expected: Vec<u32> = model.free().take(count).collect();
                    let has_enough = expected.len() == count;
                    prop_assert_eq!(blocks.allocate(count, &mut got), has_enough);
                    let expected = if has_enough { expected } else { Vec::new() };
                    prop_assert_eq!(&got[1..], &expected[..], "the lowest, behind what was there");
                    for block in expected {
                        model.add(block);
                    }
                }
                BlockOp::Share(at) => {
                    if !model.held.is_empty() {
                        let block = model.held[at.index(model.held.len())];
                        blocks.share(block);
                        model.add(block);
                    }
                }
                BlockOp::Release(at) => {
                    if let Some(block) = model.remove(at) {
                        prop_assert_eq!(blocks.release(block), model.owners[block as usize]);
                    }
                }
                BlockOp::ReleaseAll(indices) => {
                    let released: Vec<u32> = indices.into_iter().filter_map(|at| model.remove(at)).collect();
                    blocks.release_all(&released);
                }
            }
            prop_assert_eq!(blocks.num_free(), model.free().count());
            prop_assert_eq!(blocks.check_invariants(Some(&model.owners)), Ok(()));
        }
    }

    #[test]
    fn a_queue_is_a_bounded_deque(capacity in 1..9_usize, ops in prop::collection::vec(any::<Option<u8>>(), 0..200)) {
        let queue = BoundedQueue::new(capacity);
        let mut model = VecDeque::new();
        for op in ops {
            match op {
                Some(item) if model.len() == capacity => prop_assert_eq!(queue.push(item), Err(item)),
                Some(item) => {
                    prop_assert_eq!(queue.push(item), Ok(()));
                    model.push_back(item);
                }
                None => prop_assert_eq!(queue.pop(), model.pop_front()),
            }
            prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
        }
    }

    #[test]
    fn a_stack_gives_the_last_index_first(ops in prop::collection::vec(any::<Option<u8>>(), 0..200)) {
        let (stack, links) = (IndexStack::default(), std::array::from_fn::<_, 256, _>(|_| StackLink::default()));
        let (mut model, mut held) = (Vec::new(), BTreeSet::new());
        for op in ops {
            match op {
                Some(index) if held.insert(index) => {
                    stack.push(index as u32, &links[index as usize]);
                    model.push(index as u32);
                }
                Some(_) => {} // It is in the stack.
                None => {
                    let popped = stack.pop(|index| &links[index as usize]);
                    prop_assert_eq!(popped, model.pop());
                    if let Some(index) = popped {
                        held.remove(&(index as u8));
                    }
                }
            }
        }
    }
}
