//! How many values satisfy a conjunction.
//!
//! Where items must be unique, an array ends with the last value that its items can have, and what may stand behind a comma
//! depends on how many there are. Counts are exact below [`MANY`].

use std::borrow::Cow;

use serde_json::Value;

use super::documents::Step;
use super::flat::*;
use super::keyword::Kw;
use super::Compiler;
use crate::error::Result;

/// So many values are as good as infinitely many.
pub(super) const MANY: u64 = 1 << 16;
/// How deep in arrays and objects values are counted.
pub(super) const DEPTH: u32 = 3;

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
        if self.has_endless_arrays(f, depth)? {
            return Ok(Some(MANY));
        }
        let a = &f.array;
        let Some(max) = a.max.filter(|_| depth > 0 && a.contains.is_empty() && a.unevaluated.is_empty()) else {
            return Ok(None);
        };
        let alike = self.alike_from(f);
        if a.unique.is_some() && alike > 0 {
            return Ok(None);
        }
        let (mut sum, mut product, mut choice) = (0u64, 1u64, None);
        for place in 0..=max {
            if place >= a.min {
                sum = sum.saturating_add(product);
            }
            if sum >= MANY || product == 0 || place == max {
                break;
            }
            let known = choice.filter(|_| place > alike as u64);
            choice = match known {
                None => {
                    let atoms = self.all_atoms(f, place as usize)?;
                    self.number_of_values(&atoms, depth - 1)?
                }
                known => known,
            };
            let Some(n) = choice else { return Ok(None) };
            product = product.saturating_mul(if a.unique.is_some() { n.saturating_sub(place) } else { n });
        }
        Ok(Some(sum.min(MANY)))
    }

    /// How many objects: of one that is closed, what each property may be, or that it is left out, multiplies.
    fn count_objects(&mut self, f: &Flat<'a>, depth: u32) -> Result<Option<u64>> {
        if self.has_endless_objects(f, depth)? {
            return Ok(Some(MANY));
        }
        let o = &f.object;
        let free = o.names.is_empty() && o.unevaluated.is_empty() && o.some_names.is_empty();
        let counted = o.min <= o.required.len() as u64 && o.max.is_none();
        if depth == 0 || !free || !counted || self.closed_names(f).is_none() {
            return Ok(None);
        }
        let (names, _) = self.declared_names(f)?;
        let mut product = 1u64;
        for name in names {
            if o.forbidden.contains(&name) {
                continue;
            }
            let atoms = self.name_atoms(f, name)?;
            let Some(n) = self.number_of_values(&atoms, depth - 1)? else { return Ok(None) };
            let left_out = u64::from(!o.required.contains(&name));
            product = product.saturating_mul(n.saturating_add(left_out));
        }
        Ok(Some(product.min(MANY)))
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
