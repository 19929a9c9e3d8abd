//! The tags of a dispatch: the holes where they are to stand, how the text goes on after one, and those without text.

use smallvec::SmallVec;

use super::build::{Build, Owed, END};
use super::counting::Last;
use super::{restrict, HoleSpec};
use crate::error::{CompileError, Result};
use crate::fsm::{Edge, Op, RefEdge, TokenEdge, NONE, REJECT};
use crate::ir::Expr;
use crate::lower::nullable;

/// Register programs, and the state that each leads on to.
type Ways = SmallVec<[(Vec<Op>, u32); 2]>;

impl Build<'_> {
    /// The hole of a trigger, whose tags must not begin with `taken`, at `state`.
    pub(super) fn hand_over(&mut self, state: u32, trigger: u32, taken: Vec<u8>) -> Result<()> {
        if nullable(&self.rule.handlers[trigger as usize], self.rule_nullable) {
            self.empties.push((state, taken.clone()));
        }
        let key = (trigger, taken);
        let hole = match self.holes.get(&key) {
            Some(&h) => h,
            None => {
                let handler = &self.rule.handlers[trigger as usize];
                let bound = if matches!(handler, Expr::Never | Expr::Empty) {
                    // The state leads nowhere (unless a longer pattern goes on, or the tag is empty) and is dropped.
                    None
                } else if key.1.is_empty() {
                    Some(handler.clone())
                } else {
                    restrict::without_first(handler, &key.1, self.rules, self.rule_nullable, self.budget)
                        .map_err(|()| self.ambiguous(trigger, &key.1))?
                };
                let hole = bound.map(|e| {
                    self.bindings.push(e);
                    self.specs.push(HoleSpec { trigger, taken: key.1.clone() });
                    self.bindings.len() as u32 - 1
                });
                self.holes.insert(key, hole);
                hole
            }
        };
        let Some(hole) = hole else { return Ok(()) };
        for (ops, target) in self.ways_on()? {
            let act = self.asm.acts.intern(&ops)?;
            self.asm.states[state as usize].refs.push(RefEdge { callee: hole, args: NONE, act, target });
        }
        Ok(())
    }

    /// How the text goes on with a tag: what is counted, and the state after it.
    fn ways_on(&mut self) -> Result<Ways> {
        let tick: &[Op] = if self.counting.tags.is_some() { &[Op::Tick { r: 0 }] } else { &[] };
        Ok(match self.counting.last {
            Last::No => [(tick.to_vec(), self.node(0, Owed::NOTHING)?)].into_iter().collect(),
            Last::Only => [(vec![], END)].into_iter().collect(),
            Last::Counter(r) => {
                let mut ops = tick.to_vec();
                if r != 0 {
                    ops.push(Op::Tick { r });
                }
                let (on, end) =
                    ([ops.as_slice(), &[Op::Room { r }]].concat(), [ops.as_slice(), &[Op::Exit { r }]].concat());
                [(on, self.node(0, Owed::NOTHING)?), (end, END)].into_iter().collect()
            }
        })
    }

    /// A tag without text: the state of its trigger also does what the root does, but for bytes that a longer pattern takes.
    pub(super) fn skip_tags(&mut self, root: u32) -> Result<()> {
        for (state, taken) in self.empties.clone() {
            let mut edges = std::mem::take(&mut self.asm.states[state as usize].edges);
            let mut tokens = std::mem::take(&mut self.asm.states[state as usize].tokens);
            let mut accept = REJECT;
            for (ops, target) in self.ways_on()? {
                let act = self.asm.acts.intern(&ops)?;
                let to = &self.asm.states[target as usize];
                if to.accept != REJECT && (accept == REJECT || target == root) {
                    // Where both ways may end, the text may go on, and that it may end is all that is left to ask.
                    accept = match self.counting.last {
                        Last::Counter(_) if target == root => {
                            self.asm.acts.intern(&[Op::Tick { r: 0 }, Op::Exit { r: 0 }])?
                        }
                        _ => self.asm.acts.compose(act, to.accept)?,
                    };
                }
                for e in self.asm.states[target as usize].tokens.clone() {
                    if !tokens.iter().any(|t| t.token == e.token) {
                        tokens.push(TokenEdge { act: self.asm.acts.compose(act, e.act)?, ..e });
                    }
                }
                for e in self.asm.states[target as usize].edges.clone() {
                    let act = self.asm.acts.compose(act, e.act)?;
                    let mut lo = e.lo as u16;
                    let stops = taken.iter().filter(|&&b| e.lo <= b && b <= e.hi).map(|&b| b as u16);
                    for stop in stops.chain([e.hi as u16 + 1]).collect::<SmallVec<[u16; 8]>>() {
                        if lo < stop {
                            edges.push(Edge { lo: lo as u8, hi: (stop - 1) as u8, act, ..e });
                        }
                        lo = stop + 1;
                    }
                }
            }
            edges.sort_unstable();
            let s = &mut self.asm.states[state as usize];
            (s.edges, s.tokens, s.accept) = (edges, tokens, accept);
        }
        Ok(())
    }

    fn ambiguous(&self, trigger: u32, taken: &[u8]) -> CompileError {
        let t = String::from_utf8_lossy(&self.rule.triggers[trigger as usize]);
        let longer = self.rule.triggers.iter().chain(&self.rule.stops).chain(&self.rule.excludes);
        let longer = longer.filter(|p| p.len() > t.len() && memchr::memmem::find(p, t.as_bytes()).is_some());
        let longer: Vec<_> = longer.map(|p| format!("{:?}", String::from_utf8_lossy(p))).collect();
        CompileError::invalid(
            "",
            format!(
                "the trigger {t:?} lies inside {}, and what follows it may begin with {:?}, which belongs to the longer \
                 one; let the tags begin with a literal that differs, or change the triggers",
                longer.join(", "),
                String::from_utf8_lossy(taken),
            ),
        )
    }
}
