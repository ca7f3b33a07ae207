//! What Python's recorder keeps of tensors, found again by shape and dtype without asking it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::python::{is_int, item, length_of, whole, Owned, Ref};

const MOST_FACTS: usize = 4096;
const MOST_DIMENSIONS: usize = 6;

/// Hashing of what nobody chooses to collide: little code, because all that a call touches counts.
#[derive(Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_i64(&mut self, value: i64) {
        self.write_u64(value as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

pub type Mixing = BuildHasherDefault<Mixed>;

/// Sizes of a tensor's dimensions, of which there may be few.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    count: usize,
    sizes: [i64; MOST_DIMENSIONS],
}

impl Shape {
    /// None where there are too many dimensions, or one that is no number.
    pub unsafe fn of(tuple: &Owned) -> Option<Self> {
        unsafe {
            let mut shape = Shape { count: length_of(tuple.get()), sizes: [0; MOST_DIMENSIONS] };
            if shape.count > MOST_DIMENSIONS {
                return None;
            }
            for (place, size) in shape.sizes.iter_mut().take(shape.count).enumerate() {
                let number = item(tuple.get(), place);
                if number.is_null() || !is_int(number) {
                    return None;
                }
                *size = whole(number)?;
            }
            Some(shape)
        }
    }

    pub fn numel(&self) -> i64 {
        self.sizes[..self.count].iter().fold(1, |product: i64, size| product.saturating_mul(*size))
    }
}

/// A shape and the address of a dtype: the facts keep the dtype, so that no other has its address.
pub type Key = (Shape, Ref);

#[derive(Default)]
pub struct Facts {
    known: HashMap<(Shape, usize), Owned, Mixing>,
}

impl Facts {
    pub fn of(&self, (shape, dtype): Key) -> Option<Owned> {
        self.known.get(&(shape, dtype as usize)).cloned()
    }

    /// Keep one more; what had to make room is given back to be dropped.
    pub fn keep(&mut self, (shape, dtype): Key, facts: Owned) -> (Self, Option<Owned>) {
        let mut before = Facts::default();
        if self.known.len() >= MOST_FACTS {
            before = std::mem::take(self);
        }
        let same = self.known.insert((shape, dtype as usize), facts);
        (before, same)
    }
}
