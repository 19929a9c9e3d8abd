//! A pattern as a program: what [`boolean`](super::boolean) steps through.

use super::ast::Node;
use super::class::CharSet;
use crate::error::{CompileError, Result};
use crate::limits::Budget;

/// Most instructions of one program: the variables of its formulas, so also the depth of recursion over them.
const INSTRUCTIONS: usize = 3_000;

/// One instruction; numbers are of sets or of other instructions.
#[derive(Debug)]
pub enum Op {
    /// One character of the set, then `next`.
    Char {
        set: u32,
        next: u32,
    },
    Split(Vec<u32>),
    Start(u32),
    End(u32),
    /// A word edge; `word` is an index into [`Program::words`].
    Edge {
        not: bool,
        word: u32,
        next: u32,
    },
    Ahead {
        not: bool,
        body: u32,
        next: u32,
    },
    Behind {
        not: bool,
        id: u32,
        next: u32,
    },
    /// Whatever follows.
    Open,
    /// The string has to end here.
    Close,
    /// The end of a look-behind's body.
    Found,
}

pub struct Program {
    pub ops: Vec<Op>,
    pub entry: u32,
    pub sets: Vec<CharSet>,
    /// Sets (by number) that word edges use.
    pub words: Vec<u32>,
    /// Whether `^` occurs.
    pub start: bool,
    /// First instruction of each look-behind.
    pub behinds: Vec<u32>,
}

struct Compiler<'a> {
    p: Program,
    budget: &'a Budget,
}

/// `search`: may start anywhere; `open`: may end anywhere.
pub fn program(node: &Node, search: bool, open: bool, budget: &Budget) -> Result<Program> {
    let p = Program { ops: vec![], entry: 0, sets: vec![], words: vec![], start: false, behinds: vec![] };
    let mut c = Compiler { p, budget };
    let end = c.push(if open { Op::Open } else { Op::Close })?;
    c.p.entry = c.compile(node, end, false)?;
    if search {
        let body = Node::anything();
        c.p.entry = c.compile(&body, c.p.entry, false)?;
    }
    Ok(c.p)
}

impl Compiler<'_> {
    fn push(&mut self, op: Op) -> Result<u32> {
        if self.p.ops.len() >= INSTRUCTIONS {
            return Err(CompileError::unsupported(
                "",
                "look-around in a pattern this long",
                format!("written out it has more than {INSTRUCTIONS} instructions, counted repeats being copied"),
                "Shorten the pattern, lower its counts, or move the look-around to the start",
            ));
        }
        self.budget.states(1)?;
        self.p.ops.push(op);
        Ok(self.p.ops.len() as u32 - 1)
    }

    fn set(&mut self, set: &CharSet) -> u32 {
        match self.p.sets.iter().position(|s| s == set) {
            Some(i) => i as u32,
            None => {
                self.p.sets.push(set.clone());
                self.p.sets.len() as u32 - 1
            }
        }
    }

    /// Instructions for `node` that go on at `next`.
    fn compile(&mut self, node: &Node, next: u32, in_behind: bool) -> Result<u32> {
        match node {
            Node::Empty => Ok(next),
            Node::Set(set) => {
                let set = self.set(set);
                self.push(Op::Char { set, next })
            }
            Node::Seq(v) => v.iter().rev().try_fold(next, |next, n| self.compile(n, next, in_behind)),
            Node::Alt(v) => {
                let mut to = Vec::with_capacity(v.len());
                for n in v {
                    to.push(self.compile(n, next, in_behind)?);
                }
                self.push(Op::Split(to))
            }
            Node::Repeat { body, min, max } => {
                let mut at = next;
                match max {
                    None => {
                        at = self.push(Op::Split(vec![next]))?;
                        let body = self.compile(body, at, in_behind)?;
                        if let Op::Split(to) = &mut self.p.ops[at as usize] {
                            to.push(body);
                        }
                    }
                    Some(max) => {
                        for _ in *min..*max {
                            let taken = self.compile(body, at, in_behind)?;
                            at = self.push(Op::Split(vec![taken, next]))?;
                        }
                    }
                }
                for _ in 0..*min {
                    let before = self.p.ops.len();
                    at = self.compile(body, at, in_behind)?;
                    if self.p.ops.len() == before {
                        break; // An empty body stays empty however often it stands there.
                    }
                }
                Ok(at)
            }
            Node::Start => {
                self.p.start = true;
                self.push(Op::Start(next))
            }
            Node::End => self.push(Op::End(next)),
            Node::Edge { not, word } => {
                let set = self.set(word);
                let word = match self.p.words.iter().position(|&w| w == set) {
                    Some(i) => i,
                    None => {
                        self.p.words.push(set);
                        self.p.words.len() - 1
                    }
                };
                self.push(Op::Edge { not: *not, word: word as u32, next })
            }
            Node::Look { behind: false, at, .. } if in_behind => Err(CompileError::unsupported(
                "",
                format!("look-ahead at character {at} of a pattern"),
                "it stands inside a look-behind",
                "Take it out of the look-behind",
            )),
            Node::Look { behind: false, not, body, .. } => {
                let open = self.push(Op::Open)?;
                let body = self.compile(body, open, false)?;
                self.push(Op::Ahead { not: *not, body, next })
            }
            Node::Look { behind: true, not, body, .. } => {
                let id = self.p.behinds.len() as u32;
                self.p.behinds.push(0);
                let found = self.push(Op::Found)?;
                let entry = self.compile(body, found, true)?;
                self.p.behinds[id as usize] = entry;
                self.push(Op::Behind { not: *not, id, next })
            }
        }
    }
}
