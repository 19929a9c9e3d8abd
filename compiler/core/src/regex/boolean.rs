//! Patterns as Boolean automata, made deterministic: exact for every look-around and word edge, wherever it stands.
//!
//! What may follow a position is a Boolean function of what may follow each instruction: alternatives are joined by
//! *or*, a look-ahead by *and*, a negative one by *and not*. Reading a character replaces every variable by the function
//! that its instruction becomes. Functions are kept as decision diagrams, whose equality is plain, so there are finitely
//! many, and each, with what is known of the text read so far, is a state. What is known ([`Before`]) decides `^`, `\b` and
//! look-behind at once: whether this is the start, of which word sets the last character was, and where inside each
//! look-behind's body the text read so far may end. The automaton reads classes of code points; `spelled` turns
//! it into one over bytes.

use rustc_hash::FxHashMap;

use super::ast::Node;
use super::bdd::{Bdd, Diagrams, FALSE, TRUE};
use super::class::{CharSet, Ranges};
use super::program::{program, Op, Program};
use super::spelled::{spelled, NONE};
use super::Alphabet;
use crate::error::Result;
use crate::ir::Dfa;
use crate::limits::Budget;

/// What is known of the text before a position.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Before {
    /// Bit 0: the start (if the program asks); bit `1 + i`: the last character is in word set `i`.
    last: u32,
    /// For each look-behind the instructions reached inside its body.
    inside: Vec<Vec<u32>>,
}

/// A character class, or none: the end of the string.
type Next = Option<u32>;

struct Machine<'a> {
    p: Program,
    budget: &'a Budget,
    diagrams: Diagrams<'a>,
    /// `member[class][set]`.
    member: Vec<Vec<bool>>,
    befores: Vec<Before>,
    before_ids: FxHashMap<Before, u32>,
    formulas: FxHashMap<(u32, u32, Next), Bdd>,
    steps: FxHashMap<(Bdd, u32, Next), Bdd>,
    behind: FxHashMap<(u32, u32, Next), (bool, Vec<u32>)>,
    /// Depth of each instruction on the path of the formula being computed.
    path: FxHashMap<u32, usize>,
}

/// An automaton for the strings that match; `search`: starting anywhere; `open`: ending anywhere.
pub fn automaton(node: &Node, search: bool, open: bool, alphabet: Alphabet, budget: &Budget) -> Result<Dfa> {
    let p = program(node, search, open, budget)?;
    let (classes, member) = classes(&p.sets);
    let mut m = Machine {
        p,
        budget,
        diagrams: Diagrams::new(budget),
        member,
        befores: vec![],
        before_ids: FxHashMap::default(),
        formulas: FxHashMap::default(),
        steps: FxHashMap::default(),
        behind: FxHashMap::default(),
        path: FxHashMap::default(),
    };
    let start = Before { last: u32::from(m.p.start), inside: vec![vec![]; m.p.behinds.len()] };
    let start = m.before(start);
    let entry = m.p.entry;
    let first = m.variable(entry)?;
    let mut ids: FxHashMap<(Bdd, u32), u32> = FxHashMap::default();
    let mut states = vec![(first, start)];
    ids.insert((first, start), 0);
    let (mut rows, mut accepts) = (vec![], vec![]);
    // A step for each class, and in it one for each look-behind.
    let weight = 1 + classes.len() * (1 + m.p.behinds.len()) / 4;
    let mut i = 0;
    while i < states.len() {
        let (f, before) = states[i];
        budget.states(weight)?;
        accepts.push(m.step(f, before, None)? == TRUE);
        let mut row = vec![NONE; classes.len()];
        for (class, target) in row.iter_mut().enumerate() {
            let next = Some(class as u32);
            let g = m.step(f, before, next)?;
            let key = match g {
                FALSE => continue,
                TRUE => (TRUE, 0),
                g => (g, m.after(before, class as u32)?),
            };
            *target = *ids.entry(key).or_insert_with(|| {
                states.push(key);
                states.len() as u32 - 1
            });
        }
        rows.push(row);
        i += 1;
    }
    spelled(&classes, &rows, &accepts, alphabet, budget)
}

impl Machine<'_> {
    fn before(&mut self, b: Before) -> u32 {
        if let Some(&id) = self.before_ids.get(&b) {
            return id;
        }
        let id = self.befores.len() as u32;
        self.befores.push(b.clone());
        self.before_ids.insert(b, id);
        id
    }

    /// What is known after one more character.
    fn after(&mut self, before: u32, class: u32) -> Result<u32> {
        let mut last = 0;
        for (i, &w) in self.p.words.iter().enumerate() {
            last |= u32::from(self.member[class as usize][w as usize]) << (1 + i);
        }
        let mut inside = Vec::with_capacity(self.p.behinds.len());
        for id in 0..self.p.behinds.len() {
            inside.push(self.look_behind(id as u32, before, Some(class))?.1);
        }
        Ok(self.before(Before { last, inside }))
    }

    fn variable(&mut self, instruction: u32) -> Result<Bdd> {
        match self.p.ops[instruction as usize] {
            Op::Open => Ok(TRUE),
            _ => self.diagrams.variable(instruction),
        }
    }

    /// The function after a character, or the constant that it is at the end.
    fn step(&mut self, f: Bdd, before: u32, next: Next) -> Result<Bdd> {
        if f <= TRUE {
            return Ok(f);
        }
        if let Some(&g) = self.steps.get(&(f, before, next)) {
            return Ok(g);
        }
        let (var, lo, hi) = self.diagrams.node(f);
        let (lo, hi) = (self.step(lo, before, next)?, self.step(hi, before, next)?);
        let test = self.formula(var, before, next, 0)?.0;
        let g = self.diagrams.choose(test, hi, lo)?;
        self.steps.insert((f, before, next), g);
        Ok(g)
    }

    /// What an instruction becomes, and the lowest depth on the path that the answer rests on. A loop that comes back to
    /// itself without a character adds nothing, so it is false inside itself; what was computed under that assumption is
    /// not kept.
    fn formula(&mut self, q: u32, before: u32, next: Next, depth: usize) -> Result<(Bdd, usize)> {
        if let Some(&f) = self.formulas.get(&(q, before, next)) {
            return Ok((f, usize::MAX));
        }
        if let Some(&d) = self.path.get(&q) {
            return Ok((FALSE, d));
        }
        self.budget.tick()?;
        let last = self.befores[before as usize].last;
        let pass = |go: bool, to: u32| if go { vec![to] } else { vec![] };
        let to = match &self.p.ops[q as usize] {
            Op::Char { set, next: to } => {
                let hit = next.is_some_and(|c| self.member[c as usize][*set as usize]);
                let to = *to;
                let f = if hit { self.variable(to)? } else { FALSE };
                return Ok((f, usize::MAX));
            }
            Op::Open => return Ok((TRUE, usize::MAX)),
            Op::Close => return Ok((if next.is_none() { TRUE } else { FALSE }, usize::MAX)),
            Op::Found => return Ok((FALSE, usize::MAX)),
            Op::Split(to) => to.clone(),
            Op::Start(to) => pass(last & 1 == 1, *to),
            Op::End(to) => pass(next.is_none(), *to),
            Op::Edge { not, word, next: to } => pass(self.edge(last, next, *word) != *not, *to),
            &Op::Behind { not, id, next: to } => {
                let found = self.look_behind(id, before, next)?.0;
                pass(found != not, to)
            }
            &Op::Ahead { not, body, next: to } => {
                self.path.insert(q, depth);
                let (mut f, mut low) = self.formula(body, before, next, depth + 1)?;
                if not {
                    f = self.diagrams.not(f)?;
                }
                if f != FALSE {
                    let (g, l) = self.formula(to, before, next, depth + 1)?;
                    f = self.diagrams.and(f, g)?;
                    low = low.min(l);
                }
                return Ok(self.keep(q, before, next, depth, f, low));
            }
        };
        self.path.insert(q, depth);
        let (mut f, mut low) = (FALSE, usize::MAX);
        for t in to {
            let (g, l) = self.formula(t, before, next, depth + 1)?;
            f = self.diagrams.or(f, g)?;
            low = low.min(l);
        }
        Ok(self.keep(q, before, next, depth, f, low))
    }

    fn keep(&mut self, q: u32, before: u32, next: Next, depth: usize, f: Bdd, low: usize) -> (Bdd, usize) {
        self.path.remove(&q);
        if low < depth {
            return (f, low);
        }
        self.formulas.insert((q, before, next), f);
        (f, usize::MAX)
    }

    fn edge(&self, last: u32, next: Next, word: u32) -> bool {
        let set = self.p.words[word as usize] as usize;
        let after = next.is_some_and(|c| self.member[c as usize][set]);
        (last >> (1 + word) & 1 == 1) != after
    }

    /// Whether look-behind `id` holds here, and the instructions inside its body after the next character. A new
    /// attempt starts at every position. Recursion is by nesting of look-behinds.
    fn look_behind(&mut self, id: u32, before: u32, next: Next) -> Result<(bool, Vec<u32>)> {
        if let Some(r) = self.behind.get(&(id, before, next)) {
            return Ok(r.clone());
        }
        let mut todo = self.befores[before as usize].inside[id as usize].clone();
        todo.push(self.p.behinds[id as usize]);
        let last = self.befores[before as usize].last;
        let mut seen: rustc_hash::FxHashSet<u32> = todo.iter().copied().collect();
        let (mut found, mut reached) = (false, vec![]);
        while let Some(q) = todo.pop() {
            self.budget.tick()?;
            let to = match &self.p.ops[q as usize] {
                Op::Char { set, next: to } => {
                    if next.is_some_and(|c| self.member[c as usize][*set as usize]) {
                        reached.push(*to);
                    }
                    continue;
                }
                Op::Found => {
                    found = true;
                    continue;
                }
                Op::Split(to) => to.clone(),
                Op::Start(to) if last & 1 == 1 => vec![*to],
                Op::End(to) if next.is_none() => vec![*to],
                Op::Edge { not, word, next: to } if self.edge(last, next, *word) != *not => vec![*to],
                &Op::Behind { not, id, next: to } => match self.look_behind(id, before, next)?.0 != not {
                    true => vec![to],
                    false => continue,
                },
                _ => continue,
            };
            todo.extend(to.into_iter().filter(|&t| seen.insert(t)));
        }
        reached.sort_unstable();
        reached.dedup();
        self.behind.insert((id, before, next), (found, reached.clone()));
        Ok((found, reached))
    }
}

/// The classes of code points that no set divides, and which sets hold each.
fn classes(sets: &[CharSet]) -> (Vec<Ranges>, Vec<Vec<bool>>) {
    let mut cuts: Vec<u32> = CharSet::any().ranges().iter().flat_map(|r| [r.0, r.1 + 1]).collect();
    cuts.extend(sets.iter().flat_map(|s| s.ranges()).flat_map(|r| [r.0, r.1 + 1]));
    cuts.sort_unstable();
    cuts.dedup();
    let mut ids: FxHashMap<Vec<bool>, usize> = FxHashMap::default();
    let (mut classes, mut member): (Vec<Ranges>, Vec<Vec<bool>>) = (vec![], vec![]);
    for w in cuts.windows(2) {
        if char::from_u32(w[0]).is_none() {
            continue;
        }
        let row: Vec<bool> = sets.iter().map(|s| s.contains(w[0])).collect();
        let id = *ids.entry(row.clone()).or_insert_with(|| {
            classes.push(vec![]);
            member.push(row);
            classes.len() - 1
        });
        classes[id].push((w[0], w[1] - 1));
    }
    for c in &mut classes {
        *c = CharSet::new(std::mem::take(c)).into_ranges();
    }
    (classes, member)
}
