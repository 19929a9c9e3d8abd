//! Many literals between two states.
//!
//! Enumerations have hundreds of long strings with much in common. They are put down in order, as the smallest acyclic
//! automaton that has them: what a literal does not share with the next is finished, and finished nodes that lead to the
//! same are one state (Daciuk and others, "Incremental construction of minimal acyclic finite-state automata", 2000). A chain
//! of states for each would cost determinization and minimization what it costs to read all of them twice.

use rustc_hash::FxHashMap;

use super::Builder;
use crate::error::Result;
use crate::fsm::PLAIN;

/// The bytes that lead on from a node, and where to.
type Node = Vec<(u8, u32)>;

impl Builder<'_> {
    /// Every one of `texts`, none of which is empty, leads from `from` to `to`.
    pub(super) fn literals(&mut self, mut texts: Vec<&[u8]>, from: u32, to: u32) -> Result<()> {
        texts.sort_unstable();
        texts.dedup();
        let mut known: FxHashMap<Node, u32> = FxHashMap::default();
        // The nodes along the last text: what follows its beginnings, the longer ones last.
        let mut path: Vec<Node> = vec![vec![]];
        let mut last: &[u8] = &[];
        for text in texts {
            let shared = last.iter().zip(text).take_while(|(a, b)| a == b).count();
            self.leave(&mut path, last, shared, &mut known)?;
            for _ in path.len()..text.len() {
                path.push(vec![]);
            }
            if let (Some(node), Some(&b)) = (path.last_mut(), text.last()) {
                node.push((b, to));
            }
            last = text;
        }
        self.leave(&mut path, last, 0, &mut known)?;
        for (b, target) in path.swap_remove(0) {
            self.byte(from, b, b, PLAIN, target);
        }
        Ok(())
    }

    /// Finishes the nodes of `path` behind the first `keep` bytes of `text`.
    fn leave(
        &mut self,
        path: &mut Vec<Node>,
        text: &[u8],
        keep: usize,
        known: &mut FxHashMap<Node, u32>,
    ) -> Result<()> {
        while path.len() > keep + 1 {
            let Some(node) = path.pop() else { break };
            let state = match known.get(&node) {
                Some(&s) => s,
                None => {
                    let s = self.state()?;
                    node.iter().for_each(|&(b, target)| self.byte(s, b, b, PLAIN, target));
                    known.insert(node, s);
                    s
                }
            };
            let at = path.len() - 1;
            path[at].push((text[at], state));
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

    proptest! {
        #[test]
        fn as_chains_of_states(texts in proptest::collection::vec(proptest::collection::vec(97..100u8, 0..6), 0..12)) {
            let budget = Budget::new(Limits::default());
            let lowered = |e: &Expr| lower_expr(e, &[], &budget).unwrap();
            let together = lowered(&Expr::Alt(texts.iter().map(|t| Expr::Bytes(t.clone())).collect()));
            let single = |t: &Vec<u8>| Expr::Seq(t.iter().map(|&b| Expr::Class(vec![(b, b)])).collect());
            let chains = lowered(&Expr::Alt(texts.iter().map(single).collect()));
            prop_assert_eq!((together.fsm, together.nullable), (chains.fsm, chains.nullable));
            let around = |e: Expr| Expr::Seq(vec![Expr::lit("<"), e.star(), Expr::lit(">")]);
            let together = lowered(&around(Expr::Alt(texts.iter().map(|t| Expr::Bytes(t.clone())).collect())));
            let chains = lowered(&around(Expr::Alt(texts.iter().map(single).collect())));
            prop_assert_eq!(together.fsm, chains.fsm);
        }
    }
}
