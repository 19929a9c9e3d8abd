//! What a unit takes of tokens that have left the unit before it.
//!
//! Behind the closing quote of an undeclared key comes the rest of its pair, mostly the same for every key of every object. A thousand
//! tokens leave the key with bytes left over, and which of them the pair takes is no matter of where the pair stands. So that is an
//! entry, too: of the pair's beginning, but for the remainders of those tokens.

use std::sync::Arc;
use std::time::Instant;

use super::build::rest_of;
use super::{Entry, Exit, ExitTo, Remainder, TokenSet};
use crate::machine::{Item, Machine, OUTSIDE};
use crate::vocab::Vocabulary;

/// The entry of the beginning of `node`'s unit, without registers, for what is left over of the tokens in `rest`.
pub fn build(m: &mut Machine, vocab: &Vocabulary, node: u32, rest: &Remainder) -> Entry {
    let began = Instant::now();
    let start = m.set_of(Item { node, state: 0, regs: 0, ret: OUTSIDE });
    let mut taken = vec![false; rest.tokens.len()];
    let mut leaves = vec![];
    rest.walk(m, start, |m, i, set| {
        taken[rest.own(i)].fill(true);
        if m.has_left(set) {
            leaves.push(i);
        }
    });
    let mut left = vec![];
    for leaf in leaves {
        for i in leaf + 1..rest.end[leaf] as usize {
            let remains = usize::from(rest.depth[i] - rest.depth[leaf]);
            for k in rest.own(i).filter(|&k| !taken[k]) {
                let text = vocab.bytes(rest.tokens[k]);
                left.push((&text[text.len() - remains..], rest.tokens[k], 0));
            }
        }
    }
    let exits = rest_of(left).map(|rest| Exit { to: ExitTo::Return, rest });
    Entry {
        base: None,
        removed: Box::default(),
        accepted: TokenSet::Accepted(rest.tokens.iter().zip(&taken).filter(|t| *t.1).map(|t| *t.0).collect()),
        special: Box::default(),
        exits: exits.into_iter().collect(),
        bounds: None,
        cost: began.elapsed().as_nanos() as u64,
    }
}

/// Entries by whose remainders they are for.
pub type Onward = Vec<(Arc<Remainder>, Arc<Entry>)>;
