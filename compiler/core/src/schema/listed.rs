//! Lists of values: what `enum`, `const` and alternatives of them amount to, and which of their values are valid.
//!
//! Schemas in the wild list thousands of strings, and ask of each list in hundreds of alternatives. So strings are looked up, not
//! compared one by one, and whether a value out of a document is valid at a location is found out once.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::documents::LocId;
use super::flat::{Atom, Flat, Lit, Types};
use super::keyword::Kw;
use super::validate::equal;
use super::Compiler;
use crate::error::Result;

/// Lists of an `enum` that are longer are looked up, not read.
const LONG: usize = 8;

impl<'a> Compiler<'a> {
    /// The values of alternatives that are lists of values and nothing else.
    pub(super) fn listed_values(&mut self, loc: LocId, children: &[LocId]) -> Result<Option<Rc<Vec<&'a Value>>>> {
        if let Some(known) = self.lists.get(&loc) {
            return Ok(known.clone());
        }
        let mut values: Option<Vec<&'a Value>> = (!children.is_empty()).then(Vec::new);
        let mut strings: FxHashSet<&'a str> = FxHashSet::default();
        for &child in children {
            let Some(found) = &mut values else { break };
            let range = self.docs.open(child);
            let list = match (range.len(), self.docs.value(child)) {
                (1, Value::Object(_)) => match self.docs.keyword(range.start) {
                    (Kw::Const, v) => std::slice::from_ref(v),
                    (Kw::Enum, v) => self.list(child, Kw::Enum, v)?,
                    _ => &[],
                },
                _ => &[],
            };
            if list.is_empty() {
                values = None;
                continue;
            }
            self.weigh(list.len())?;
            for v in list {
                let new = match v {
                    Value::String(s) => strings.insert(s),
                    v => !found.iter().any(|w| equal(v, w)),
                };
                if new {
                    found.push(v);
                }
            }
        }
        let values = values.map(Rc::new);
        self.lists.insert(loc, values.clone());
        Ok(values)
    }

    pub(super) fn one_of_values(&mut self, flat: &mut Flat<'a>, list: Rc<Vec<&'a Value>>) {
        flat.edits += 1;
        let mut types = Types::NONE;
        for v in list.iter() {
            types.0 |= Types::of(v).0;
        }
        flat.restrict(types);
        let both = match &flat.values {
            None => list,
            Some(old) => {
                let strings: FxHashSet<&str> = list.iter().filter_map(|v| v.as_str()).collect();
                let kept = old.iter().copied().filter(|v| match v {
                    Value::String(s) => strings.contains(s.as_str()),
                    v => list.iter().any(|w| equal(v, w)),
                });
                Rc::new(kept.collect())
            }
        };
        flat.values = Some(both);
    }

    /// What alternatives that are lists of values amount to.
    pub(super) fn finite_union(
        &mut self,
        f: &Flat<'a>,
        live: &[(usize, Flat<'a>)],
        exclusive: bool,
    ) -> Result<Vec<&'a Value>> {
        let mut found: Vec<(&'a Value, usize)> = vec![];
        let mut strings: FxHashMap<&'a str, usize> = Default::default();
        for (_, g) in live {
            for v in g.values.iter().flat_map(|v| v.iter().copied()) {
                if !f.types.has(Types::of(v)) || !self.all_hold_of(&g.lits[f.lits.len()..], v)? {
                    continue;
                }
                let old = match v {
                    Value::String(s) => {
                        let next = found.len();
                        let i = *strings.entry(s).or_insert(next);
                        (i < next).then_some(i)
                    }
                    v => found.iter().position(|(w, _)| equal(v, w)),
                };
                match old {
                    Some(i) => found[i].1 += 1,
                    None => found.push((v, 1)),
                }
            }
        }
        Ok(found.into_iter().filter(|(_, n)| !exclusive || *n == 1).map(|(v, _)| v).collect())
    }

    pub(super) fn all_hold(&mut self, lits: &[Lit<'a>], v: &Value) -> Result<bool> {
        for l in lits {
            if !self.lit_holds(l, v)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same of a value out of a document, which may be asked about in many alternatives.
    pub(super) fn all_hold_of(&mut self, lits: &[Lit<'a>], v: &'a Value) -> Result<bool> {
        for l in lits {
            let holds = match l {
                Lit::Atom(atom) => {
                    let key = (atom.loc(), std::ptr::from_ref(v) as usize);
                    self.weigh(1)?;
                    let known = match self.valid.get(&key) {
                        Some(known) => *known,
                        None => {
                            let valid = self.lit_holds(&Lit::Atom(Atom::is(atom.loc())), v)?;
                            self.valid.insert(key, valid);
                            valid
                        }
                    };
                    known != atom.negated()
                }
                l => self.lit_holds(l, v)?,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a value is in the list of an `enum`. Long lists meet many strings: theirs are looked up.
    pub(super) fn is_listed(&mut self, loc: LocId, k: &'a Value, v: &Value) -> Result<bool> {
        let list = self.list(loc, Kw::Enum, k)?;
        match v {
            Value::String(s) if list.len() > LONG => {
                let known = self.listed.entry(loc);
                let strings = known.or_insert_with(|| list.iter().filter_map(Value::as_str).collect());
                Ok(strings.contains(s.as_str()))
            }
            v => Ok(list.iter().any(|w| equal(v, w))),
        }
    }
}
