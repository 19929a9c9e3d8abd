//! Interning of slices: equal slices get equal numbers, in the order of first appearance.

/// An append-only table of distinct slices, with open addressing over 32-bit hashes.
#[derive(Clone, Debug)]
pub struct Interner<T> {
    arena: Vec<T>,
    spans: Vec<(u32, u32)>,
    hashes: Vec<u32>,
    table: Vec<u32>,
}

const VACANT: u32 = u32::MAX;

/// What can be interned: plain values that mix themselves into a hash.
pub trait Atom: Copy + Eq {
    fn mix(self, hash: u64) -> u64;
}

impl Atom for u32 {
    #[inline]
    fn mix(self, hash: u64) -> u64 {
        let h = (hash ^ self as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^ (h >> 32)
    }
}

impl<T: Atom> Default for Interner<T> {
    fn default() -> Self {
        Interner { arena: vec![], spans: vec![], hashes: vec![], table: vec![VACANT; 64] }
    }
}

impl<T: Atom> Interner<T> {
    /// The number of `items`, and whether it is new.
    pub fn intern(&mut self, items: &[T]) -> (u32, bool) {
        let hash = {
            let mixed = items.iter().fold(0x9e37_79b9_7f4a_7c15 ^ items.len() as u64, |h, &x| x.mix(h));
            (mixed >> 16) as u32
        };
        let mask = self.table.len() - 1;
        let mut i = hash as usize & mask;
        while self.table[i] != VACANT {
            let id = self.table[i];
            if self.hashes[id as usize] == hash && self.get(id) == items {
                return (id, false);
            }
            i = (i + 1) & mask;
        }
        let id = self.spans.len() as u32;
        self.spans.push((self.arena.len() as u32, items.len() as u32));
        self.hashes.push(hash);
        self.arena.extend_from_slice(items);
        self.table[i] = id;
        if self.spans.len() * 2 > self.table.len() {
            self.grow();
        }
        (id, true)
    }

    /// Forget everything, keep the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.spans.clear();
        if self.table.len() > 8 * self.hashes.len().max(64) {
            // A large table that few used: clearing it would cost more than growing again.
            self.table.truncate(64);
        }
        self.hashes.clear();
        self.table.fill(VACANT);
    }

    fn grow(&mut self) {
        let n = self.table.len() * 2;
        let mut table = vec![VACANT; n];
        for (id, &hash) in self.hashes.iter().enumerate() {
            let mut i = hash as usize & (n - 1);
            while table[i] != VACANT {
                i = (i + 1) & (n - 1);
            }
            table[i] = id as u32;
        }
        self.table = table;
    }

    #[inline]
    pub fn get(&self, id: u32) -> &[T] {
        let (at, len) = self.spans[id as usize];
        &self.arena[at as usize..(at + len) as usize]
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes held.
    pub fn size(&self) -> usize {
        self.arena.len() * std::mem::size_of::<T>() + self.spans.len() * 12 + self.table.len() * 4
    }
}
