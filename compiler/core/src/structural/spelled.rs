//! Markers spelled out: which runs of tokens write the text of a marker, where text is read by tokens.
//!
//! Free text that is read by bytes excludes a marker's text as it does any other. Where it is read by tokens
//! (`token_triggered_tags`, `any_tokens`), what counts is the bytes of the tokens one after another. So this is the automaton
//! of Aho and Corasick over the texts of the markers, with tokens for bytes: a state is the longest beginning of a marker
//! that the text ends with. From most states most tokens lead to the start; only the others are named.
//!
//! A special token is no text, and an added token that is a marker is meant as one: after either the text begins anew.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::fsm::DEAD;
use crate::ir::TokenRuns;
use crate::vocab::{TokenKind, Vocabulary};

/// The automaton over bytes: `next[state][byte]`, [`DEAD`] where a marker is complete.
struct Bytes {
    next: Vec<[u32; 256]>,
}

impl Bytes {
    fn new(texts: &[Vec<u8>]) -> Bytes {
        // The trie, with the start for what leads out of it.
        let mut next = vec![[0u32; 256]];
        for text in texts {
            let mut at = 0usize;
            for (i, &b) in text.iter().enumerate() {
                let to = next[at][b as usize];
                if to == DEAD {
                    break;
                }
                if i + 1 == text.len() {
                    next[at][b as usize] = DEAD;
                } else if to == 0 {
                    next.push([0; 256]);
                    let new = next.len() as u32 - 1;
                    next[at][b as usize] = new;
                    at = new as usize;
                } else {
                    at = to as usize;
                }
            }
        }
        // Breadth-first, so that the longest proper suffix of a state (where what it lacks is looked up) is finished first.
        let mut queue: Vec<(u32, u32)> = next[0].iter().filter(|&&t| t != 0 && t != DEAD).map(|&t| (t, 0)).collect();
        let mut done = 0;
        while let Some(&(state, suffix)) = queue.get(done) {
            done += 1;
            let beside = next[suffix as usize];
            for (own, other) in next[state as usize].iter_mut().zip(beside) {
                match *own {
                    _ if other == DEAD => *own = DEAD,
                    0 => *own = other,
                    DEAD => {}
                    child => queue.push((child, other)),
                }
            }
        }
        Bytes { next }
    }

    /// Where a text leads.
    fn read(&self, from: u32, text: &[u8]) -> u32 {
        text.iter().fold(from, |at, &b| if at == DEAD { DEAD } else { self.next[at as usize][b as usize] })
    }
}

/// Any number of tokens that do not spell out one of `texts`.
pub fn tokens_without(texts: &[Vec<u8>], vocab: &Vocabulary) -> TokenRuns {
    let bytes = Bytes::new(texts);
    let mut by_byte: FxHashMap<u8, Vec<u32>> = FxHashMap::default();
    let mut start: Vec<(u32, u32)> = vec![];
    for id in 0..vocab.len() as u32 {
        let text = vocab.bytes(id);
        let reads = match vocab.kind(id) {
            TokenKind::Text => true,
            TokenKind::Added => !texts.iter().any(|t| t == text),
            _ => false,
        };
        let Some(&first) = text.first().filter(|_| reads) else { continue };
        by_byte.entry(first).or_default().push(id);
        match bytes.read(0, text) {
            0 => {}
            to => start.push((id, to)),
        }
    }
    let mut states = vec![start.clone()];
    for state in 1..bytes.next.len() as u32 {
        let mut edges = BTreeMap::from_iter(start.iter().copied());
        // Other first bytes do here what they do at the start.
        let differ = (0..=255u8).filter(|&b| bytes.next[state as usize][b as usize] != bytes.next[0][b as usize]);
        for id in differ.filter_map(|b| by_byte.get(&b)).flatten().copied() {
            edges.insert(id, bytes.read(state, vocab.bytes(id)));
        }
        states.push(edges.into_iter().filter(|e| e.1 != 0).collect());
    }
    TokenRuns { states }
}
