//! Expressions to automata: the [`Builder`].
//!
//! # Repeats
//!
//! `x*` and `x+` are loops. A bounded repeat is unrolled when it is small (at most [`UNROLL_COPIES`] copies that make at
//! most [`UNROLL_STATES`] states together), for copies that merge with their neighbours are cheaper at run time than
//! counter values. Every other one is a loop with a counter:
//!
//! ```text
//! from --[Load r, Tick r]--> s --body--> e --[Tick r]--> s
//!                                        e --[Exit r]--> to
//! ```
//!
//! (and `from --> to` if `min` is 0). The body is never nullable: a nullable body is replaced by its non-empty strings
//! and `min` by 0. So acts never stand on a cycle of epsilon edges, and each tick is checked on the first byte of its
//! iteration. Counters are numbered by nesting: a counter is `(0, 0)` outside of its loop, so loops that do not nest
//! share one. Two paths with equal acts have entered and left the same loops with the same bounds, which is why members of
//! a subset that were reached through equal acts agree about all registers.
//!
//! The construction is driven by an explicit stack of tasks, so its depth costs no call stack.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::automata::nfa::{Nfa, NfaState};
use crate::automata::utf8::{self, Template, FINAL};
use crate::automata::{determinize, minimize, product};
use crate::error::{CompileError, Result};
use crate::fsm::{
    Callee, Edge, Fsm, KeyRegister, Op, RefEdge, TokenEdge, ANY_TOKEN, DEAD, NONE, PLAIN, REJECT, UNBOUNDED,
};
use crate::ir::{Dfa, Expr, TokenRuns};
use crate::limits::Budget;

use super::chars;
use super::measure::{check_depth, estimate, nullable, UNROLL_COPIES, UNROLL_STATES};

/// Most counters of one FSM.
const MAX_COUNTERS: u8 = 200;

/// A lowered rule: the FSM of its language without the empty string, and whether the empty string is in it.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub fsm: Fsm,
    pub nullable: bool,
}

/// Lowers an expression. `rule_nullable[i]` says whether rule `i` matches the empty string (rules beyond its end do not).
pub fn lower_expr(e: &Expr, rule_nullable: &[bool], budget: &Budget) -> Result<Lowered> {
    Builder::new(rule_nullable, budget).lower(e)
}

/// An automaton under construction.
///
/// States are made by [`state`](Self::state) and joined by byte, epsilon, reference and token edges, whose acts come from
/// [`act`](Self::act); [`expr`](Self::expr) puts a whole expression between two of them. See [`crate::automata::nfa`] for
/// the rules on epsilon edges.
pub struct Builder<'a> {
    pub(super) nfa: Nfa,
    rule_nullable: &'a [bool],
    pub(super) budget: &'a Budget,
    /// First counter that expressions may use.
    first_counter: u8,
    /// Unroll every repeat.
    pub(super) exact: bool,
    /// Inside an operand of `And` or `Sub`: references are errors.
    pub(super) operators: u32,
    callees: FxHashMap<Callee, u32>,
    args: FxHashMap<Vec<(u32, u32)>, u32>,
    templates: FxHashMap<Spelled, Arc<Template>>,
}

/// Code point ranges and how their members are spelled: 0 for UTF-8, 1 and 2 for JSON (2: free).
type Spelled = (Vec<(u32, u32)>, u8);

/// One expression still to be put between two states.
struct Task<'e> {
    e: &'e Expr,
    from: u32,
    to: u32,
    /// Only the non-empty strings of `e`.
    nonempty: bool,
    /// The next free counter.
    counter: u8,
}

impl<'a> Builder<'a> {
    pub fn new(rule_nullable: &'a [bool], budget: &'a Budget) -> Self {
        Builder {
            nfa: Nfa::default(),
            rule_nullable,
            budget,
            first_counter: 0,
            exact: false,
            operators: 0,
            callees: FxHashMap::default(),
            args: FxHashMap::default(),
            templates: FxHashMap::default(),
        }
    }

    /// Keeps counters `0..n` for the caller; expressions use those from `n` on. Call it before any expression is added.
    pub fn reserve_counters(&mut self, n: u8) -> Result<()> {
        self.first_counter = n;
        self.use_counters(n)
    }

    /// The key register of the finished FSM.
    pub fn set_keys(&mut self, keys: KeyRegister) {
        self.nfa.keys = Some(keys);
    }

    /// A new state without edges.
    pub fn state(&mut self) -> Result<u32> {
        self.budget.states(1)?;
        self.nfa.states.push(NfaState::default());
        Ok(self.nfa.states.len() as u32 - 1)
    }

    /// The id of an op list. `&[]` is [`PLAIN`].
    pub fn act(&mut self, ops: &[Op]) -> Result<u16> {
        self.nfa.acts.intern(ops)
    }

    /// Bytes `lo..=hi` lead from `from` to `to`.
    pub fn byte(&mut self, from: u32, lo: u8, hi: u8, act: u16, to: u32) {
        self.nfa.states[from as usize].edges.push(Edge { lo, hi, act, target: to });
    }

    /// A chain of states for a literal, which must not be empty; `act` runs on its first byte.
    pub fn literal(&mut self, from: u32, bytes: &[u8], act: u16, to: u32) -> Result<()> {
        let (mut at, mut act) = (from, act);
        for (i, &b) in bytes.iter().enumerate() {
            let next = if i + 1 == bytes.len() { to } else { self.state()? };
            self.byte(at, b, b, act, next);
            (at, act) = (next, PLAIN);
        }
        Ok(())
    }

    /// Bytes `lo..=hi` are blocked at `from`, which matters where its fallback would take them.
    pub fn block(&mut self, from: u32, lo: u8, hi: u8) {
        self.byte(from, lo, hi, PLAIN, DEAD);
    }

    /// `act` runs before whatever follows at `to`.
    pub fn epsilon(&mut self, from: u32, act: u16, to: u32) {
        if from != to || act != PLAIN {
            self.nfa.states[from as usize].epsilon.push((act, to));
        }
    }

    pub fn reference(&mut self, from: u32, callee: Callee, args: Option<&[(u32, u32)]>, act: u16, to: u32) {
        let next = self.nfa.callees.len() as u32;
        let callee = *self.callees.entry(callee).or_insert_with(|| {
            self.nfa.callees.push(callee);
            next
        });
        let args = match args {
            None => NONE,
            Some(a) => match self.args.get(a) {
                Some(&id) => id,
                None => {
                    let id = self.nfa.args.len() as u32;
                    self.nfa.args.push(a.to_vec());
                    self.args.insert(a.to_vec(), id);
                    id
                }
            },
        };
        self.nfa.states[from as usize].refs.push(RefEdge { callee, args, act, target: to });
    }

    pub fn token(&mut self, from: u32, token: u32, act: u16, to: u32) {
        self.nfa.states[from as usize].tokens.push(TokenEdge { token, act, target: to });
    }

    /// Bytes without an edge at `state` behave as at `fallback`, which must have no fallback itself.
    pub fn fallback(&mut self, state: u32, fallback: u32) {
        self.nfa.states[state as usize].fallback = fallback;
    }

    /// Marks a state `distinct` (see [`crate::fsm`]), and what follows it through epsilon edges.
    pub fn mark(&mut self, state: u32) {
        self.nfa.states[state as usize].distinct = true;
    }

    pub fn accept(&mut self, state: u32, act: u16) {
        self.nfa.states[state as usize].accept = act;
    }

    /// Puts `e` between two states, which may be equal (a loop) and may have other edges. Afterwards every string of `e`
    /// leads from `from` to `to`; nothing else of it touches the two states' own meaning.
    pub fn expr(&mut self, e: &Expr, from: u32, to: u32) -> Result<()> {
        check_depth(e, self.budget)?;
        let mut tasks = vec![Task { e, from, to, nonempty: false, counter: self.first_counter }];
        while let Some(task) = tasks.pop() {
            self.step(task, &mut tasks)?;
        }
        Ok(())
    }

    /// Makes the automaton deterministic and minimal.
    pub fn finish(self, start: u32) -> Result<Lowered> {
        let mut fsm = determinize(self.nfa, start, self.budget)?;
        let nullable = fsm.states[0].accept != REJECT;
        if nullable {
            split_start(&mut fsm);
        }
        Ok(Lowered { fsm: minimize(fsm), nullable })
    }

    /// Lowers `e` alone, in a builder that holds nothing else.
    pub(super) fn lower(mut self, e: &Expr) -> Result<Lowered> {
        let (start, end) = (self.state()?, self.state()?);
        self.expr(e, start, end)?;
        self.accept(end, PLAIN);
        self.finish(start)
    }

    fn step<'e>(&mut self, task: Task<'e>, tasks: &mut Vec<Task<'e>>) -> Result<()> {
        let Task { e, from, to, nonempty, counter } = task;
        match e {
            Expr::Never => {}
            Expr::Empty => {
                if !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
            }
            Expr::Distinct => {
                self.only_outside("a mark")?;
                if !nonempty {
                    let at = self.state()?;
                    self.mark(at);
                    self.epsilon(from, PLAIN, at);
                    self.epsilon(at, PLAIN, to);
                }
            }
            Expr::Bytes(bytes) => {
                if !bytes.is_empty() {
                    self.literal(from, bytes, PLAIN, to)?;
                } else if !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
            }
            Expr::Class(ranges) => {
                for &(lo, hi) in ranges {
                    self.byte(from, lo, hi, PLAIN, to);
                }
            }
            Expr::Chars(ranges) => self.chars(ranges, 0, from, to)?,
            Expr::JsonChars { ranges, free } => self.chars(ranges, 1 + u8::from(*free), from, to)?,
            Expr::Seq(items) => self.sequence(items, task, tasks)?,
            Expr::Alt(items) => {
                tasks.extend(items.iter().rev().map(|e| Task { e, from, to, nonempty, counter }));
            }
            Expr::Repeat { body, min, max } => self.repeat(body, *min, *max, task, tasks)?,
            Expr::Rule(rule) => self.rule(*rule, None, from, to, nonempty)?,
            Expr::Call { rule, args } => {
                let args: Vec<(u32, u32)> = args.iter().map(|&(a, b)| (a, b.unwrap_or(UNBOUNDED))).collect();
                self.rule(*rule, Some(&args), from, to, nonempty)?;
            }
            Expr::Token(id) => {
                self.only_outside("a special token")?;
                self.token(from, *id, PLAIN, to);
            }
            Expr::TokenExcept(except) => {
                self.only_outside("a set of tokens")?;
                // A state of its own: what is excluded here may be allowed beside it.
                let at = self.state()?;
                self.epsilon(from, PLAIN, at);
                except.iter().for_each(|&t| self.token(at, t, PLAIN, DEAD));
                self.token(at, ANY_TOKEN, PLAIN, to);
            }
            Expr::Hole(h) => {
                self.only_outside("a hole")?;
                self.reference(from, Callee::Hole(*h), None, PLAIN, to);
            }
            Expr::And(_) | Expr::Sub(..) => {
                let lowered = self.operator(e)?;
                if lowered.nullable && !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
                self.splice(&lowered.fsm, counter, from, to)?;
            }
            Expr::Automaton(dfa) => {
                let nullable = dfa.states.first().is_some_and(|s| s.accept);
                if nullable && !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
                self.splice_dfa(dfa, from, to)?;
            }
            Expr::Tokens(runs) => {
                self.only_outside("a set of tokens")?;
                if !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
                self.token_runs(runs, from, to)?;
            }
        }
        Ok(())
    }

    /// A sequence. Its non-empty strings begin with a non-empty string of one item while those before it match nothing:
    /// each such item gets an edge of its own from `from` to where it ends in the ordinary chain.
    fn sequence<'e>(&mut self, items: &'e [Expr], task: Task<'e>, tasks: &mut Vec<Task<'e>>) -> Result<()> {
        let Task { from, to, nonempty, counter, .. } = task;
        if items.is_empty() {
            if !nonempty {
                self.epsilon(from, PLAIN, to);
            }
            return Ok(());
        }
        let mut skippable = nonempty;
        let mut at = from;
        let first = tasks.len();
        for (i, e) in items.iter().enumerate() {
            let next = if i + 1 == items.len() { to } else { self.state()? };
            if i > 0 || !skippable {
                tasks.push(Task { e, from: at, to: next, nonempty: false, counter });
            }
            if skippable {
                skippable = nullable(e, self.rule_nullable);
                tasks.push(Task { e, from, to: next, nonempty: true, counter });
            }
            at = next;
        }
        tasks[first..].reverse();
        Ok(())
    }

    fn repeat<'e>(
        &mut self,
        body: &'e Expr,
        min: u32,
        max: Option<u32>,
        task: Task<'e>,
        tasks: &mut Vec<Task<'e>>,
    ) -> Result<()> {
        let Task { from, to, mut nonempty, counter, .. } = task;
        if max.is_some_and(|m| m < min) {
            return Ok(());
        }
        if max == Some(0) || matches!(body, Expr::Empty) {
            if !nonempty {
                self.epsilon(from, PLAIN, to);
            }
            return Ok(());
        }
        if max == Some(1) && min == 1 {
            tasks.push(Task { e: body, ..task });
            return Ok(());
        }
        // From here on bodies match no empty string.
        let mut min = min;
        let body_nullable = nullable(body, self.rule_nullable);
        if body_nullable {
            min = 0;
        } else if min > 0 {
            nonempty = false;
        }
        if min == 0 {
            if nonempty {
                min = 1;
            } else if max.is_some() {
                self.epsilon(from, PLAIN, to);
                min = 1;
            }
        }
        let copy = |from, to, counter| Task { e: body, from, to, nonempty: body_nullable, counter };
        // Here min is 0 only for `x*`.
        let copies = max.unwrap_or(min);
        let small = copies <= 1
            || self.exact
            || copies <= UNROLL_COPIES && estimate(body).saturating_mul(copies as usize) <= UNROLL_STATES;
        if !small {
            return self.counted(copy, min, max, task, tasks);
        }
        match max {
            None if min == 0 => {
                let hub = self.state()?;
                self.epsilon(from, PLAIN, hub);
                self.epsilon(hub, PLAIN, to);
                tasks.push(copy(hub, hub, counter));
            }
            None => {
                let mut at = from;
                for _ in 1..min {
                    let next = self.state()?;
                    tasks.push(copy(at, next, counter));
                    at = next;
                }
                let (enter, leave) = (self.state()?, self.state()?);
                self.epsilon(at, PLAIN, enter);
                self.epsilon(leave, PLAIN, enter);
                self.epsilon(leave, PLAIN, to);
                tasks.push(copy(enter, leave, counter));
            }
            Some(max) => {
                let mut at = from;
                for i in 1..=max {
                    let next = if i == max { to } else { self.state()? };
                    tasks.push(copy(at, next, counter));
                    if i >= min && i < max {
                        self.epsilon(next, PLAIN, to);
                    }
                    at = next;
                }
            }
        }
        Ok(())
    }

    /// A loop with a counter. The case of no iteration at all has been dealt with.
    fn counted<'e>(
        &mut self,
        copy: impl Fn(u32, u32, u8) -> Task<'e>,
        min: u32,
        max: Option<u32>,
        task: Task<'e>,
        tasks: &mut Vec<Task<'e>>,
    ) -> Result<()> {
        let Task { from, to, counter: r, .. } = task;
        let inner = r.saturating_add(1);
        self.use_counters(inner)?;
        let enter = self.act(&[Op::Load { r, min, max: max.unwrap_or(UNBOUNDED) }, Op::Tick { r }])?;
        let (again, leave) = (self.act(&[Op::Tick { r }])?, self.act(&[Op::Exit { r }])?);
        let (first, last) = (self.state()?, self.state()?);
        self.epsilon(from, enter, first);
        self.epsilon(last, again, first);
        self.epsilon(last, leave, to);
        tasks.push(copy(first, last, inner));
        Ok(())
    }

    fn rule(&mut self, rule: u32, args: Option<&[(u32, u32)]>, from: u32, to: u32, nonempty: bool) -> Result<()> {
        self.only_outside("a rule reference")?;
        if !nonempty && self.rule_nullable.get(rule as usize).copied().unwrap_or(false) {
            self.epsilon(from, PLAIN, to);
        }
        self.reference(from, Callee::Rule(rule), args, PLAIN, to);
        Ok(())
    }

    fn only_outside(&self, what: &str) -> Result<()> {
        if self.operators > 0 || self.exact {
            return Err(CompileError::invalid(
                "",
                format!(
                    "{what} is not possible inside an intersection or a difference, whose operands must be regular"
                ),
            ));
        }
        Ok(())
    }

    /// One character in the given spelling (see [`Spelled`]).
    fn chars(&mut self, ranges: &[(u32, u32)], spelling: u8, from: u32, to: u32) -> Result<()> {
        if spelling == 0 && ranges.iter().all(|r| r.1 < 0x80) {
            for &(lo, hi) in ranges {
                self.byte(from, lo as u8, hi as u8, PLAIN, to);
            }
            return Ok(());
        }
        let key = (ranges.to_vec(), spelling);
        let template = match self.templates.get(&key) {
            Some(t) => t.clone(),
            None => {
                let t = match spelling {
                    0 => Arc::new(utf8::template(ranges)),
                    _ => chars::template(ranges, spelling == 2),
                };
                self.templates.insert(key, t.clone());
                t
            }
        };
        let base = self.extend(template.states.len())?;
        let place = |t: u32| match t {
            FINAL => to,
            t if t == template.start => from,
            t => base + t,
        };
        for (i, edges) in template.states.iter().enumerate() {
            // A template is acyclic: nothing leads to its start, whose edges go to `from` itself.
            let at = place(i as u32) as usize;
            self.nfa.states[at].edges.extend(edges.iter().map(|&(lo, hi, t)| Edge {
                lo,
                hi,
                act: PLAIN,
                target: place(t),
            }));
        }
        Ok(())
    }

    /// Room for `n` new states; returns the first.
    fn extend(&mut self, n: usize) -> Result<u32> {
        self.budget.states(n)?;
        let base = self.nfa.states.len();
        self.nfa.states.resize_with(base + n, NfaState::default);
        Ok(base as u32)
    }

    /// Puts an automaton between two states, without the empty string.
    fn splice_dfa(&mut self, dfa: &Dfa, from: u32, to: u32) -> Result<()> {
        let base = self.extend(dfa.states.len())?;
        for (i, s) in dfa.states.iter().enumerate() {
            let at = base as usize + i;
            let edges = s.edges.iter().filter(|e| (e.2 as usize) < dfa.states.len());
            let edges = edges.map(|&(lo, hi, t)| Edge { lo, hi, act: PLAIN, target: base + t });
            self.nfa.states[at].edges.extend(edges);
            if s.accept {
                self.epsilon(at as u32, PLAIN, to);
            }
        }
        if !dfa.states.is_empty() {
            let edges = self.nfa.states[base as usize].edges.clone();
            self.nfa.states[from as usize].edges.extend(edges);
        }
        Ok(())
    }

    /// Like [`ExprBuilder::splice_dfa`], over tokens. The way in has a state of its own, as in [`Expr::TokenExcept`].
    fn token_runs(&mut self, runs: &TokenRuns, from: u32, to: u32) -> Result<()> {
        let n = runs.states.len() as u32;
        let base = self.extend(runs.states.len() + 1)?;
        self.epsilon(from, PLAIN, base + n);
        for (i, edges) in (0..).zip(&runs.states).chain(runs.states.first().map(|start| (n, start))) {
            for &(token, target) in edges {
                let target = if target < n { base + target } else { DEAD };
                self.token(base + i, token, PLAIN, target);
            }
            self.token(base + i, ANY_TOKEN, PLAIN, base);
            if i < n {
                self.epsilon(base + i, PLAIN, to);
            }
        }
        Ok(())
    }

    /// Puts a lowered operator (no references, no fallbacks, start not accepting) between two states. Its counters are
    /// renumbered to begin at `counter`.
    fn splice(&mut self, fsm: &Fsm, counter: u8, from: u32, to: u32) -> Result<()> {
        self.use_counters(counter.saturating_add(fsm.counters))?;
        let mut acts = Vec::with_capacity(fsm.acts.len());
        for ops in &fsm.acts {
            acts.push(self.act(&product::shifted(ops, counter))?);
        }
        let act = |a: u16| acts.get(usize::from(a)).copied().unwrap_or(PLAIN);
        let base = self.extend(fsm.states.len())?;
        for (i, s) in fsm.states.iter().enumerate() {
            let at = base as usize + i;
            let edges = s.edges.iter().filter(|e| e.target != DEAD);
            let edges = edges.map(|e| Edge { act: act(e.act), target: base + e.target, ..*e });
            self.nfa.states[at].edges.extend(edges);
            if s.accept != REJECT {
                self.epsilon(at as u32, act(s.accept), to);
            }
        }
        if !fsm.states.is_empty() {
            let edges = self.nfa.states[base as usize].edges.clone();
            self.nfa.states[from as usize].edges.extend(edges);
        }
        Ok(())
    }

    fn use_counters(&mut self, n: u8) -> Result<()> {
        if n > MAX_COUNTERS {
            return Err(CompileError::limit(
                "depth",
                "the number of counted repeats inside one another",
                u64::from(MAX_COUNTERS),
            ));
        }
        self.nfa.counters = self.nfa.counters.max(n);
        Ok(())
    }
}

/// Makes the start state non-accepting: where edges lead back to it, they lead to a copy that still accepts.
pub(super) fn split_start(fsm: &mut Fsm) {
    let copy = fsm.states.len() as u32;
    let mut used = false;
    for s in &mut fsm.states {
        let targets = s
            .edges
            .iter_mut()
            .map(|e| &mut e.target)
            .chain(s.refs.iter_mut().map(|e| &mut e.target))
            .chain(s.tokens.iter_mut().map(|e| &mut e.target))
            .chain(std::iter::once(&mut s.fallback));
        for t in targets {
            if *t == 0 {
                *t = copy;
                used = true;
            }
        }
    }
    if used {
        let state = fsm.states[0].clone();
        fsm.states.push(state);
    }
    fsm.states[0].accept = REJECT;
}
