//! `uniqueItems`.
//!
//! A few values: a rule for each set of those that are left. Of anything else, marks ([`Expr::Distinct`]) have the matcher
//! compare the items. Behind a comma there must always be another item, so the values that may stand at a place are counted
//! ([`Compiler::number_of_values`]): if they are finitely many, the array ends with the last of them.

use std::borrow::Cow;

use serde_json::Value;

use super::documents::Step;
use super::flat::*;
use super::keyword::Kw;
use super::Compiler;
use crate::error::Result;
use crate::ir::{Body, Expr, RuleId};

/// Values of which each set is told apart.
const UNIQUE: usize = 10;
/// So many values are as good as infinitely many.
const MANY: u64 = 1 << 16;
/// How deep in arrays and objects something endless is looked for.
const DEPTH: u32 = 3;

/// What becomes of unique items.
pub(super) enum Unique {
    /// All there is to the array; `None`: nothing matches.
    Listed(Option<Expr>),
    /// Items are to be marked, at most so many.
    Distinct(Option<u64>),
    /// No two items can be equal.
    Given,
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
            if let Some(values) = self.finite_values(&atoms)? {
                if values.len() <= UNIQUE {
                    return self.unique_values(f, &values).map(Unique::Listed);
                }
            }
        }
        // What may stand where. From `alike` on it stands at two places or more.
        let last = f.array.max.map_or(alike, |m| alike.min(m as usize - 1));
        let more = |i: usize| i == alike && f.array.max.is_none_or(|m| m > i as u64 + 1);
        let mut once = Types::NONE;
        let mut repeated = Types::NONE;
        let mut places = vec![];
        for i in 0..=last {
            let atoms = self.all_atoms(f, i)?;
            let types = self.possible_types(&atoms)?;
            let most = match types {
                Some(types) => types,
                None => self.flatten(&atoms, Types::ALL)?.types,
            };
            repeated.0 |= if more(i) { most.0 } else { once.and(most).0 };
            once.0 |= most.0;
            places.push((atoms, types));
        }
        if repeated.is_empty() {
            return Ok(Unique::Given);
        }
        let mut most = f.array.max;
        for (i, (atoms, types)) in places.into_iter().enumerate() {
            let mixed = types.is_none_or(|t| t.has(Types::STRING) && t != Types::STRING);
            if mixed {
                // Nobody looks, right behind a quote, whether there still is a string.
                match self.count_strings(&atoms)? {
                    Some(n) if n == 0 || n >= MANY || !more(i) && n > i as u64 => {}
                    _ => return Ok(Unique::Unknown),
                }
            }
            if types.is_some_and(|t| !t.and(repeated.not()).is_empty()) {
                // A type of its own: nothing is equal to that.
                continue;
            }
            let Some(n) = self.number_of_values(&atoms, DEPTH)? else { return Ok(Unique::Unknown) };
            if n < MANY && alike == 0 {
                most = Some(most.map_or(n, |m| m.min(n)));
            } else if n < MANY && (more(i) || n <= i as u64) {
                return Ok(Unique::Unknown);
            }
        }
        Ok(Unique::Distinct(most))
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

    /// How many values satisfy a conjunction, [`MANY`] if at least so many; `None` if that cannot be told.
    fn number_of_values(&mut self, atoms: &[Atom], depth: u32) -> Result<Option<u64>> {
        if let Some(values) = self.finite_values(atoms)? {
            return Ok(Some(values.len() as u64));
        }
        let flat = self.flatten(atoms, Types::ALL)?;
        let mut sum = Some(0);
        for group in Types::GROUPS {
            let n = match self.of_type(&flat, group)? {
                None => None,
                Some(list) if list.is_empty() => Some(0),
                Some(_) if group == Types::STRING => self.count_strings(atoms)?,
                Some(list) => self.count_of_type(&list, group, depth)?,
            };
            if n.is_some_and(|n| n >= MANY) {
                return Ok(Some(MANY));
            }
            sum = sum.zip(n).map(|(a, b)| a + b);
        }
        Ok(sum)
    }

    /// The same for the alternatives of one type other than strings.
    fn count_of_type(&mut self, list: &[Flat<'a>], group: Types, depth: u32) -> Result<Option<u64>> {
        match group {
            Types::NULL | Types::BOOLEAN => {
                let types = list.iter().fold(0, |types, f| types | f.types.and(group).0);
                Ok(list.iter().all(|f| f.values.is_none()).then_some(u64::from(types.count_ones())))
            }
            Types::NUMBER => {
                let counts: Vec<Option<u64>> = list.iter().map(count_numbers).collect();
                Ok(match counts[..] {
                    [n] => n,
                    _ => counts.contains(&Some(MANY)).then_some(MANY),
                })
            }
            _ => {
                for f in list.iter().filter(|f| f.values.is_none()) {
                    let endless = if group == Types::ARRAY {
                        self.has_endless_arrays(f, depth)?
                    } else {
                        self.has_endless_objects(f, depth)?
                    };
                    if endless {
                        return Ok(Some(MANY));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Whether certainly [`MANY`] arrays satisfy constraints.
    fn has_endless_arrays(&mut self, f: &Flat<'a>, depth: u32) -> Result<bool> {
        let a = &f.array;
        if depth == 0 || !a.contains.is_empty() || a.max == Some(0) {
            return Ok(false);
        }
        let place = a.max.map_or(self.alike_from(f), |m| self.alike_from(f).min(m as usize - 1));
        let atoms = self.all_atoms(f, place)?;
        if a.max.is_none() && a.unique.is_none() && !self.provably_empty(&atoms, depth)? {
            return Ok(true);
        }
        Ok(self.number_of_values(&atoms, depth - 1)? == Some(MANY))
    }

    /// Whether certainly [`MANY`] objects satisfy constraints: for there are so many undeclared names, or so many values of
    /// a property.
    fn has_endless_objects(&mut self, f: &Flat<'a>, depth: u32) -> Result<bool> {
        let o = &f.object;
        if depth == 0 {
            return Ok(false);
        }
        let required = o.required.len() as u64;
        let mut open = o.max.is_none_or(|m| m > required) && o.names.is_empty() && o.unevaluated.is_empty();
        for part in &o.parts {
            open &= part.patterns.is_none();
            if let Some(schema) = part.additional {
                let child = self.docs.child(part.loc, schema, Step::Key(Kw::AdditionalProperties.text()));
                open = open && !self.provably_empty(&[Atom::is(child)], depth)?;
            }
        }
        if open {
            return Ok(true);
        }
        let (names, _) = self.declared_names(f)?;
        for name in names {
            let room = o.required.contains(&name) || o.max.is_none_or(|m| m > required);
            if !room || o.forbidden.contains(&name) {
                continue;
            }
            let atoms = self.name_atoms(f, name)?;
            if self.number_of_values(&atoms, depth - 1)? == Some(MANY) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// An item to be compared with the others; `None` if there is none.
    pub(super) fn distinct_item(&mut self, f: &Flat<'a>, i: usize) -> Result<Option<Expr>> {
        let atoms = self.all_atoms(f, i)?;
        Ok(self.inner(atoms)?.map(|item| Expr::seq([item, Expr::Distinct])))
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

    /// The values of a conjunction, if they are finitely many by enumeration.
    fn finite_values(&mut self, atoms: &[Atom]) -> Result<Option<Vec<Cow<'a, Value>>>> {
        let mut out = vec![];
        let flat = self.flatten(atoms, Types::ALL)?;
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

/// How many numbers satisfy constraints, [`MANY`] if at least so many; `None` if that cannot be told at once.
fn count_numbers(f: &Flat<'_>) -> Option<u64> {
    let n = &f.number;
    if f.values.is_some() {
        return None;
    }
    let (Some(low), Some(high)) = (&n.min.value, &n.max.value) else { return Some(MANY) };
    if n.multiples.is_empty() && f.types.has(Types::FRACTION) && low < high {
        return Some(MANY);
    }
    let simple = n.multiples.is_empty() && n.not_multiples.is_empty() && n.except.is_empty();
    if !simple || f.types.has(Types::FRACTION) {
        return None;
    }
    // The first that is too large, and the last that is too small.
    let beyond = high.floor()? + i128::from(!(n.max.exclusive && high.is_integer()));
    let below = low.floor()? - i128::from(low.is_integer() && !n.min.exclusive);
    Some((beyond - below - 1).clamp(0, i128::from(MANY)) as u64)
}
