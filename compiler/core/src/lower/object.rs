//! JSON objects.
//!
//! An object is built by hand as a deterministic automaton:
//!
//! ```text
//! {  -->  first  --"-->  trie of names  --"-->  after key  --colon, value-->  after value  --}-->  end
//!                           ^                                                   | comma
//!                           +------------------------"--------------------------+
//! ```
//!
//! The trie stands once, whatever the number of pairs written so far: which keys may still come is in the key register
//! (see [`crate::fsm`]). Properties with equal values share what follows the key. An undeclared key runs beside the trie:
//! each trie node falls back to the state that the same bytes reach in the automaton of undeclared keys.
//!
//! *No dead ends.* A byte must not be allowed if no completion follows. So an edge into a part of the trie that only
//! holds declared names asks whether one of them is available, the edge on which a key parts from the trie asks whether
//! an undeclared key is possible, and the comma asks whether another pair is. Such questions are left out where the
//! answer is always yes, or follows from the one before. What the object's bounds decide by themselves (`minProperties:
//! 1`, at most one pair, as many pairs as required keys) is decided here and costs no counter.

mod assembly;
mod names;
mod others;
mod pairs;

use std::rc::Rc;

use rustc_hash::FxHashMap;

pub use assembly::Shared;
use assembly::{Assembly, Piece};
use names::{Names, FORBIDDEN};
use others::Others;
use pairs::Pairs;

use crate::error::{CompileError, Result};
use crate::fsm::{Edge, Fsm, KeyRegister, Op, RefEdge, DEAD, NONE, NO_COUNTER, PLAIN, UNBOUNDED};
use crate::ir::{Expr, ObjectRule, PropertyOrder};
use crate::limits::Budget;
use crate::lower::{minimal_is_empty, minimize};

/// Lowers an object; `None` if nothing matches it.
pub fn lower_object(
    rule: &ObjectRule,
    rule_nullable: &[bool],
    shared: &mut Shared,
    budget: &Budget,
) -> Result<Option<Fsm>> {
    let pieces = shared.separation(&rule.space, budget)?;
    let values = Values::new(rule, rule_nullable, shared, budget)?;
    let Some(plan) = Plan::new(rule, &values, shared, budget)? else { return Ok(None) };
    let needs_of_other: Vec<u32> = rule.others.iter().map(|o| o.marks).collect();
    let mut build = Build { asm: Assembly::new(budget), plan: &plan, masks: Masks::default(), needs_of_other };
    let asm = &mut build.asm;

    // 0 the start, 1 the end, 2 the root of the trie.
    let (start, end, root) = (asm.state()?, asm.state()?, asm.state()?);
    asm.states[end as usize].accept = PLAIN;
    let quote = Edge { lo: b'"', hi: b'"', act: PLAIN, target: root };
    let brace = Edge { lo: b'}', hi: b'}', act: PLAIN, target: end };
    let (first, close, again) = (asm.state()?, asm.state()?, asm.state()?);
    let pairs_possible = plan.pairs.pairs[0].open || plan.pairs.pairs[0].keys != 0;
    if pairs_possible {
        asm.states[first as usize].edges.push(quote);
    }
    let needs = needs(rule);
    let mut exit: Vec<Op> = plan.counter.then_some(Op::Exit { r: 0 }).into_iter().collect();
    exit.extend(needs.iter().map(|n| Op::Exit { r: plan.need(*n, &needs) }));
    let exit: &[Op] = &exit;
    // Whether the brackets of an empty object touch.
    let touching = plan.may_be_empty && rule.space.close.is_some();
    if plan.may_be_empty && !touching {
        let act = asm.act(exit)?;
        asm.states[first as usize].edges.push(Edge { act, ..brace });
    }
    asm.states[close as usize].edges.push(brace);
    asm.states[again as usize].edges.push(quote);

    let mut load: Vec<Op> = vec![];
    if plan.counter {
        load.push(Op::Load { r: 0, min: plan.min, max: plan.max });
    }
    load.extend(needs.iter().map(|n| Op::Load { r: plan.need(*n, &needs), min: 1, max: UNBOUNDED }));
    let load = asm.act(&load)?;
    let mut opened = asm.splice(&pieces.pad, &[first], &[PLAIN])?;
    if touching {
        let begun = asm.state()?;
        if pairs_possible {
            asm.states[begun as usize] = asm.states[opened as usize].clone();
        }
        let act = asm.act(exit)?;
        asm.states[begun as usize].edges.push(Edge { act, ..brace });
        asm.states[begun as usize].edges.sort_unstable();
        opened = begun;
    }
    let distinct = rule.distinct && plan.open && !plan.single;
    asm.states[opened as usize].distinct = distinct;
    asm.states[start as usize].edges.push(Edge { lo: b'{', hi: b'{', act: load, target: opened });
    if pairs_possible {
        let after_value = if plan.single {
            asm.splice(&pieces.close, &[close], &[PLAIN])?
        } else {
            let closing: Vec<Op> = plan.keyed().then_some(Op::Close).into_iter().chain(exit.iter().copied()).collect();
            let mut going_on = Vec::new();
            if plan.keyed() && !plan.open {
                going_on.push(Op::More);
            }
            if plan.max != UNBOUNDED {
                going_on.push(Op::Room { r: 0 });
            }
            let guards = [asm.act(&closing)?, asm.act(&going_on)?];
            asm.splice(&pieces.after, &[close, again], &guards)?
        };
        let mut begins = vec![NONE; values.list.len()];
        for &v in plan.value_of.iter().chain(&plan.value_of_other) {
            if v == NONE || begins[v as usize] != NONE {
                continue;
            }
            begins[v as usize] = match &values.list[v as usize] {
                Value::Nothing => NONE,
                Value::Reference(e) => {
                    let state = asm.state()?;
                    let (callee, args) = asm.reference(e);
                    asm.states[state as usize].refs.push(RefEdge { callee, args, act: PLAIN, target: after_value });
                    state
                }
                Value::Piece(p) => asm.splice(p, &[after_value], &[PLAIN])?,
            };
        }
        let mut after_key = AfterKey { declared: vec![NONE; begins.len()], other: vec![] };
        for &v in plan.value_of.iter().chain(if distinct { &[] } else { &plan.value_of_other[..] }) {
            if v != NONE && after_key.declared[v as usize] == NONE {
                after_key.declared[v as usize] = asm.splice(&pieces.colon, &[begins[v as usize]], &[PLAIN])?;
            }
        }
        after_key.other = after_key.declared.clone();
        if distinct {
            after_key.other.fill(NONE);
            for &v in &plan.value_of_other {
                if v != NONE && after_key.other[v as usize] == NONE {
                    let at = asm.splice(&pieces.colon, &[begins[v as usize]], &[PLAIN])?;
                    asm.states[at as usize].distinct = true;
                    after_key.other[v as usize] = at;
                }
            }
        }
        build.keys(root, &after_key)?;
    }
    let Build { mut asm, masks, .. } = build;
    let keys = plan.keyed().then(|| KeyRegister {
        order: rule.order,
        keys: plan.declared,
        required: plan.required.clone(),
        open: plan.open,
        masks: masks.list,
    });
    asm.counters = asm.counters.max(plan.counter as u8 + needs.len() as u8);
    Ok(Some(minimize(asm.finish(keys))))
}

/// The bits of a set, in order.
fn bits(set: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |i| set >> i & 1 == 1)
}

/// The needs of an object; each is counted down from one by a counter behind that of the pairs.
fn needs(rule: &ObjectRule) -> Vec<u32> {
    bits(rule.needs()).collect()
}

/// The distinct values of an object.
struct Values<'r> {
    list: Vec<Value<'r>>,
    number: FxHashMap<&'r Expr, u32>,
}

enum Value<'r> {
    /// Matches nothing.
    Nothing,
    /// One reference to a rule that does not match the empty string.
    Reference(&'r Expr),
    Piece(Rc<Piece>),
}

impl<'r> Values<'r> {
    fn new(rule: &'r ObjectRule, nullable: &[bool], shared: &mut Shared, budget: &Budget) -> Result<Self> {
        let mut values = Values { list: vec![], number: FxHashMap::default() };
        // The counter of the pairs is number 0.
        let counters = (rule.min_properties > 1 || rule.max_properties.is_some()) as u8 + needs(rule).len() as u8;
        let declared = rule.properties.iter().filter_map(|p| p.value.as_ref());
        for e in declared.chain(rule.others.iter().map(|o| &o.value)) {
            if values.number.contains_key(e) {
                continue;
            }
            budget.tick()?;
            let value = match e {
                Expr::Never => Value::Nothing,
                Expr::Rule(r) | Expr::Call { rule: r, .. } if !nullable.get(*r as usize).is_some_and(|&n| n) => {
                    Value::Reference(e)
                }
                _ => {
                    let piece = shared.value(e, nullable, counters, budget)?;
                    if minimal_is_empty(&piece.fsm) {
                        Value::Nothing
                    } else {
                        Value::Piece(piece)
                    }
                }
            };
            values.number.insert(e, values.list.len() as u32);
            values.list.push(value);
        }
        Ok(values)
    }

    /// The number of a value, or [`NONE`] if nothing matches it.
    fn of(&self, e: &Expr) -> u32 {
        match self.number.get(e) {
            Some(&v) if !matches!(self.list[v as usize], Value::Nothing) => v,
            _ => NONE,
        }
    }
}

/// What an object's keywords come to once they are taken together.
struct Plan {
    names: Names,
    others: Rc<Others>,
    pairs: Pairs,
    /// Number of declared keys.
    declared: u32,
    /// By canonical number of the key.
    value_of: Vec<u32>,
    is_required: Vec<bool>,
    required: Vec<u32>,
    /// By number of the alternative.
    value_of_other: Vec<u32>,
    /// Undeclared keys exist.
    open: bool,
    /// There is at most one pair: no comma, nothing to remember.
    single: bool,
    may_be_empty: bool,
    /// Pairs are counted by register 0, from `min` to `max`.
    counter: bool,
    min: u32,
    max: u32,
    /// The counter that questions about the next key must ask, or [`NO_COUNTER`].
    asked: u8,
    /// An optional or undeclared key may take the place of a required one.
    tight: bool,
    /// Declared keys that are skipped may be missing for `min` in the end.
    short: bool,
    /// An undeclared key may be written whenever any key may.
    others_free: bool,
    order: PropertyOrder,
}

impl Plan {
    fn new(rule: &ObjectRule, values: &Values, shared: &mut Shared, budget: &Budget) -> Result<Option<Plan>> {
        let (min, mut max) = (rule.min_properties, rule.max_properties.unwrap_or(UNBOUNDED));
        let required = rule.properties.iter().filter(|p| p.required).count();
        let impossible = |p: &crate::ir::Property| p.required && p.value.as_ref().is_none_or(|v| values.of(v) == NONE);
        if min > max || required > max as usize || rule.properties.iter().any(impossible) {
            return Ok(None);
        }
        // Where the required keys take all the room there is, no other key exists.
        let full = required == max as usize;
        let mut value_of_other: Vec<u32> =
            rule.others.iter().map(|o| if full { NONE } else { values.of(&o.value) }).collect();

        let mut keys: Vec<(&str, u32, bool)> = Vec::with_capacity(rule.properties.len());
        let mut forbidden: Vec<&str> = Vec::new();
        for p in &rule.properties {
            match p.value.as_ref().map_or(NONE, |v| values.of(v)) {
                v if v != NONE && (p.required || !full) => keys.push((&p.name, v, p.required)),
                _ => forbidden.push(&p.name),
            }
        }
        if rule.order == PropertyOrder::Any {
            keys.sort_unstable();
        }
        let mut spelled: Vec<(&str, u32)> = keys.iter().enumerate().map(|(i, k)| (k.0, i as u32)).collect();
        let declared = spelled.len();

        let possible: Vec<bool> = value_of_other.iter().map(|&v| v != NONE).collect();
        let met = rule.others.iter().zip(&possible).filter(|(_, p)| **p).fold(0, |bits, (o, _)| bits | o.marks);
        if met != rule.needs() {
            return Ok(None);
        }
        if met != 0 && rule.max_properties.is_some() {
            return Err(CompileError::invalid("", "needs of undeclared keys beside max_properties may have no room"));
        }
        let named = declared + forbidden.len() > 0;
        let mut others = shared.others(&rule.others, &possible, named, budget)?;
        if !others.states.is_empty() {
            spelled.extend(forbidden.iter().map(|&n| (n, FORBIDDEN)));
        }
        spelled.sort_unstable();
        if let Some(twice) = spelled.windows(2).find(|w| w[0].0 == w[1].0) {
            return Err(CompileError::invalid("", format!("property {:?} is declared twice", twice[0].0)));
        }
        let names = Names::new(&spelled, budget)?;
        let mut pairs = Pairs::new(&names, &others, budget)?;
        let open = pairs.pairs[0].open;
        if !open && !others.states.is_empty() {
            // Every undeclared key was the name of a declared or forbidden one after all.
            others = Rc::default();
            value_of_other.clear();
            pairs = Pairs::new(&names, &others, budget)?;
        }
        if !open {
            if min as usize > declared || rule.needs() != 0 {
                return Ok(None);
            }
            if max as usize >= declared {
                max = UNBOUNDED;
            }
        }
        let single = max <= 1 || !open && declared <= 1;
        let may_be_empty = min == 0 && required == 0 && rule.needs() == 0;
        let min = if min as usize <= required.max(1) { 0 } else { min };
        let counter = !single && (min > 0 || max != UNBOUNDED);
        let tight = !single && max != UNBOUNDED && required > 0;
        let short = counter && min > 0 && !open && rule.order == PropertyOrder::Declared;
        let ordered = rule.order == PropertyOrder::Declared && required > 0;
        Ok(Some(Plan {
            names,
            others,
            pairs,
            declared: declared as u32,
            value_of: keys.iter().map(|k| k.1).collect(),
            is_required: keys.iter().map(|k| k.2).collect(),
            required: (0u32..).zip(&keys).filter(|(_, k)| k.2).map(|(i, _)| i).collect(),
            value_of_other,
            open,
            single,
            may_be_empty,
            counter,
            min,
            max,
            asked: if tight || short { 0 } else { NO_COUNTER },
            tight,
            short,
            others_free: single || !ordered && !tight,
            order: rule.order,
        }))
    }

    /// The counter of a need.
    fn need(&self, need: u32, needs: &[u32]) -> u8 {
        let at = needs.iter().position(|n| *n == need).unwrap_or(0);
        self.counter as u8 + at as u8
    }

    /// Whether the object needs the key register.
    fn keyed(&self) -> bool {
        self.declared > 0 && !self.single
    }
}

/// Sets of keys that guards name.
#[derive(Default)]
struct Masks {
    list: Vec<Vec<u32>>,
    /// By number of the set.
    number: FxHashMap<u32, u32>,
}

impl Masks {
    fn of(&mut self, set: u32, pairs: &Pairs) -> u32 {
        *self.number.entry(set).or_insert_with(|| {
            self.list.push(pairs.sets[set as usize].clone());
            self.list.len() as u32 - 1
        })
    }
}

/// Where it goes on behind a key, by number of the value. Undeclared keys have places of their own where they are compared.
struct AfterKey {
    declared: Vec<u32>,
    other: Vec<u32>,
}

/// Builds the part of the automaton that reads keys.
struct Build<'a> {
    asm: Assembly<'a>,
    plan: &'a Plan,
    masks: Masks,
    /// By number of the alternative.
    needs_of_other: Vec<u32>,
}

/// States of the undeclared-key automaton in the object's.
#[derive(Clone)]
struct Placed {
    /// Inside an undeclared key.
    inside: Vec<u32>,
    /// Where keys part from the trie and must ask first whether they may.
    entry: Vec<u32>,
    work: Vec<(u32, bool)>,
}

impl Build<'_> {
    fn keys(&mut self, root: u32, after_key: &AfterKey) -> Result<()> {
        let plan = self.plan;
        let pairs = &plan.pairs;
        let n = plan.others.states.len();
        let mut placed = Placed { inside: vec![NONE; n], entry: vec![NONE; n], work: vec![] };
        let base = self.asm.states.len() as u32;
        for _ in 1..pairs.pairs.len() {
            self.asm.state()?;
        }
        let place = |pair: u32| if pair == 0 { root } else { base + pair - 1 };
        for (i, pair) in pairs.pairs.iter().enumerate() {
            let mut edges: Vec<Edge> = Vec::with_capacity(pair.edges.len() + 1);
            let end = plan.names.nodes[pair.node as usize].end;
            let other = plan.others.states.get(pair.other as usize);
            if end != NONE && end != FORBIDDEN {
                let act = self.take(end, pair.keys, pair.open)?;
                let target = after_key.declared[plan.value_of[end as usize] as usize];
                edges.push(Edge { lo: b'"', hi: b'"', act, target });
            } else if end == FORBIDDEN && pair.parts && other.is_some_and(|o| !o.alternatives.is_empty()) {
                edges.push(Edge { lo: b'"', hi: b'"', act: PLAIN, target: DEAD });
            }
            for &(byte, child) in &pair.edges {
                let to = &pairs.pairs[child as usize];
                let target = place(child);
                if !to.open && to.keys == 0 {
                    // Only forbidden names begin like this.
                    if pair.parts && to.other != NONE {
                        edges.push(Edge { lo: byte, hi: byte, act: PLAIN, target: DEAD });
                    }
                    continue;
                }
                let known = pairs.same_keys(pair.keys, to.keys) && pair.open == to.open;
                let act = if known { PLAIN } else { self.guard(to.keys, to.open)? };
                edges.push(Edge { lo: byte, hi: byte, act, target });
            }
            edges.sort_unstable();
            let fallback = if pair.parts {
                // Where no declared name begins like this the question was asked on the way here.
                let ask = !plan.others_free && pair.keys != 0;
                self.other(pair.other, ask, &mut placed)?
            } else {
                NONE
            };
            let state = &mut self.asm.states[place(i as u32) as usize];
            (state.edges, state.fallback) = (edges, fallback);
        }
        while let Some((state, ask)) = placed.work.pop() {
            self.fill_other(state, ask, after_key, &mut placed)?;
        }
        Ok(())
    }

    /// The act that asks whether a key that begins with one of a set of declared names, or an undeclared one, may come.
    fn guard(&mut self, keys: u32, open: bool) -> Result<u16> {
        let plan = self.plan;
        if plan.single || open && plan.others_free {
            return Ok(PLAIN);
        }
        if keys == 0 && plan.order == PropertyOrder::Any {
            return self.asm.act(if plan.tight { &[Op::Spare { r: 0 }] } else { &[] });
        }
        let mask = self.masks.of(keys, &plan.pairs);
        let op = if open || plan.asked != NO_COUNTER {
            Op::Viable { r: plan.asked, mask, other: open }
        } else {
            Op::Avail { mask }
        };
        self.asm.act(&[op])
    }

    /// The act of the closing quote of a declared key.
    fn take(&mut self, key: u32, keys: u32, open: bool) -> Result<u16> {
        let plan = self.plan;
        if plan.single {
            return Ok(PLAIN);
        }
        let mut ops = Vec::with_capacity(3);
        let asked = !open && plan.pairs.sets[keys as usize].len() == 1;
        if !asked && plan.short {
            let mask = self.masks.list.len() as u32;
            self.masks.list.push(vec![key]);
            ops.push(Op::Viable { r: 0, mask, other: false });
        } else if !asked && plan.tight && !plan.is_required[key as usize] {
            ops.push(Op::Spare { r: 0 });
        }
        ops.push(Op::Take { key });
        if plan.counter {
            ops.push(Op::Tick { r: 0 });
        }
        self.asm.act(&ops)
    }

    /// The place of a state of the undeclared-key automaton.
    fn other(&mut self, state: u32, ask: bool, placed: &mut Placed) -> Result<u32> {
        let list = if ask { &mut placed.entry } else { &mut placed.inside };
        let at = &mut list[state as usize];
        if *at == NONE {
            *at = self.asm.state()?;
            placed.work.push((state, ask));
        }
        Ok(*at)
    }

    fn fill_other(&mut self, state: u32, ask: bool, after_key: &AfterKey, placed: &mut Placed) -> Result<()> {
        let plan = self.plan;
        let from = &plan.others.states[state as usize];
        let at = if ask { placed.entry[state as usize] } else { placed.inside[state as usize] };
        let act = if ask { self.guard(0, true)? } else { PLAIN };
        let mut edges: Vec<Edge> = Vec::with_capacity(from.edges.len() + 1);
        for &(lo, hi, to) in &from.edges {
            let target = self.other(to, false, placed)?;
            edges.push(Edge { lo, hi, act, target });
        }
        for &alternative in &from.alternatives {
            let mut ops = Vec::with_capacity(3);
            if ask && plan.tight {
                ops.push(Op::Spare { r: 0 });
            }
            if plan.keyed() && plan.order == PropertyOrder::Declared {
                ops.push(Op::Other);
            }
            if plan.counter {
                ops.push(Op::Tick { r: 0 });
            }
            let all = self.needs_of_other.iter().fold(0, |bits, n| bits | n);
            let needs: Vec<u32> = bits(all).collect();
            let own = bits(self.needs_of_other[alternative as usize]);
            ops.extend(own.map(|n| Op::Tick { r: plan.need(n, &needs) }));
            let act = self.asm.act(&ops)?;
            let target = after_key.other[plan.value_of_other[alternative as usize] as usize];
            if edges.iter().any(|e| e.lo == b'"' && e.act == act && e.target != target) {
                return Err(CompileError::invalid(
                    "",
                    "alternatives of undeclared keys overlap and meet the same needs",
                ));
            }
            edges.push(Edge { lo: b'"', hi: b'"', act, target });
        }
        edges.sort_unstable();
        self.asm.states[at as usize].edges = edges;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
