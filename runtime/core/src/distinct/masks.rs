//! Taking the tokens out of a row that would repeat a string, or lead to where nothing but that is left; and what is then
//! left to be written.

use std::collections::VecDeque;

use gramary_compiler::entry::Remainder;
use gramary_compiler::unit::has_byte;

use super::strings::{Along, Strings};
use crate::matcher::{Access, Matcher, Step};

/// A tree of tokens in depth-first layout; node 0 is the root.
struct Tree<'a> {
    byte: &'a [u8],
    end: &'a [u32],
    /// `tokens[first[i]..first[i + 1]]` end at node `i`.
    first: &'a [u32],
    tokens: &'a [u32],
    /// The root's children by byte, if they are many.
    roots: Option<&'a [u32; 256]>,
}

impl<'a> Tree<'a> {
    /// Visit the tokens that go on along the earlier strings: those that end on the way, and, by the node where they do,
    /// all those that close one of them.
    fn along(&self, strings: &Strings, from: Along, mut found: impl FnMut(&'a [u32], Option<usize>)) {
        // The next child to look at, where the children end, and the position before them.
        let mut path: Vec<(u32, u32, Along)> = vec![];
        match self.roots {
            Some(roots) if from.spelling.is_plain() => {
                let next = strings.next_bytes(from);
                let known = (0..=255u8).filter(|&b| has_byte(&next, b)).map(|b| roots[b as usize]);
                path.extend(known.filter(|&node| node != 0).map(|node| (node, node + 1, from)));
            }
            _ => path.push((1, self.end[0], from)),
        }
        while let Some((at, end, along)) = path.last_mut() {
            if *at >= *end {
                path.pop();
                continue;
            }
            let (node, along) = (*at as usize, *along);
            let to = self.end[node];
            *at = to;
            let b = self.byte[node];
            let below =
                |from: u32, to: u32| &self.tokens[self.first[from as usize] as usize..self.first[to as usize] as usize];
            if along.spelling.closes(b) {
                if strings.is_earlier(along) {
                    found(below(node as u32, to), Some(node));
                }
            } else if let Some(next) = strings.go(along, b) {
                found(below(node as u32, node as u32 + 1), None);
                path.push((node as u32 + 1, to, next));
            }
        }
    }
}

impl Matcher {
    /// Take the tokens out of a row that would repeat a string. `None`: a memo is missing.
    pub(crate) fn withhold_repeats(
        &self,
        access: &mut Access<'_>,
        step: Step,
        strings: &mut Strings,
        row: &mut [u32],
    ) -> Option<()> {
        strings.back_to(&step.place);
        let tokens = &self.grammar().tokens;
        let quoted = tokens.quoted();
        let trie = tokens.vocab.trie();
        // Lists of tokens, and for those that all close an earlier string how many bytes that takes.
        let mut suspects: Vec<(&[u32], Option<usize>)> = vec![];
        if let Some(along) = step.place.along() {
            let (byte, end, first, tokens) = (trie.byte, trie.end, trie.lo, trie.order);
            let tree = Tree { byte, end, first, tokens, roots: Some(&quoted.roots) };
            tree.along(strings, along, |list, closed| {
                suspects.push((list, closed.map(|node| trie.depth[node] as usize)));
            });
        } else if let Some(along) = strings.opening(&step.place) {
            let Remainder { byte, end, first, tokens, .. } = &quoted.begun;
            let tree = Tree { byte, end, first, tokens, roots: None };
            tree.along(strings, along, |list, _| suspects.push((list, None)));
        }
        suspects.push((if step.place.is_off() { &quoted.opening } else { &quoted.several }, None));
        let mut events = VecDeque::new();
        for (list, closing) in suspects {
            let set = |row: &[u32], t: u32| row[t as usize / 32] >> (t % 32) & 1 == 1;
            if let (Some(bytes), Some(&one)) = (closing, list.iter().find(|&&t| set(row, t))) {
                let closed = &tokens.vocab.bytes(one)[..bytes];
                if self.advance_bytes(access, step, closed, &mut events, strings)?.is_none() {
                    // What none of them may begin with; some of them may still be taken as tokens.
                    if !access.takes_tokens(step.set)? {
                        list.iter().for_each(|&t| row[t as usize / 32] &= !(1 << (t % 32)));
                    }
                }
            }
            for &t in list {
                if set(row, t) && self.advance(access, step, t, &mut events, strings)?.is_none() {
                    row[t as usize / 32] &= !(1 << (t % 32));
                }
            }
        }
        Some(())
    }

    /// Up to `most` of the bytes that may follow.
    pub(crate) fn ways_on(
        &self,
        access: &mut Access<'_>,
        step: Step,
        strings: &mut Strings,
        most: usize,
    ) -> Option<Vec<u8>> {
        let Access::Write(table) = access else { return None };
        if !self.grammar().distinct {
            return Some(table.machine.next_bytes(step.set, most));
        }
        let mut found = vec![];
        for b in table.machine.next_bytes(step.set, 256) {
            if found.len() < most && self.advance_bytes(access, step, &[b], &mut VecDeque::new(), strings)?.is_some() {
                found.push(b);
            }
        }
        Some(found)
    }
}
