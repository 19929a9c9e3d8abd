//! `uniqueItems`.
//!
//! A few values: a rule for each set of those that are left. Of anything else, marks ([`Expr::Distinct`]) have the matcher
//! compare the items. Behind a comma there must always be another item, so the values that may stand at a place are counted
//! ([`Compiler::number_of_values`]): if they are finitely many, the array ends with the last of them.

use std::borrow::Cow;

use serde_json::Value;

use super::count::{DEPTH, MANY};
use super::flat::*;
use super::Compiler;
use crate::error::Result;
use crate::ir::{Body, Expr, RuleId};

/// Values of which each set is told apart.
const UNIQUE: usize = 10;

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
        let mut rest_is_apart = true;
        let mut places = vec![];
        for i in 0..=last {
            let atoms = self.all_atoms(f, i)?;
            let types = self.possible_types(&atoms)?;
            let most = match types {
                Some(types) => types,
                None => self.flatten(&atoms, Types::ALL)?.types,
            };
            rest_is_apart = once.and(most).is_empty();
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
            if n < MANY && i == alike && rest_is_apart {
                let all = n + alike as u64;
                most = Some(most.map_or(all, |m| m.min(all)));
            } else if n < MANY && (more(i) || n <= i as u64) {
                return Ok(Unique::Unknown);
            }
        }
        Ok(Unique::Distinct(most))
    }

    pub(super) fn all_atoms(&mut self, f: &Flat<'a>, i: usize) -> Result<Conj> {
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
}
