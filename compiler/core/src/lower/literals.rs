//! Many texts between two states.
//!
//! Enumerations have hundreds of long strings with much in common. They are put down in order, as the smallest acyclic
//! automaton that has them: what a text does not share with the next is finished, and finished nodes that lead to the
//! same are one state (Daciuk and others, "Incremental construction of minimal acyclic finite-state automata", 2000). A chain
//! of states for each would cost determinization and minimization what it costs to read all of them twice.
//!
//! The letters of a text are bytes and, where a character has several spellings, sets of characters.

use rustc_hash::FxHashMap;

use super::Builder;
use crate::error::Result;
use crate::fsm::PLAIN;
use crate::ir::Expr;

/// A byte, or 256 and more: a number of [`Letters`].
type Letter = u32;
/// The letters that lead on from a node, and where to.
type Node = Vec<(Letter, u32)>;

/// Letters that are not bytes.
#[derive(Default)]
struct Letters<'e> {
    list: Vec<&'e Expr>,
    numbers: FxHashMap<&'e Expr, Letter>,
}

impl<'e> Letters<'e> {
    /// Appends the letters of `e` to `text`; false if it is not a text.
    fn spell(&mut self, e: &'e Expr, text: &mut Vec<Letter>) -> bool {
        match e {
            Expr::Bytes(b) => text.extend(b.iter().map(|&b| Letter::from(b))),
            Expr::Chars(_) | Expr::JsonChars { .. } => {
                let next = 256 + self.list.len() as Letter;
                let letter = *self.numbers.entry(e).or_insert(next);
                if letter == next {
                    self.list.push(e);
                }
                text.push(letter);
            }
            _ => return false,
        }
        true
    }

    /// The letters of `e`, if it is a text and not empty.
    fn text(&mut self, e: &'e Expr) -> Option<Vec<Letter>> {
        let mut text = vec![];
        let spelled = match e {
            Expr::Seq(items) => items.iter().all(|e| self.spell(e, &mut text)),
            e => self.spell(e, &mut text),
        };
        (spelled && !text.is_empty()).then_some(text)
    }
}

impl Builder<'_> {
    /// The texts among `items` lead from `from` to `to`. Returns the other items.
    pub(super) fn texts<'e>(&mut self, items: &'e [Expr], from: u32, to: u32) -> Result<Vec<&'e Expr>> {
        let mut letters = Letters::default();
        let (mut texts, mut others) = (vec![], vec![]);
        for e in items {
            match letters.text(e) {
                Some(text) => texts.push(text),
                None => others.push(e),
            }
        }
        texts.sort_unstable();
        texts.dedup();
        let mut known: FxHashMap<Node, u32> = FxHashMap::default();
        // The nodes along the last text: what follows its beginnings, the longer ones last.
        let mut path: Vec<Node> = vec![vec![]];
        let mut last: &[Letter] = &[];
        for text in &texts {
            let shared = last.iter().zip(text).take_while(|(a, b)| a == b).count();
            self.leave(&mut path, last, shared, &letters, &mut known)?;
            for _ in path.len()..text.len() {
                path.push(vec![]);
            }
            if let (Some(node), Some(&letter)) = (path.last_mut(), text.last()) {
                node.push((letter, to));
            }
            last = text;
        }
        self.leave(&mut path, last, 0, &letters, &mut known)?;
        for (letter, target) in path.swap_remove(0) {
            self.letter(letter, &letters, from, target)?;
        }
        Ok(others)
    }

    /// Finishes the nodes of `path` behind the first `keep` letters of `text`.
    fn leave(
        &mut self,
        path: &mut Vec<Node>,
        text: &[Letter],
        keep: usize,
        letters: &Letters,
        known: &mut FxHashMap<Node, u32>,
    ) -> Result<()> {
        while path.len() > keep + 1 {
            let Some(node) = path.pop() else { break };
            let state = match known.get(&node) {
                Some(&s) => s,
                None => {
                    let s = self.state()?;
                    for &(letter, target) in &node {
                        self.letter(letter, letters, s, target)?;
                    }
                    known.insert(node, s);
                    s
                }
            };
            let at = path.len() - 1;
            path[at].push((text[at], state));
        }
        Ok(())
    }

    fn letter(&mut self, letter: Letter, letters: &Letters, from: u32, to: u32) -> Result<()> {
        match u8::try_from(letter) {
            Ok(b) => self.byte(from, b, b, PLAIN, to),
            Err(_) => match letters.list[letter as usize - 256] {
                Expr::Chars(ranges) => self.chars(ranges, 0, from, to)?,
                Expr::JsonChars { ranges, free } => self.chars(ranges, 1 + u8::from(*free), from, to)?,
                // No other expressions are letters.
                _ => {}
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::ir::Expr;
    use crate::limits::{Budget, Limits};
    use crate::lower::lower_expr;

    /// Texts of bytes and characters with several spellings; and the same in a form that is not taken for texts.
    fn pair() -> impl Strategy<Value = (Expr, Expr)> {
        let slash = || Expr::JsonChars { ranges: vec![(47, 47)], free: false };
        let letter = prop_oneof![
            4 => (97..100u8).prop_map(|b| Expr::Bytes(vec![b])),
            1 => Just(slash()),
            1 => Just(Expr::Chars(vec![(98, 98), (0xe9, 0x100)])),
        ];
        proptest::collection::vec(proptest::collection::vec(letter, 0..6), 0..12).prop_map(|texts| {
            let hidden = |e: &Expr| Expr::Alt(vec![e.clone(), Expr::Never]);
            let apart = |t: &Vec<Expr>| Expr::Seq(t.iter().map(hidden).collect());
            (Expr::Alt(texts.iter().cloned().map(Expr::Seq).collect()), Expr::Alt(texts.iter().map(apart).collect()))
        })
    }

    proptest! {
        #[test]
        fn as_chains_of_states((texts, chains) in pair()) {
            let budget = Budget::new(Limits::default());
            let lowered = |e: &Expr| lower_expr(e, &[], &budget).unwrap();
            let (a, b) = (lowered(&texts), lowered(&chains));
            prop_assert_eq!((a.fsm, a.nullable), (b.fsm, b.nullable));
            let around = |e: Expr| Expr::Seq(vec![Expr::lit("<"), e.star(), Expr::lit(">")]);
            prop_assert_eq!(lowered(&around(texts)).fsm, lowered(&around(chains)).fsm);
        }
    }
}
