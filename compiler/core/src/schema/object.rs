//! Objects: which schemas hold for the value of each name.

use rustc_hash::FxHashSet;
use serde_json::Value;
use smallvec::SmallVec;

use super::documents::Step;
use super::flat::*;
use super::keyword::Kw;
use super::others::OtherNames;
use super::Compiler;
use crate::error::Result;
use crate::ir::{ObjectRule, Property, PropertyOrder};

/// Names that match a pattern and are declared for that where it matters how many there are.
const MOST_LISTED: usize = 32;
/// Alternatives of `propertyNames`.
pub(super) const MOST_NAME_CHOICES: usize = 64;

/// How many properties there may be besides the required ones, if that is bounded.
pub(super) fn room(f: &Flat<'_>) -> Option<u64> {
    let required: FxHashSet<&str> = f.object.required.iter().copied().collect();
    f.object.max.map(|m| m.saturating_sub(required.len() as u64))
}

impl<'a> Compiler<'a> {
    /// What holds for the value of a name.
    pub(super) fn name_atoms(&mut self, f: &Flat<'a>, name: &str) -> Result<Conj> {
        let mut atoms = Conj::new();
        let o = &f.object;
        for part in &o.parts {
            let mut named = false;
            if let Some((key, schema)) = part.properties.and_then(|m| m.get_key_value(name)) {
                let child = self.docs.child(part.loc, schema, Step::In(Kw::Properties.text(), key));
                atoms.push(Atom::is(child));
                named = true;
            }
            let matches = |c: &mut Self, p| c.pattern_matches(part.loc, Kw::PatternProperties, p, name);
            self.by_pattern(part, named, matches, &mut atoms)?;
        }
        atoms.extend(o.properties.iter().filter(|(n, _)| *n == name).map(|(_, a)| *a));
        for (node, schema) in &o.unevaluated {
            let mut evaluated = false;
            for part in o.parts.iter().filter(|p| f.under(p.node, *node)) {
                evaluated |= part.additional.is_some() || self.is_named(part.loc, name)?;
            }
            if !evaluated && !self.evaluated_inside(f, *node) {
                atoms.push(Atom::is(*schema));
            }
        }
        Ok(atoms)
    }

    /// Adds what the patterns of a part ask of the values of names that they match, and its `additionalProperties` if the
    /// names are neither matched nor `named` otherwise.
    pub(super) fn by_pattern(
        &mut self,
        part: &ObjectPart<'a>,
        mut named: bool,
        mut matches: impl FnMut(&mut Self, &'a str) -> Result<bool>,
        atoms: &mut Conj,
    ) -> Result<()> {
        for (pattern, schema) in part.patterns.into_iter().flatten() {
            if matches(self, pattern)? {
                let child = self.docs.child(part.loc, schema, Step::In(Kw::PatternProperties.text(), pattern));
                atoms.push(Atom::is(child));
                named = true;
            }
        }
        if let (false, Some(schema)) = (named, part.additional) {
            let key = Step::Key(Kw::AdditionalProperties.text());
            atoms.push(Atom::is(self.docs.child(part.loc, schema, key)));
        }
        Ok(())
    }

    /// Whether an `unevaluatedProperties` further inside takes all that is left.
    pub(super) fn evaluated_inside(&self, f: &Flat<'a>, node: u32) -> bool {
        f.object.unevaluated.iter().any(|(n, _)| *n != node && f.under(*n, node))
    }

    /// The rule of an object; `None` if nothing can match.
    pub(super) fn object(&mut self, f: &Flat<'a>) -> Result<Option<ObjectRule>> {
        let o = &f.object;
        let required: FxHashSet<&'a str> = o.required.iter().copied().collect();
        let mut rule = ObjectRule {
            properties: vec![],
            others: vec![],
            order: self.options.order,
            min_properties: 0,
            distinct: false,
            max_properties: o.max.map(|m| m.min(u32::MAX as u64) as u32),
            space: self.space.clone(),
        };
        let simple = o.properties.is_empty() && o.unevaluated.is_empty() && o.names.is_empty();
        let mut others = OtherNames::default();
        let (names, closed) = self.declared_names(f)?;
        let closed = closed || self.closed_by_default(f);
        rule.properties.reserve(names.len());
        for name in names {
            self.budget.tick()?;
            let value = if o.forbidden.contains(&name) || !self.name_allowed(f, name)? {
                None
            } else {
                let atoms = match &o.parts[..] {
                    [part] if simple && part.patterns.is_none() => {
                        let (schema, step) = match part.properties.and_then(|m| m.get(name)) {
                            Some(s) => (Some(s), Step::In(Kw::Properties.text(), name)),
                            None => (part.additional, Step::Key(Kw::AdditionalProperties.text())),
                        };
                        schema.map(|s| Atom::is(self.docs.child(part.loc, s, step))).into_iter().collect()
                    }
                    _ => self.name_atoms(f, name)?,
                };
                self.inner(atoms)?
            };
            let required = required.contains(name);
            if required && value.is_none() {
                self.blame_property(f, name)?;
                return Ok(None);
            }
            rule.properties.push(Property { name: name.to_owned(), value, required });
        }
        if !closed {
            let Some(found) = self.other_names(f)? else { return Ok(None) };
            others = found;
            (rule.others, rule.distinct) = (std::mem::take(&mut others.list), others.distinct);
            if let (false, Some(room)) = (o.some_names.is_empty(), room(f)) {
                // There is room for one more property, so that is all that must exist.
                let all = (1u32 << o.some_names.len()) - 1;
                rule.others.retain(|o| o.marks == all);
                rule.others.iter_mut().for_each(|o| o.marks = 0);
                rule.properties.iter_mut().filter(|p| !p.required).for_each(|p| p.value = None);
                let number = o.max.map_or(0, |m| m.min(u32::MAX as u64) as u32);
                (rule.min_properties, rule.max_properties) = (number, Some(number));
                let fits = room == 1 && o.min <= number as u64 && !rule.others.is_empty();
                return Ok(fits.then_some(rule));
            }
        } else if !o.some_names.is_empty() {
            return Ok(None);
        }
        self.count_properties(f, rule, &others)
    }

    /// Notes that nothing matches because a required property cannot have a value.
    fn blame_property(&mut self, f: &Flat<'a>, name: &str) -> Result<()> {
        if self.blame.is_some() {
            return Ok(());
        }
        let mut why = format!("the property {name:?} is required and cannot have a value");
        for part in f.object.parts.iter().filter(|p| p.additional == Some(&Value::Bool(false))) {
            if !self.is_named(part.loc, name)? {
                let place = self.place(part.loc, Kw::AdditionalProperties);
                why = format!("the property {name:?} is required, and {place} does not allow it");
                break;
            }
        }
        self.blame = Some((f.nodes.first().map_or(0, |n| n.loc), why));
        Ok(())
    }

    /// Bounds on the number of properties. `others`: the undeclared names, whose list the rule has.
    fn count_properties(
        &mut self,
        f: &Flat<'a>,
        mut rule: ObjectRule,
        others: &OtherNames,
    ) -> Result<Option<ObjectRule>> {
        let required = rule.properties.iter().filter(|p| p.required).count() as u64;
        if f.object.max.is_some_and(|m| m < required) {
            return Ok(None);
        }
        if f.object.min > required {
            let possible = rule.properties.iter().filter(|p| p.value.is_some()).count() as u64;
            if rule.others.is_empty() {
                if possible < f.object.min {
                    return Ok(None);
                }
            } else if f.object.min > 1 && others.endless {
                // A name that is written twice must not be counted twice.
                rule.distinct = true;
            } else if let (2.., Some(number)) = (f.object.min, others.number.filter(|_| self.counts(&rule, required))) {
                // They run out, which a bound on all properties says: no comma then leads to where no name is left.
                let all = possible + number;
                if all < f.object.min {
                    return Ok(None);
                }
                rule.distinct = true;
                let most = all.min(u32::MAX as u64) as u32;
                rule.max_properties = Some(rule.max_properties.map_or(most, |m| m.min(most)));
            } else if f.object.min > 1 {
                let loc = f.nodes.iter().map(|n| n.loc).find(|l| self.docs.get(*l, Kw::MinProperties).is_some());
                self.unsupported(
                    loc.unwrap_or_default(),
                    Kw::MinProperties,
                    "the names that are not declared are few, and might not be enough",
                    "Declare these names in properties",
                )?;
                return Ok(Some(rule));
            }
            rule.min_properties = f.object.min.min(u32::MAX as u64) as u32;
        }
        Ok(Some(rule))
    }

    /// Whether a count of properties alone says that another name is left: not where declared names can be passed over.
    fn counts(&self, rule: &ObjectRule, required: u64) -> bool {
        let possible = rule.properties.iter().filter(|p| p.value.is_some()).count() as u64;
        rule.order == PropertyOrder::Any || possible == required
    }

    /// The names that get a place of their own, in order, and whether there are no others.
    pub(super) fn declared_names(&mut self, f: &Flat<'a>) -> Result<(Vec<&'a str>, bool)> {
        let o = &f.object;
        let plain = o.properties.is_empty() && o.forbidden.is_empty() && o.names.is_empty() && o.some_names.is_empty();
        if let ([part], true) = (&o.parts[..], plain) {
            if let Some(map) = part.properties.filter(|_| part.patterns.is_none() || !self.names_matter(f)) {
                if o.required.iter().all(|n| map.contains_key(*n)) {
                    return Ok((map.keys().map(String::as_str).collect(), false));
                }
            }
        }
        let mut seen: FxHashSet<&'a str> = FxHashSet::default();
        let mut names = vec![];
        let mut add = |n: &'a str| {
            if seen.insert(n) {
                names.push(n);
            }
        };
        for part in &o.parts {
            part.properties.into_iter().flat_map(|m| m.keys()).for_each(|n| add(n));
        }
        o.properties.iter().for_each(|(n, _)| add(n));
        o.required.iter().chain(&o.forbidden).for_each(|n| add(n));
        // Names that do not count where another one must exist.
        for what in &o.some_names {
            match *what {
                Existence::Beyond(names, _) => names.keys().for_each(|n| add(n)),
                Existence::Keyword(loc, Kw::AdditionalProperties) => {
                    let named = self.docs.get(loc, Kw::Properties).and_then(Value::as_object);
                    named.into_iter().flat_map(|m| m.keys()).for_each(|n| add(n));
                }
                Existence::Keyword(loc, Kw::PropertyNames) => {
                    let Some(v) = self.docs.get(loc, Kw::PropertyNames) else { continue };
                    let child = self.docs.child(loc, v, Step::Key(Kw::PropertyNames.text()));
                    for side in [Atom::is(child), Atom::isnt(child)] {
                        self.listed_names(&[side])?.0.into_iter().for_each(&mut add);
                    }
                }
                Existence::Keyword(..) => {}
            }
        }
        // Names out of a finite list are declared too.
        let (listed, closed) = self.listed_names(&f.object.names)?;
        listed.into_iter().for_each(&mut add);
        let few = if self.names_matter(f) { self.few_names(f)? } else { None };
        let closed = closed || few.is_some();
        few.into_iter().flatten().for_each(add);
        Ok((names, closed))
    }

    /// Whether it matters how many undeclared names there are.
    fn names_matter(&self, f: &Flat<'a>) -> bool {
        !f.object.some_names.is_empty() || f.object.min > 1
    }

    /// The names that are not declared, where a schema allows only names that match its patterns, and few do.
    fn few_names(&mut self, f: &Flat<'a>) -> Result<Option<Vec<&'a str>>> {
        for part in f.object.parts.iter().filter(|p| p.additional == Some(&Value::Bool(false))) {
            let Some(patterns) = part.patterns.filter(|p| !p.is_empty()) else { continue };
            let mut names = vec![];
            for pattern in patterns.keys() {
                let spec = Strings {
                    patterns: SmallVec::from_slice(&[(pattern.as_str(), true)]),
                    at: part.loc,
                    ..Strings::default()
                };
                let Some(texts) = self.string_list(&spec, MOST_LISTED)? else { break };
                names.push(texts);
            }
            if names.len() == patterns.len() {
                return Ok(Some(names.into_iter().flatten().collect()));
            }
        }
        Ok(None)
    }

    /// The names that `propertyNames` lists, and whether it allows no others.
    fn listed_names(&mut self, names: &[Atom]) -> Result<(Vec<&'a str>, bool)> {
        let mut listed = vec![];
        if names.is_empty() {
            return Ok((listed, false));
        }
        let flat = self.flatten(names, Types::STRING)?;
        let list = match flat.values.is_some() || flat.choices.is_empty() {
            true => Some(vec![flat]),
            false => self.alternatives(flat, MOST_NAME_CHOICES, super::alternatives::LOOK)?,
        };
        let Some(list) = list else { return Ok((listed, false)) };
        let mut closed = true;
        for f in list.iter().filter(|f| !f.is_dead()) {
            match &f.values {
                Some(values) => listed.extend(values.iter().filter_map(|v| v.as_str())),
                None => closed = false,
            }
        }
        Ok((listed, closed))
    }

    fn name_allowed(&mut self, f: &Flat<'a>, name: &str) -> Result<bool> {
        if f.object.names.is_empty() {
            return Ok(true);
        }
        let v = Value::String(name.to_owned());
        for a in f.object.names.clone() {
            if self.holds(a.loc(), &v, 64)? == a.negated() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
