//! How many values satisfy a conjunction.
//!
//! Where items must be unique, an array ends with the last value that its items can have, and what may stand behind a comma
//! depends on how many there are. Counts are exact below [`MANY`].

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::documents::Step;
use super::flat::*;
use super::keyword::Kw;
use super::Compiler;
use crate::error::Result;

/// So many values are as good as infinitely many.
pub(super) const MANY: u64 = 1 << 16;
/// How deep in arrays and objects values are counted.
pub(super) const DEPTH: u32 = 5;

impl<'a> Compiler<'a> {
    /// The values of a conjunction, if they are finitely many by enumeration.
    pub(super) fn finite_values(&mut self, atoms: &[Atom]) -> Result<Option<Vec<Cow<'a, Value>>>> {
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

    /// The alternatives of one type; `None` if they are too many.
    pub(super) fn of_type(&mut self, flat: &Flat<'a>, group: Types) -> Result<Option<Vec<Flat<'a>>>> {
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
    pub(super) fn count_strings(&mut self, atoms: &[Atom]) -> Result<Option<u64>> {
        let flat = self.flatten(atoms, Types::STRING)?;
        let Some(list) = self.of_type(&flat, Types::STRING)? else { return Ok(None) };
        let mut values: Vec<&'a str> = vec![];
        let mut specs = vec![];
        for f in list {
            let Some(listed) = f.values.clone() else {
                if self.string_count(&f.string, MANY)? == Some(MANY) {
                    return Ok(Some(MANY));
                }
                specs.push(f.string.own());
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
    pub(super) fn number_of_values(&mut self, atoms: &[Atom], depth: u32) -> Result<Option<u64>> {
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
                let mut counts = vec![];
                for f in list {
                    counts.push(match (&f.values, group) {
                        (Some(_), _) => None,
                        (None, Types::ARRAY) => self.count_arrays(f, depth)?,
                        (None, _) => self.count_objects(f, depth)?,
                    });
                }
                Ok(match counts[..] {
                    [n] => n,
                    // Some values may be of several alternatives.
                    _ => counts.contains(&Some(MANY)).then_some(MANY),
                })
            }
        }
    }

    /// How many arrays: what may stand at each place multiplies, for every length.
    fn count_arrays(&mut self, f: &Flat<'a>, depth: u32) -> Result<Option<u64>> {
        let a = &f.array;
        if depth == 0 || !a.contains.is_empty() {
            return Ok(None);
        }
        let alike = self.alike_from(f);
        if a.max.is_none() && a.unique.is_none() {
            let atoms = self.all_atoms(f, alike)?;
            if !self.provably_empty(&atoms, depth)? {
                return Ok(Some(MANY));
            }
        }
        // Items that must differ come to an end by themselves.
        let distinct = a.unique.is_some();
        let (mut sum, mut product, mut last) = (0u64, 1u64, None);
        let mut place = 0;
        loop {
            if place >= a.min {
                sum = sum.saturating_add(product);
            }
            if sum >= MANY || product == 0 || a.max == Some(place) {
                break;
            }
            let n = match last.filter(|_| place > alike as u64) {
                None => {
                    let atoms = self.all_atoms(f, place as usize)?;
                    self.number_of_values(&atoms, depth - 1)?
                }
                known => known,
            };
            let Some(n) = n.filter(|n| !distinct || alike == 0 || *n >= MANY) else { return Ok(None) };
            last = Some(n);
            let shrinking = distinct && n < MANY;
            // Places that are alike multiply alike: those before the shortest array ends are passed over at once.
            let step = if shrinking || place < alike as u64 { 1 } else { a.min.saturating_sub(place).max(1) };
            product = product.saturating_mul(match shrinking {
                true => n.saturating_sub(place),
                false => n.saturating_pow(step.min(64) as u32),
            });
            place += step;
        }
        Ok(Some(sum.min(MANY)))
    }

    /// How many objects: what each property may be, or that it is left out, multiplies; undeclared names never end.
    fn count_objects(&mut self, f: &Flat<'a>, depth: u32) -> Result<Option<u64>> {
        if depth == 0 {
            return Ok(None);
        }
        let o = &f.object;
        let room = o.max.is_none_or(|m| m > o.required.len() as u64);
        if room && self.has_endless_names(f, depth)? {
            return Ok(Some(MANY));
        }
        let simple = o.names.is_empty() && o.unevaluated.is_empty() && o.some_names.is_empty();
        let bounds = o.min > o.required.len() as u64 || o.max.is_some();
        let mut product = (simple && !bounds && self.closed_names(f).is_some()).then_some(1u64);
        let (names, _) = self.declared_names(f)?;
        for name in names {
            let required = o.required.contains(&name);
            if o.forbidden.contains(&name) || !required && !room {
                continue;
            }
            let atoms = self.name_atoms(f, name)?;
            let n = self.number_of_values(&atoms, depth - 1)?;
            if n == Some(MANY) {
                return Ok(n);
            }
            product = product.zip(n).map(|(all, n)| all.saturating_mul(n + u64::from(!required)));
        }
        Ok(product.map(|n| n.min(MANY)))
    }

    /// Whether there certainly are [`MANY`] undeclared names that may have a value.
    fn has_endless_names(&mut self, f: &Flat<'a>, depth: u32) -> Result<bool> {
        let o = &f.object;
        if !o.unevaluated.is_empty() {
            return Ok(false);
        }
        if let [part] = o.parts[..] {
            if let Some(patterns) = part.patterns.filter(|_| o.names.is_empty()) {
                return self.has_endless_classes(part, patterns, depth);
            }
        }
        for part in &o.parts {
            if part.patterns.is_some() || !self.may_have_more(part, depth)? {
                return Ok(false);
            }
        }
        Ok(o.names.is_empty() || self.count_strings(&o.names)? == Some(MANY))
    }

    /// Whether a schema leaves values to names that it says nothing about.
    fn may_have_more(&mut self, part: &ObjectPart<'a>, depth: u32) -> Result<bool> {
        let Some(schema) = part.additional else { return Ok(true) };
        let child = self.docs.child(part.loc, schema, Step::Key(Kw::AdditionalProperties.text()));
        Ok(!self.provably_empty(&[Atom::is(child)], depth)?)
    }

    /// The same for names that patterns match, or do not.
    fn has_endless_classes(
        &mut self,
        part: ObjectPart<'a>,
        patterns: &'a Map<String, Value>,
        depth: u32,
    ) -> Result<bool> {
        let names = |matching: bool| Strings {
            patterns: patterns.keys().map(|p| (p.as_str(), matching)).collect(),
            at: part.loc,
            ..Strings::default()
        };
        if self.may_have_more(&part, depth)? && self.string_count(&names(false), MANY)? == Some(MANY) {
            return Ok(true);
        }
        for (pattern, schema) in patterns.iter().filter(|_| patterns.len() == 1) {
            let child = self.docs.child(part.loc, schema, Step::In(Kw::PatternProperties.text(), pattern));
            if !self.provably_empty(&[Atom::is(child)], depth)? {
                return Ok(self.string_count(&names(true), MANY)? == Some(MANY));
            }
        }
        Ok(false)
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
