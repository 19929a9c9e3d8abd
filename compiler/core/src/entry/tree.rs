//! A trie of tokens as walks want it.
//!
//! A walk looks at all children of a node and goes into few, and what it costs is cache misses. So the children of a node
//! lie side by side, with all that is asked of each.

use crate::unit::{has_byte, ByteSet};
use crate::vocab::Trie;

/// See the module. Tokens are given as ranges of the trie's `order`.
#[derive(Clone, Debug)]
pub struct WalkTree {
    /// Tells the trees of a vocabulary apart.
    id: u32,
    root: WalkNode,
    /// Children of one node after those of another, each by ascending byte.
    nodes: Box<[WalkNode]>,
    /// The byte that leads to each of them.
    byte: Box<[u8]>,
    sets: Box<[ByteSet]>,
}

/// A node; see [`Trie`] for what its fields mean there. Two fill a cache line: a walk meets most of them cold.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct WalkNode {
    /// Its number in the trie.
    pub node: u32,
    /// First of its children, and how many there are.
    first: u32,
    count: u16,
    pub height: u16,
    /// Its own tokens are `lo..own`, all in its subtree `lo..hi`.
    pub lo: u32,
    pub own: u32,
    pub hi: u32,
    sub: u32,
    pub utf8: bool,
}

impl WalkTree {
    pub fn of(trie: &Trie<'_>, id: u32) -> WalkTree {
        let n = trie.len();
        let mut first = Vec::with_capacity(n);
        let mut children: Vec<u32> = Vec::with_capacity(n);
        for i in 0..n as u32 {
            first.push(children.len() as u32);
            children.extend(trie.children(i));
        }
        first.push(children.len() as u32);
        let node = |node: u32| {
            let i = node as usize;
            WalkNode {
                node,
                first: first[i],
                count: (first[i + 1] - first[i]) as u16,
                height: trie.height[i],
                lo: trie.lo[i],
                own: trie.lo[i + 1],
                hi: trie.lo[trie.end[i] as usize],
                sub: trie.sub[i],
                utf8: trie.utf8[i] == 1,
            }
        };
        WalkTree {
            id,
            root: node(0),
            nodes: children.iter().map(|&c| node(c)).collect(),
            byte: children.iter().map(|&c| trie.byte[c as usize]).collect(),
            sets: trie.sets.into(),
        }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    pub fn root(&self) -> &WalkNode {
        &self.root
    }

    /// Where a node's children lie.
    #[inline]
    pub fn children(&self, node: &WalkNode) -> (u32, u32) {
        (node.first, node.first + u32::from(node.count))
    }

    /// The node with a number of the trie, which is one below `at`: numbers are in the order of the trie, depth first.
    pub fn below_at(&self, at: &WalkNode, number: u32) -> Option<WalkNode> {
        let mut at = at;
        while at.node != number {
            let (from, to) = self.children(at);
            let children = &self.nodes[from as usize..to as usize];
            at = &children[children.partition_point(|c| c.node <= number).checked_sub(1)?];
        }
        Some(*at)
    }

    /// The bytes below a node.
    #[inline]
    pub fn below(&self, node: &WalkNode) -> &ByteSet {
        &self.sets[node.sub as usize]
    }

    /// The next child in `at..end` whose byte is in `live`, its byte, and where to go on.
    #[inline]
    pub fn next(&self, at: &mut u32, end: u32, live: &ByteSet) -> Option<(u8, &WalkNode)> {
        while *at < end {
            let i = *at as usize;
            *at += 1;
            let b = self.byte[i];
            if has_byte(live, b) {
                return Some((b, &self.nodes[i]));
            }
        }
        None
    }
}

impl WalkNode {
    #[inline]
    pub fn is_leaf(&self) -> bool {
        self.count == 0
    }
}
