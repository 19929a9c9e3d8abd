//! The automaton of a dispatch: a state for each node of the trie and what is owed there.
//!
//! Most bytes do at a node what they do at the root; a node therefore has edges only for the bytes that continue a pattern
//! and falls back to the root for the rest. The nodes inside a character know what may follow, and where no pattern is
//! under way a handful of states stand for the characters begun.

use rustc_hash::FxHashMap;
use smallvec::{smallvec, SmallVec};

use super::characters::{LEAD, MIDDLE, MIDDLES};
use super::counting::{Counting, Last};
use super::trie::{Ends, Trie};
use super::HoleSpec;
use crate::automata::acts::Acts;
use crate::error::Result;
use crate::fsm::{Callee, Edge, Fsm, Op, State, TokenEdge, DEAD, NONE, PLAIN, REJECT};
use crate::ir::{DispatchRule, Expr, Rule};
use crate::limits::Budget;

/// The state that the text ends in.
pub(super) const END: u32 = 1;

/// What must still be completed: one of the patterns under way that began at least this many bytes ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Owed {
    /// 0: nothing is.
    pub length: u32,
    /// Only a stop string will do.
    pub stop: bool,
}

impl Owed {
    pub const NOTHING: Owed = Owed { length: 0, stop: false };

    /// After one more byte.
    pub fn longer(self) -> Owed {
        match self.length {
            0 => self,
            length => Owed { length: length + 1, ..self },
        }
    }
}

/// The automaton so far.
#[derive(Default)]
pub(super) struct Assembly {
    pub states: Vec<State>,
    pub acts: Acts,
}

/// A dispatch under construction.
pub(super) struct Build<'a> {
    pub rule: &'a DispatchRule,
    pub rules: &'a [Rule],
    pub rule_nullable: &'a [bool],
    pub budget: &'a Budget,
    trie: Trie,
    pub asm: Assembly,
    at_node: FxHashMap<(u32, Owed), u32>,
    /// States in which a character has begun and no pattern is under way.
    middle: [u32; MIDDLES],
    /// States after a trigger with no longer pattern under way, by trigger.
    bare: FxHashMap<u32, u32>,
    /// By trigger and the first bytes that its tags must not have.
    pub holes: FxHashMap<(u32, Vec<u8>), Option<u32>>,
    pub bindings: Vec<Expr>,
    pub specs: Vec<HoleSpec>,
    /// Nodes whose states are still to be filled.
    work: Vec<(u32, Owed)>,
    pub counting: Counting,
    /// States of triggers after which the tag may be empty, and the bytes that longer patterns take.
    pub empties: Vec<(u32, Vec<u8>)>,
}

impl<'a> Build<'a> {
    pub fn new(
        rule: &'a DispatchRule,
        rules: &'a [Rule],
        rule_nullable: &'a [bool],
        trie: Trie,
        budget: &'a Budget,
    ) -> Self {
        Build {
            rule,
            rules,
            rule_nullable,
            budget,
            trie,
            asm: Assembly::default(),
            at_node: FxHashMap::default(),
            middle: [NONE; MIDDLES],
            bare: FxHashMap::default(),
            holes: FxHashMap::default(),
            bindings: vec![],
            specs: vec![],
            work: vec![],
            counting: Counting::of(rule),
            empties: vec![],
        }
    }

    pub fn build(&mut self) -> Result<Fsm> {
        let start = self.state()?;
        let end = self.state()?;
        debug_assert_eq!((start, end), (0, END));
        self.asm.states[END as usize].accept = PLAIN;
        let root = self.node(0, Owed::NOTHING)?;
        while let Some((node, owed)) = self.work.pop() {
            self.fill(node, owed)?;
        }
        self.skip_tags(root)?;
        match self.counting.tags {
            // The text begins like after a tag; only it must not be empty here.
            None => {
                let tokens = self.asm.states[root as usize].tokens.clone();
                let state = &mut self.asm.states[start as usize];
                (state.tokens, state.fallback) = (tokens, root);
            }
            Some((min, max)) => {
                let mut ops = vec![Op::Load { r: 0, min, max }];
                if self.counting.last == Last::Counter(1) {
                    ops.push(Op::Load { r: 1, min: max, max });
                }
                let load = self.asm.acts.intern(&ops)?;
                let State { mut edges, mut tokens, .. } = self.asm.states[root as usize].clone();
                for act in edges.iter_mut().map(|e| &mut e.act).chain(tokens.iter_mut().map(|e| &mut e.act)) {
                    *act = self.asm.acts.compose(load, *act)?;
                }
                let state = &mut self.asm.states[start as usize];
                (state.edges, state.tokens) = (edges, tokens);
            }
        }
        let counters = match (self.counting.tags, self.counting.last) {
            (None, _) => 0,
            (_, Last::Counter(1)) => 2,
            _ => 1,
        };
        let acts = std::mem::take(&mut self.asm.acts).into_list();
        let callees = (0..self.bindings.len() as u32).map(Callee::Hole).collect();
        Ok(Fsm { states: std::mem::take(&mut self.asm.states), acts, callees, counters, ..Fsm::default() })
    }

    fn state(&mut self) -> Result<u32> {
        self.budget.states(1)?;
        self.asm.states.push(State::default());
        Ok(self.asm.states.len() as u32 - 1)
    }

    /// The act of ending the text.
    fn exit(&mut self) -> Result<u16> {
        match self.counting.tags {
            Some(_) => self.asm.acts.intern(&[Op::Exit { r: 0 }]),
            None => Ok(PLAIN),
        }
    }

    /// The state of a node.
    pub(super) fn node(&mut self, node: u32, owed: Owed) -> Result<u32> {
        if let Some(&s) = self.at_node.get(&(node, owed)) {
            return Ok(s);
        }
        let s = self.state()?;
        self.at_node.insert((node, owed), s);
        self.work.push((node, owed));
        Ok(s)
    }

    /// The edges into a node, where `owed` must be completed: their acts and targets.
    fn into(&mut self, node: u32, owed: Owed) -> Result<SmallVec<[(u16, u32); 2]>> {
        match self.trie.nodes[node as usize].ends {
            Ends::Stop(length) if length >= owed.length => Ok(smallvec![(self.exit()?, END)]),
            // What ends here lies inside of what is owed.
            Ends::Stop(_) => Ok(smallvec![(PLAIN, DEAD)]),
            Ends::Excluded => Ok(smallvec![(PLAIN, self.passed_by(node, owed.length.max(1))?)]),
            Ends::Trigger(t) if !owed.stop && self.trie.lengths[t as usize] >= owed.length => {
                if !self.counting.bounded() {
                    return Ok(smallvec![(PLAIN, self.opened(node, t, owed)?)]);
                }
                // Where no further tag may open, the trigger may still be part of a stop string.
                let stop = (PLAIN, self.passed_by(node, self.trie.lengths[t as usize])?);
                if self.rule.max_tags == Some(0) {
                    return Ok(smallvec![stop]);
                }
                let room = self.asm.acts.intern(&[Op::Room { r: 0 }])?;
                let mut edges = smallvec![(room, self.opened(node, t, owed)?)];
                if stop.1 != DEAD {
                    edges.push(stop);
                }
                Ok(edges)
            }
            Ends::Nothing | Ends::Trigger(_) => Ok(smallvec![(PLAIN, self.node(node, owed)?)]),
        }
    }

    /// The state at a node that ends with something free text may not have, unless a stop string goes on from it of which
    /// `length` bytes are read.
    fn passed_by(&mut self, node: u32, length: u32) -> Result<u32> {
        match self.trie.continuations(node, length, true).is_empty() {
            true => Ok(DEAD),
            false => self.node(node, Owed { length, stop: true }),
        }
    }

    /// The state at a node that ends with trigger `t`.
    fn opened(&mut self, node: u32, t: u32, owed: Owed) -> Result<u32> {
        if !self.trie.continuations(node, self.trie.lengths[t as usize], false).is_empty() {
            return self.node(node, owed);
        }
        if let Some(&s) = self.bare.get(&t) {
            return Ok(s);
        }
        let s = self.state()?;
        self.bare.insert(t, s);
        self.hand_over(s, t, vec![])?;
        Ok(s)
    }

    /// The edges along a trie: those of tokens, which nothing inherits, and those of bytes.
    fn edges(&mut self, list: &[(u64, u32)], owed: Owed) -> Result<(Vec<Edge>, Vec<TokenEdge>)> {
        let (mut edges, mut tokens) = (Vec::with_capacity(list.len()), vec![]);
        for &(symbol, to) in list {
            // Text holds no token but those of patterns: one that is begun with a token, or goes on with it, is owed.
            let least = u32::from(symbol >= 256);
            for (act, target) in self.into(to, Owed { length: owed.length.max(least), ..owed })? {
                match u8::try_from(symbol) {
                    Ok(b) => edges.push(Edge { lo: b, hi: b, act, target }),
                    Err(_) if target == DEAD => {}
                    Err(_) => tokens.push(TokenEdge { token: (symbol - 256) as u32, act, target }),
                }
            }
        }
        Ok((edges, tokens))
    }

    fn fill(&mut self, node: u32, owed: Owed) -> Result<()> {
        let state = self.at_node[&(node, owed)];
        let (ends, middle) = (self.trie.nodes[node as usize].ends, self.trie.nodes[node as usize].middle);
        let opens = match ends {
            Ends::Trigger(t) if !owed.stop => Some((t, self.trie.lengths[t as usize])).filter(|t| t.1 >= owed.length),
            _ => None,
        };
        if let Some((t, length)) = opens {
            let list = self.trie.continuations(node, length, false);
            self.hand_over(state, t, list.iter().filter_map(|l| u8::try_from(l.0).ok()).collect())?;
            let (mut edges, tokens) = self.edges(&list, Owed { length, stop: false }.longer())?;
            edges.retain(|e| e.target != DEAD);
            let state = &mut self.asm.states[state as usize];
            (state.edges, state.tokens) = (edges, tokens);
            return Ok(());
        }
        if owed != Owed::NOTHING {
            let list = self.trie.continuations(node, owed.length, owed.stop);
            let (mut edges, tokens) = self.edges(&list, owed.longer())?;
            edges.retain(|e| e.target != DEAD);
            let state = &mut self.asm.states[state as usize];
            (state.edges, state.tokens) = (edges, tokens);
            return Ok(());
        }
        if node == 0 {
            let own = self.trie.nodes[0].children.clone();
            let (mut edges, tokens) = self.edges(&own, Owed::NOTHING)?;
            for (lo, hi, middle) in LEAD {
                // The gaps between the bytes that begin a pattern.
                let mut from = lo as u16;
                let bytes = own.iter().map(|c| c.0).filter(|&b| u64::from(lo) <= b && b <= u64::from(hi));
                for b in bytes.map(|b| b as u16).chain([hi as u16 + 1]).collect::<SmallVec<[u16; 8]>>() {
                    if from < b {
                        let target = self.inside(middle)?;
                        edges.push(Edge { lo: from as u8, hi: (b - 1) as u8, act: PLAIN, target });
                    }
                    from = b + 1;
                }
            }
            edges.retain(|e| e.target != DEAD);
            edges.sort_unstable();
            let state = &mut self.asm.states[state as usize];
            (state.edges, state.tokens) = (edges, tokens);
        } else {
            let mut list = self.trie.continuations(node, 1, false);
            if middle == NONE {
                // What tokens begin at the root, they begin here.
                let begun = self.trie.nodes[0].children.iter().filter(|c| c.0 >= 256);
                let more: Vec<(u64, u32)> = begun.filter(|c| !list.iter().any(|l| l.0 == c.0)).copied().collect();
                list.extend(more);
            }
            let (edges, tokens) = self.edges(&list, Owed::NOTHING)?;
            let fallback = self.inside(middle)?;
            let state = &mut self.asm.states[state as usize];
            (state.edges, state.tokens, state.fallback) = (edges, tokens, fallback);
        }
        if middle == NONE && self.rule.open_end && !self.counting.first_ends {
            let exit = self.exit()?;
            self.asm.states[state as usize].accept = exit;
        }
        debug_assert!(self.asm.states[END as usize].accept != REJECT);
        Ok(())
    }

    /// The state in which no pattern is under way and a character has begun (or none).
    fn inside(&mut self, middle: u32) -> Result<u32> {
        let Some(&(lo, hi, next)) = MIDDLE.get(middle as usize) else { return self.node(0, Owed::NOTHING) };
        if self.middle[middle as usize] == NONE {
            let s = self.state()?;
            self.middle[middle as usize] = s;
            let target = self.inside(next)?;
            self.asm.states[s as usize].edges.push(Edge { lo, hi, act: PLAIN, target });
        }
        Ok(self.middle[middle as usize])
    }
}
