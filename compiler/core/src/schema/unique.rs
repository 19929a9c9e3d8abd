//! `uniqueItems`.
//!
//! Three ways, from the closest to the widest:
//!
//! * A few values: a rule for each set of those that are left.
//! * Strings: marks ([`Expr::Distinct`]) have the matcher compare them. Of anything else that may stand at two places there
//!   must be nothing. If there are finitely many strings, the array ends with the last of them, so that behind a comma
//!   there always is another one.
//! * Strings without end, and a few other values (`null`, mostly): both, a rule for each set of values that is left.

use std::borrow::Cow;

use serde_json::Value;

use super::emit::Emitted;
use super::flat::*;
use super::Compiler;
use crate::error::Result;
use crate::ir::{Body, Expr, RuleId};

/// Values of which each set is told apart.
const UNIQUE: usize = 10;
/// Rules that sets of values times counts of items may make.
const RULES: u64 = 1 << UNIQUE;
/// So many strings are as good as infinitely many.
const MANY: u64 = 1 << 16;

/// What becomes of unique items.
pub(super) enum Unique {
    /// All there is to the array; `None`: nothing matches.
    Listed(Option<Expr>),
    /// Items are strings to be marked, at most so many.
    Distinct(Option<u64>),
    /// Cannot be had.
    Unknown,
}

impl<'a> Compiler<'a> {
    pub(super) fn unique(&mut self, f: &Flat<'a>) -> Result<Unique> {
        if !f.array.contains.is_empty() {
            return Ok(Unique::Unknown);
        }
        let alike = self.alike_from(f);
        if alike == 0 {
            let atoms = self.all_atoms(f, 0)?;
            if let Some(values) = self.finite_values(&atoms, Types::ALL)? {
                if values.len() <= UNIQUE {
                    return self.unique_values(f, &values).map(Unique::Listed);
                }
            }
        }
        // What may stand where. From `alike` on it stands at two places or more.
        let last = f.array.max.map_or(alike, |m| alike.min(m as usize - 1));
        let mut once = Types::NONE;
        let mut repeated = Types::NONE;
        let mut most = f.array.max;
        for i in 0..=last {
            let atoms = self.all_atoms(f, i)?;
            let Some(types) = self.possible_types(&atoms)? else { return Ok(Unique::Unknown) };
            let others = types.and(Types::STRING.not());
            repeated.0 |= once.and(others).0;
            once.0 |= others.0;
            let more = i == alike && f.array.max.is_none_or(|m| m > i as u64 + 1);
            if more {
                repeated.0 |= others.0;
            }
            if types.has(Types::STRING) {
                // A scalar beside the string is written here; arrays and objects would have this recurse.
                if others.has(Types(Types::ARRAY.0 | Types::OBJECT.0)) {
                    return Ok(Unique::Unknown);
                }
                let Some(n) = self.count_strings(&atoms)? else { return Ok(Unique::Unknown) };
                if n < MANY && alike == 0 && others.is_empty() {
                    most = Some(most.map_or(n, |m| m.min(n)));
                } else if n < MANY && (more || n <= i as u64) {
                    return Ok(Unique::Unknown);
                }
            }
        }
        if repeated.is_empty() {
            return Ok(Unique::Distinct(most));
        }
        if alike > 0 || !self.in_json() {
            return Ok(Unique::Unknown);
        }
        self.strings_and_values(f)
    }

    fn all_atoms(&mut self, f: &Flat<'a>, i: usize) -> Result<Conj> {
        let (mut atoms, rest) = self.item_atoms(f, i)?;
        atoms.extend(rest.into_iter().map(|(_, a)| a));
        Ok(atoms)
    }

    /// The types that a conjunction may have, as far as flattening tells; `None`: too many alternatives.
    fn possible_types(&mut self, atoms: &[Atom]) -> Result<Option<Types>> {
        let flat = self.flatten(atoms, Types::ALL)?;
        let mut types = Types::NONE;
        for group in Types::GROUPS {
            let Some(list) = self.of_type(&flat, group)? else { return Ok(None) };
            for f in list {
                types.0 |= match &f.values {
                    Some(values) => f.types.and(Types(values.iter().fold(0, |t, v| t | Types::of(v).0))).0,
                    None => f.types.0,
                };
            }
        }
        Ok(Some(types))
    }

    /// The alternatives of one type; `None` if they are too many.
    fn of_type(&mut self, flat: &Flat<'a>, group: Types) -> Result<Option<Vec<Flat<'a>>>> {
        if !flat.types.has(group) {
            return Ok(Some(vec![]));
        }
        let mut g = flat.clone();
        g.restrict(group);
        if g.is_dead() {
            return Ok(Some(vec![]));
        }
        if g.choices.is_empty() && g.object.some.is_empty() {
            return Ok(Some(vec![g]));
        }
        self.alternatives(g, 64, super::alternatives::LOOK)
    }

    /// How many strings satisfy a conjunction, [`MANY`] if at least so many; `None` if that cannot be told.
    fn count_strings(&mut self, atoms: &[Atom]) -> Result<Option<u64>> {
        let flat = self.flatten(atoms, Types::STRING)?;
        let Some(list) = self.of_type(&flat, Types::STRING)? else { return Ok(None) };
        let mut values: Vec<&'a str> = vec![];
        let mut specs = vec![];
        for f in list {
            let Some(listed) = f.values.clone() else {
                if self.string_count(&f.string, MANY)? == Some(MANY) {
                    return Ok(Some(MANY));
                }
                specs.push(f.string);
                continue;
            };
            for v in listed.iter().copied() {
                if let Value::String(s) = v {
                    if self.all_hold(&f.lits, v)? {
                        values.push(s);
                    }
                }
            }
        }
        if specs.is_empty() {
            values.sort_unstable();
            values.dedup();
            return Ok(Some(values.len() as u64));
        }
        self.count_union(&specs, &values, MANY)
    }

    /// An item whose strings are marked, and whatever else it may be; `None` if there is none.
    pub(super) fn distinct_item(&mut self, f: &Flat<'a>, i: usize) -> Result<Option<Expr>> {
        let atoms = self.all_atoms(f, i)?;
        let flat = self.flatten(&atoms, Types::ALL)?;
        if !flat.types.has(Types::STRING) {
            return self.inner(atoms);
        }
        let only_strings = flat.types == Types::STRING;
        let strings = if only_strings { self.inner(atoms.clone())? } else { self.part(&atoms, Types::STRING)? };
        let strings = strings.map(|e| Expr::seq([e, Expr::Distinct]));
        let others = if only_strings { None } else { self.part(&atoms, Types::STRING.not())? };
        Ok(match (strings, others) {
            (Some(a), Some(b)) => Some(Expr::alt([a, b])),
            (a, b) => a.or(b),
        })
    }

    /// The values of some types that satisfy a conjunction.
    fn part(&mut self, atoms: &[Atom], types: Types) -> Result<Option<Expr>> {
        let flat = self.flatten(atoms, types)?;
        let mut e = Emitted::default();
        self.emit(flat, &mut e)?;
        Ok(match self.body(e)? {
            None => None,
            Some((Body::Expr(e), _)) => Some(e),
            Some((body, _)) => Some(Expr::Rule(self.add_rule("item".into(), body)?)),
        })
    }

    /// Strings without end, and a few other values.
    fn strings_and_values(&mut self, f: &Flat<'a>) -> Result<Unique> {
        let atoms = self.all_atoms(f, 0)?;
        let Some(values) = self.finite_values(&atoms, Types::STRING.not())? else { return Ok(Unique::Unknown) };
        let (min, max) = (f.array.min, f.array.max);
        // Counts that make a difference.
        let last = max.unwrap_or(min);
        let sets = 1u64 << values.len().min(32);
        if values.len() > UNIQUE || last >= RULES || sets * (last + 1) > RULES {
            return Ok(Unique::Unknown);
        }
        let Some(strings) = self.part(&atoms, Types::STRING)? else { return Ok(Unique::Unknown) };
        let strings = Expr::seq([strings, Expr::Distinct]);
        let spelled: Vec<Expr> = values.iter().map(|v| self.item_constant(v, 0)).collect::<Result<_>>()?;
        let first = self.rules.len() as RuleId;
        for _ in 0..sets * (last + 1) {
            self.add_rule("unique".into(), Body::Expr(Expr::Never))?;
        }
        let rule = |used: u64, count: u64| Expr::Rule(first + (used * (last + 1) + count.min(last)) as RuleId);
        // What follows an item: the end, or a comma and another item. A byte comes first, as a mark demands.
        let after = |c: &Self, used: u64, count: u64| {
            let mut ways = vec![];
            if count >= min {
                ways.push(c.closing(false));
            }
            if max.is_none_or(|m| count < m) {
                ways.push(Expr::seq([c.space.comma.clone(), rule(used, count)]));
            }
            Expr::Alt(ways)
        };
        for used in 0..sets {
            for count in 0..=last {
                let mut items = vec![Expr::seq([strings.clone(), after(self, used, count + 1)])];
                for (i, v) in spelled.iter().enumerate().filter(|(i, _)| used >> i & 1 == 0) {
                    items.push(Expr::seq([v.clone(), after(self, used | 1 << i, count + 1)]));
                }
                self.rules[(first as u64 + used * (last + 1) + count) as usize].body = Body::Expr(Expr::Alt(items));
            }
        }
        let items = rule(0, 0);
        let open = Expr::seq([Expr::lit("["), Expr::Distinct]);
        let begin = |ways: Vec<Expr>| Expr::Alt(ways.into_iter().skip(usize::from(min > 0)).collect());
        Ok(Unique::Listed(Some(match self.space.close {
            None => Expr::seq([open, self.space.pad.clone(), begin(vec![Expr::lit("]"), items])]),
            Some(_) => Expr::seq([open, begin(vec![Expr::lit("]"), Expr::seq([self.space.pad.clone(), items])])]),
        })))
    }

    /// Unique items of a small finite set: one rule for each set of values that is left. `None`: nothing matches.
    fn unique_values(&mut self, f: &Flat<'a>, values: &[Cow<'a, Value>]) -> Result<Option<Expr>> {
        let n = values.len();
        let max = f.array.max.unwrap_or(u64::MAX).min(n as u64) as u32;
        if f.array.min > max as u64 {
            return Ok(None);
        }
        let min = f.array.min as u32;
        let spelled: Vec<Expr> = values.iter().map(|v| self.item_constant(v, 0)).collect::<Result<_>>()?;
        let first = self.rules.len() as RuleId;
        for _ in 0..1u32 << n {
            self.add_rule("unique".into(), Body::Expr(Expr::Never))?;
        }
        for used in 0..1u32 << n {
            let mut options = vec![];
            let count = used.count_ones();
            if count >= min {
                options.push(self.closing(count == 0));
            }
            if count < max {
                for (i, v) in spelled.iter().enumerate().filter(|(i, _)| used >> i & 1 == 0) {
                    let comma = self.before_item(count == 0);
                    let next = Expr::Rule(first + (used | 1 << i));
                    options.push(Expr::Seq(comma.into_iter().chain([v.clone(), next]).collect()));
                }
            }
            self.rules[(first + used) as usize].body = Body::Expr(Expr::Alt(options));
        }
        Ok(Some(self.opening(first)))
    }

    /// The values of a conjunction that have some types, if they are finitely many by enumeration.
    fn finite_values(&mut self, atoms: &[Atom], types: Types) -> Result<Option<Vec<Cow<'a, Value>>>> {
        let mut out = vec![];
        let flat = self.flatten(atoms, types)?;
        let list = if flat.values.is_some() || flat.choices.is_empty() {
            vec![flat]
        } else {
            let mut all = vec![];
            for group in Types::GROUPS {
                if flat.types.has(group) {
                    let mut g = flat.clone();
                    g.restrict(group);
                    match self.alternatives(g, 64, super::alternatives::LOOK)? {
                        Some(list) => all.extend(list),
                        None => return Ok(None),
                    }
                }
            }
            all
        };
        for f in list {
            match &f.values {
                Some(values) => {
                    for v in values.iter() {
                        if f.types.has(Types::of(v)) && self.all_hold(&f.lits, v)? {
                            out.push(Cow::Borrowed(*v));
                        }
                    }
                }
                None => {
                    let left = f.types.and(Types(Types::NULL.0 | Types::BOOLEAN.0));
                    if left != f.types {
                        return Ok(None);
                    }
                    for v in [Value::Null, Value::Bool(true), Value::Bool(false)] {
                        if f.types.has(Types::of(&v)) {
                            out.push(Cow::Owned(v));
                        }
                    }
                }
            }
        }
        let mut unique: Vec<Cow<'a, Value>> = vec![];
        for v in out {
            if !unique.iter().any(|u| super::validate::equal(u, &v)) {
                unique.push(v);
            }
        }
        Ok(Some(unique))
    }
}
