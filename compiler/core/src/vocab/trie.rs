//! The vocabulary trie: every token that is text, as one tree over bytes, in depth-first order.
//!
//! Nodes are numbered depth-first, children by ascending byte, so a subtree is the run of nodes `node..end[node]` and its
//! tokens are the run `order[lo[node]..lo[end[node]]]`. Walking the trie is a loop over node numbers that goes to
//! `node + 1` to descend and to `end[node]` to skip; no child lists are kept.
//!
//! Three facts per subtree let a walk accept it without visiting it: the set of bytes in it (`sub`, `sets`), whether it is
//! whole UTF-8 characters (`utf8`), and its `height`.

use rustc_hash::FxHashMap;

use super::error::VocabError;

/// Longest token, in bytes, that the trie holds: depths and heights are `u16`.
pub const MAX_TOKEN_BYTES: usize = u16::MAX as usize;

/// A set of bytes.
pub type ByteSet = [u64; 4];

/// A view of the trie. Node 0 is the root (its `byte` means nothing).
#[derive(Clone, Copy, Debug)]
pub struct Trie<'a> {
    /// The byte that leads to the node.
    pub byte: &'a [u8],
    /// Length of the path from the root.
    pub depth: &'a [u16],
    /// One past the node's subtree: where to go on when it is skipped.
    pub end: &'a [u32],
    /// Where the node's subtree begins in `order`; one element more than there are nodes.
    pub lo: &'a [u32],
    /// Token ids in depth-first order of their nodes, equal tokens by id.
    pub order: &'a [u32],
    /// Longest path below the node.
    pub height: &'a [u16],
    /// Index into `sets` of the bytes strictly below the node.
    pub sub: &'a [u32],
    /// 1: the node is at a character boundary and everything below it is whole, valid UTF-8 characters: no token below
    /// ends inside a character.
    pub utf8: &'a [u8],
    /// Distinct sets of bytes; `sets[0]` is empty.
    pub sets: &'a [ByteSet],
}

impl<'a> Trie<'a> {
    /// Number of nodes, the root included.
    #[inline]
    pub fn len(&self) -> usize {
        self.byte.len()
    }

    /// Whether the root is all there is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.byte.len() <= 1
    }

    /// The ids of the tokens that end at the node.
    #[inline]
    pub fn tokens_at(&self, node: u32) -> &'a [u32] {
        let node = node as usize;
        &self.order[self.lo[node] as usize..self.lo[node + 1] as usize]
    }

    /// The range of `order` that holds all tokens of the node's subtree, its own first.
    #[inline]
    pub fn token_range(&self, node: u32) -> std::ops::Range<u32> {
        let node = node as usize;
        self.lo[node]..self.lo[self.end[node] as usize]
    }

    /// The bytes that occur strictly below the node.
    #[inline]
    pub fn bytes_below(&self, node: u32) -> &'a ByteSet {
        &self.sets[self.sub[node as usize] as usize]
    }

    /// The node's children, by ascending byte.
    #[inline]
    pub fn children(&self, node: u32) -> Children<'a> {
        Children { trie: *self, next: node + 1, end: self.end[node as usize] }
    }

    /// The child that `byte` leads to.
    pub fn child(&self, node: u32, byte: u8) -> Option<u32> {
        self.children(node).find(|&c| self.byte[c as usize] >= byte).filter(|&c| self.byte[c as usize] == byte)
    }

    /// The node at the end of `path`.
    pub fn find(&self, path: &[u8]) -> Option<u32> {
        path.iter().try_fold(0, |node, &b| self.child(node, b))
    }
}

/// See [`Trie::children`].
#[derive(Clone, Debug)]
pub struct Children<'a> {
    trie: Trie<'a>,
    next: u32,
    end: u32,
}

impl Iterator for Children<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.next >= self.end {
            return None;
        }
        let node = self.next;
        self.next = self.trie.end[node as usize];
        Some(node)
    }
}

/// The trie's arrays while they are built, or where they stay in memory; see [`Trie`] for their meaning.
#[derive(Debug, Default)]
pub(crate) struct TrieArrays {
    pub byte: Vec<u8>,
    pub depth: Vec<u16>,
    pub end: Vec<u32>,
    pub lo: Vec<u32>,
    pub order: Vec<u32>,
    pub height: Vec<u16>,
    pub sub: Vec<u32>,
    pub utf8: Vec<u8>,
    pub sets: Vec<ByteSet>,
}

/// A node on the path to the token being added: what is known of its subtree so far.
#[derive(Clone, Copy, Default)]
struct Open {
    node: u32,
    set: ByteSet,
    height: u16,
    /// State of the UTF-8 automaton at the node.
    utf8: u8,
    /// Something strictly below is not whole characters.
    broken: bool,
}

impl TrieArrays {
    pub fn view(&self) -> Trie<'_> {
        let TrieArrays { byte, depth, end, lo, order, height, sub, utf8, sets } = self;
        Trie { byte, depth, end, lo, order, height, sub, utf8, sets }
    }

    /// The trie of `tokens`: pairs of bytes and id, in any order, no empty ones. Linear, apart from sorting.
    pub fn build(tokens: &[(&[u8], u32)]) -> Result<TrieArrays, VocabError> {
        // Sorting dominates; the first eight bytes as one integer decide nearly every comparison without a look at the
        // bytes themselves.
        let mut sorted: Vec<(u64, u32)> =
            tokens.iter().enumerate().map(|(i, (bytes, _))| (sort_key(bytes), i as u32)).collect();
        sorted.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| {
                let (x, y) = (&tokens[a.1 as usize], &tokens[b.1 as usize]);
                x.cmp(y)
            })
        });

        let mut t = TrieArrays::default();
        let nodes = tokens.len() * 5 / 2 + 1;
        t.byte.reserve(nodes);
        t.depth.reserve(nodes);
        t.end.reserve(nodes);
        t.lo.reserve(nodes + 1);
        t.height.reserve(nodes);
        t.sub.reserve(nodes);
        t.utf8.reserve(nodes);
        t.order.reserve(tokens.len());
        t.sets.push([0; 4]);
        let mut interned: FxHashMap<ByteSet, u32> = FxHashMap::default();
        interned.insert([0; 4], 0);

        let mut path: Vec<Open> = Vec::with_capacity(256);
        t.push_node(0, 0);
        path.push(Open::default());
        let mut previous: &[u8] = &[];
        for &(_, i) in &sorted {
            let (bytes, id) = tokens[i as usize];
            if bytes.len() > MAX_TOKEN_BYTES {
                return Err(VocabError::TokenTooLong { token: id, bytes: bytes.len(), limit: MAX_TOKEN_BYTES });
            }
            let common = common_prefix(previous, bytes);
            t.close(&mut path, common, &mut interned);
            for (d, &b) in bytes.iter().enumerate().skip(common) {
                let utf8 = utf8_step(path[d].utf8, b);
                let node = t.byte.len() as u32;
                t.push_node(b, d as u16 + 1);
                path.push(Open { node, utf8, ..Open::default() });
            }
            t.order.push(id);
            previous = bytes;
        }
        t.close(&mut path, 0, &mut interned);
        t.finish_node(&path[0], &mut interned);
        t.lo.push(t.order.len() as u32);
        if t.byte.len() > u32::MAX as usize / 2 {
            return Err(VocabError::TooLarge {
                what: "the number of trie nodes",
                size: t.byte.len(),
                limit: u32::MAX as usize / 2,
            });
        }
        Ok(t)
    }

    fn push_node(&mut self, byte: u8, depth: u16) {
        self.byte.push(byte);
        self.depth.push(depth);
        self.end.push(0);
        self.lo.push(self.order.len() as u32);
        self.height.push(0);
        self.sub.push(0);
        self.utf8.push(0);
    }

    /// End the subtrees of all nodes on the path that are deeper than `depth`.
    fn close(&mut self, path: &mut Vec<Open>, depth: usize, interned: &mut FxHashMap<ByteSet, u32>) {
        while path.len() > depth + 1 {
            let Some(done) = path.pop() else { return };
            self.finish_node(&done, interned);
            let Some(parent) = path.last_mut() else { return };
            let byte = self.byte[done.node as usize];
            for (to, from) in parent.set.iter_mut().zip(done.set) {
                *to |= from;
            }
            parent.set[byte as usize >> 6] |= 1 << (byte & 63);
            parent.height = parent.height.max(done.height + 1);
            // A token that ends inside a character is as bad for those above as an invalid byte. (A node's own tokens are
            // those up to its first child's `lo`, or up to the end where it is a leaf.)
            let first_child_lo = self.lo.get(done.node as usize + 1).map_or(self.order.len() as u32, |&lo| lo);
            let ends_inside = done.utf8 != BOUNDARY && first_child_lo > self.lo[done.node as usize];
            parent.broken |= done.broken || done.utf8 == INVALID || ends_inside;
        }
    }

    /// Write down what is known of a node once its subtree is complete.
    fn finish_node(&mut self, done: &Open, interned: &mut FxHashMap<ByteSet, u32>) {
        let node = done.node as usize;
        self.end[node] = self.byte.len() as u32;
        self.height[node] = done.height;
        self.utf8[node] = (done.utf8 == BOUNDARY && !done.broken) as u8;
        if done.height > 0 {
            let sets = &mut self.sets;
            self.sub[node] = *interned.entry(done.set).or_insert_with(|| {
                sets.push(done.set);
                sets.len() as u32 - 1
            });
        }
    }
}

/// The first eight bytes, big-endian, so that integer order is byte order (ties and zero bytes need a full comparison).
fn sort_key(bytes: &[u8]) -> u64 {
    let mut key = [0u8; 8];
    let n = bytes.len().min(8);
    key[..n].copy_from_slice(&bytes[..n]);
    u64::from_be_bytes(key)
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// UTF-8 automaton: between characters.
const BOUNDARY: u8 = 0;
/// UTF-8 automaton: no continuation is valid.
const INVALID: u8 = 8;

/// The automaton of well-formed UTF-8 (Unicode 15, table 3-7). States 1, 2, 3: that many continuation bytes are missing;
/// 4 to 7: the second byte after E0, ED, F0, F4, whose range is narrower.
fn utf8_step(state: u8, byte: u8) -> u8 {
    match (state, byte) {
        (BOUNDARY, 0x00..=0x7f) => BOUNDARY,
        (BOUNDARY, 0xc2..=0xdf) => 1,
        (BOUNDARY, 0xe0) => 4,
        (BOUNDARY, 0xed) => 5,
        (BOUNDARY, 0xe1..=0xef) => 2,
        (BOUNDARY, 0xf0) => 6,
        (BOUNDARY, 0xf4) => 7,
        (BOUNDARY, 0xf1..=0xf3) => 3,
        (1, 0x80..=0xbf) => BOUNDARY,
        (2, 0x80..=0xbf) | (4, 0xa0..=0xbf) | (5, 0x80..=0x9f) => 1,
        (3, 0x80..=0xbf) | (6, 0x90..=0xbf) | (7, 0x80..=0x8f) => 2,
        _ => INVALID,
    }
}
