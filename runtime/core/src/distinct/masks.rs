//! Taking the tokens out of a row that would repeat a value, or lead to where nothing but that is left; and what is then
//! left to be written.

use std::collections::hash_map::Entry;
use std::collections::VecDeque;

use gramary_compiler::entry::Remainder;
use gramary_compiler::unit::has_byte;
use rustc_hash::FxHashMap;

use super::alive::{alive, is_wide};
use super::digest::significant;
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

/// The numbers that a number must differ from, or that values around it hold which may become equal.
struct Numbers {
    /// Their digits, sorted.
    known: Vec<Box<[u8]>>,
    /// What is written of the number at hand.
    written: Vec<u8>,
}

impl Numbers {
    /// Whether text is nothing but the part of a number.
    fn is_part(written: &[u8], text: &[u8]) -> bool {
        let number = |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
        let begins = written.first().or(text.first()).is_some_and(|b| b.is_ascii_digit() || *b == b'-');
        begins && text.iter().all(number)
    }

    /// Whether the number may be a known one if this is written next, as far as its first digits tell.
    fn may_be_known(&self, text: &[u8]) -> bool {
        let mut digits = significant(&[&self.written, text].concat());
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let at = self.known.partition_point(|k| k[..] < digits[..]);
        self.known.get(at).is_some_and(|k| k.starts_with(&digits))
    }
}

impl Matcher {
    /// Take the tokens out of a row that would repeat a value. `None`: a memo is missing.
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
        self.withhold_values(access, step, strings, row)
    }

    /// The same for values that are no strings.
    fn withhold_values(
        &self,
        access: &mut Access<'_>,
        step: Step,
        strings: &mut Strings,
        row: &mut [u32],
    ) -> Option<()> {
        strings.back_to(&step.place);
        let (quoted, vocab) = (self.grammar().tokens.quoted(), &self.grammar().tokens.vocab);
        let inside = step.place.is_inside();
        let item = strings.item(&step.place);
        let near = match &item {
            Some(item) => strings.is_like_another(&step.place, item),
            None => strings.may_begin(&step.place),
        };
        let ending = if inside { &quoted.ending_quoted } else { &quoted.ending };
        let suspects = match near {
            _ if step.place.is_off() => Some(&quoted.listing),
            false => Some(ending),
            true if inside && is_wide(access, step.set)? => Some(&quoted.quotes),
            true => None,
        };
        let as_tokens = access.takes_tokens(step.set)?;
        let begun = self.begin_token(access, step)?;
        let mut numbers: Option<Numbers> = None;
        let mut seen: FxHashMap<(u32, &[u8]), bool> = FxHashMap::default();
        let mut events = VecDeque::new();
        let tried = |word: usize| suspects.map_or(u32::MAX, |s| s.get(word).copied().unwrap_or(0));
        let words = row.iter().enumerate().map(|(word, bits)| (word, bits & tried(word)));
        let words: Vec<(usize, u32)> = words.filter(|w| w.1 != 0).collect();
        for (word, mut bits) in words {
            while bits != 0 {
                let bit = bits.trailing_zeros();
                bits &= bits - 1;
                let t = word as u32 * 32 + bit;
                let text = vocab.bytes(t).trim_ascii_start();
                if suspects.is_none() && !inside {
                    // Strings among the items were looked at before.
                    let string = text.first() == Some(&b'"') && quoted.ending_quoted[word] >> bit & 1 == 0;
                    if string && item.is_none() {
                        continue;
                    }
                    if Numbers::is_part(strings.scalar(&step.place), text) {
                        let numbers = numbers.get_or_insert_with(|| Numbers {
                            known: strings.numbers(&step.place).into_iter().map(Box::from).collect(),
                            written: strings.scalar(&step.place).to_vec(),
                        });
                        if !numbers.may_be_known(text) {
                            continue;
                        }
                    }
                }
                let allowed = if inside || as_tokens || !vocab.kind(t).is_text() {
                    self.advance(access, step, t, &mut events, strings)?.is_some()
                } else {
                    // Space before it makes no other value: what leads to one set need be looked at once.
                    match self.advance_alive_or_not(access, begun, vocab.bytes(t), &mut events, strings)? {
                        None => false,
                        Some(next) => match seen.entry((next.set, text)) {
                            Entry::Occupied(known) => *known.get(),
                            Entry::Vacant(new) => *new.insert(alive(access, &begun, &next, strings)?),
                        },
                    }
                };
                if !allowed {
                    row[word] &= !(1 << bit);
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
