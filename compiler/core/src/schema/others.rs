//! Undeclared names of objects: told apart by the patterns that match them and by what must exist, and what they may hold.

use rustc_hash::FxHashMap;
use serde_json::Value;
use smallvec::{smallvec, SmallVec};

use super::documents::{LocId, Step};
use super::flat::*;
use super::keyword::Kw;
use super::object::{room, MOST_NAME_CHOICES};
use super::Compiler;
use crate::error::Result;
use crate::ir::{Expr, OtherProperties};

/// A class of undeclared names: the patterns that match, and those that do not.
type NameClass<'a> = SmallVec<[(&'a str, bool); 2]>;

/// Values of one class of names that are told apart.
const VALUES: usize = 64;
/// Names that are counted; more are as good as any number.
const MOST_NAMES: u64 = 1 << 16;

/// Undeclared names.
#[derive(Default)]
pub(super) struct OtherNames {
    pub list: Vec<OtherProperties>,
    /// What must exist depends on values: a name that is written twice would count with both of them.
    pub distinct: bool,
    /// They never run out, as far as anybody asked.
    pub endless: bool,
    /// How many there are, where they run out and that matters.
    pub number: Option<u64>,
}

/// The needs that the names of a class meet.
#[derive(Default)]
struct ClassNeeds {
    /// With whatever value, as bits.
    by_name: u32,
    /// With a value that one of these schemas does not allow.
    by_value: SmallVec<[(u32, SmallVec<[LocId; 1]>); 1]>,
}

impl<'a> Compiler<'a> {
    /// What undeclared names may be and hold: names are told apart by the patterns that match them, and by whether they
    /// are what must exist. `None`: what must exist cannot.
    pub(super) fn other_names(&mut self, f: &Flat<'a>) -> Result<Option<OtherNames>> {
        let o = &f.object;
        if let (Some(what), Some(2..)) = (o.some_names.first(), room(f)) {
            let (Existence::Keyword(loc, kw) | Existence::Beyond(_, (loc, kw))) = *what;
            self.unsupported(
                loc,
                kw,
                "its negation is needed where maxProperties leaves no certain room for another property",
                "Leave out maxProperties, or tell the alternatives apart by a required property",
            )?;
            let mut g = f.clone();
            g.object.some_names.clear();
            return self.other_names(&g);
        }
        let variants = self.name_variants(f)?;
        let mut patterns: Vec<&'a str> = vec![];
        let mut add = |m: &'a serde_json::Map<String, Value>| {
            for p in m.keys() {
                if !patterns.contains(&p.as_str()) {
                    patterns.push(p);
                }
            }
        };
        o.parts.iter().filter_map(|p| p.patterns).for_each(&mut add);
        for what in &o.some_names {
            if let Existence::Keyword(loc, Kw::AdditionalProperties | Kw::PatternProperties) = *what {
                self.docs.get(loc, Kw::PatternProperties).and_then(Value::as_object).into_iter().for_each(&mut add);
            }
        }
        let mut classes: Vec<NameClass<'a>> = vec![smallvec![]];
        for p in patterns {
            let mut next = vec![];
            for class in classes {
                for matching in [true, false] {
                    let mut c = class.clone();
                    c.push((p, matching));
                    if !self.no_names(f, &c)? {
                        next.push(c);
                    }
                }
            }
            if next.len() > 64 {
                let loc = o.parts.first().map_or(0, |p| p.loc);
                self.unsupported(loc, Kw::PatternProperties, "so many overlapping patterns", "Use fewer patterns")?;
                return Ok(Some(OtherNames::default()));
            }
            classes = next;
        }
        // Classes with the same values are one.
        type Group<'a> = (Vec<Conj>, u32, Vec<NameClass<'a>>);
        let mut groups: Vec<Group<'a>> = vec![];
        let mut distinct = false;
        let mut of: FxHashMap<(Vec<Conj>, u32), usize> = FxHashMap::default();
        let all = classes.len();
        for class in classes {
            let needs = self.class_needs(f, &class)?;
            distinct |= !needs.by_value.is_empty();
            for (values, marks) in self.class_values(f, &class, needs)? {
                match of.get(&(values.clone(), marks)) {
                    Some(i) => groups[*i].2.push(class.clone()),
                    None => {
                        of.insert((values.clone(), marks), groups.len());
                        groups.push((values, marks, vec![class.clone()]));
                    }
                }
            }
        }
        let whole = groups.len() == 1 && groups[0].2.len() == all;
        let mut out = vec![];
        // Needs that can be met whatever has been written: by names without end, or, where a name says by itself what it
        // meets, by any that has no place of its own.
        let mut certain = 0u32;
        let mut enough = false;
        let declared = if o.some_names.is_empty() { vec![] } else { self.declared_names(f)?.0 };
        let mut all_specs: Vec<Strings<'a>> = vec![];
        for (values, by_class, classes) in groups {
            let mut ways = vec![];
            for conj in values {
                ways.extend(self.inner(conj)?);
            }
            let value = match ways.len() {
                0 => continue,
                1 => ways.remove(0),
                _ => Expr::Alt(ways),
            };
            let classes = if whole { vec![smallvec![]] } else { classes };
            for (specs, by_name) in &variants {
                let marks = by_class | by_name;
                if let ([class], [spec]) = (&classes[..], &specs[..]) {
                    if class.is_empty() && *spec == Strings::default() {
                        certain |= marks;
                        enough = true;
                        out.push(OtherProperties { keys: None, value: value.clone(), marks });
                        continue;
                    }
                }
                let mut keys = vec![];
                for class in &classes {
                    for spec in specs {
                        let mut spec = spec.clone();
                        spec.patterns.extend(class.iter().copied());
                        if let Some(part) = o.parts.iter().find(|p| p.patterns.is_some()) {
                            spec.at = part.loc;
                        }
                        let open = marks & !certain != 0;
                        if (open || o.min > 1 && !enough) && self.string_endless(&spec)? {
                            certain |= marks;
                            enough = true;
                        } else if open && !distinct && self.has_others(&spec, &declared)? {
                            certain |= marks;
                        }
                        keys.extend(self.key_expr(&spec)?);
                        if o.min > 1 && !enough {
                            all_specs.push(spec);
                        }
                    }
                }
                let keys = match keys.len() {
                    0 => continue,
                    1 => keys.pop(),
                    _ => Some(Expr::Alt(keys)),
                };
                out.push(OtherProperties { keys, value: value.clone(), marks });
            }
        }
        let met = out.iter().fold(0, |bits, o| bits | o.marks);
        for (i, what) in o.some_names.iter().enumerate() {
            if met >> i & 1 == 0 {
                return Ok(None);
            }
            if certain >> i & 1 == 0 && o.max.is_none() {
                // The names might all have a place of their own, or be used up.
                let (Existence::Keyword(loc, kw) | Existence::Beyond(_, (loc, kw))) = *what;
                self.unsupported(
                    loc,
                    kw,
                    "its negation is needed, and only a few names can meet it",
                    "Declare these names in properties",
                )?;
                out.iter_mut().for_each(|o| o.marks &= !(1 << i));
            }
        }
        let mut number = None;
        if o.min > 1 && !enough && o.some_names.is_empty() && !out.is_empty() {
            let (declared, _) = self.declared_names(f)?;
            let all = self.count_union(&all_specs, &declared, MOST_NAMES)?;
            number = all.map(|n| n.saturating_sub(declared.len() as u64));
        }
        Ok(Some(OtherNames { list: out, distinct, endless: enough, number }))
    }

    /// Whether a name besides these certainly satisfies a constraint.
    fn has_others(&mut self, spec: &Strings<'a>, declared: &[&'a str]) -> Result<bool> {
        let mut spec = spec.clone();
        spec.except.extend(declared);
        Ok(self.count_union(&[spec], &[], 1)? == Some(1))
    }

    /// The undeclared names by what `propertyNames` says of them: constraints, and the needs that such a name meets.
    fn name_variants(&mut self, f: &Flat<'a>) -> Result<Vec<(Vec<Strings<'a>>, u32)>> {
        let o = &f.object;
        let mut wanted: Vec<(usize, LocId)> = vec![];
        for (i, what) in o.some_names.iter().enumerate() {
            if let Existence::Keyword(loc, Kw::PropertyNames) = *what {
                if let Some(v) = self.docs.get(loc, Kw::PropertyNames) {
                    wanted.push((i, self.docs.child(loc, v, Step::Key(Kw::PropertyNames.text()))));
                }
            }
        }
        if wanted.len() > 3 {
            let loc = wanted[0].1;
            self.unsupported(loc, Kw::PropertyNames, "so many of them are negated at once", "Negate fewer")?;
            wanted.truncate(3);
        }
        let mut variants = vec![];
        for choice in 0..1u32 << wanted.len() {
            let mut conj: Conj = o.names.iter().copied().collect();
            let mut marks = 0;
            for (k, (i, loc)) in wanted.iter().enumerate() {
                let fails = choice >> k & 1 == 1;
                conj.push(Atom::new(*loc, fails));
                marks |= u32::from(fails) << i;
            }
            if conj.is_empty() {
                variants.push((vec![Strings::default()], marks));
                continue;
            }
            let flat = self.flatten(&conj, Types::STRING)?;
            if flat.is_dead() {
                continue;
            }
            let specs: Vec<Strings<'a>> = match self.alternatives(flat, MOST_NAME_CHOICES, super::alternatives::LOOK)? {
                // What is listed has a place of its own.
                Some(list) => list.into_iter().filter(|f| f.values.is_none()).map(|f| f.string.own()).collect(),
                None => {
                    let loc = conj[0].loc();
                    self.unsupported(loc, Kw::PropertyNames, "so many alternatives", "Use a pattern")?;
                    vec![Strings::default()]
                }
            };
            variants.push((specs, marks));
        }
        Ok(variants)
    }

    /// The needs that the names of a class meet, whatever `propertyNames` says.
    fn class_needs(&mut self, f: &Flat<'a>, class: &NameClass<'a>) -> Result<ClassNeeds> {
        let matches = |p: &str| class.iter().any(|(q, m)| *m && *q == p);
        let mut needs = ClassNeeds::default();
        for (i, what) in f.object.some_names.clone().into_iter().enumerate() {
            let (loc, kw) = match what {
                Existence::Beyond(..) => {
                    needs.by_name |= 1 << i;
                    continue;
                }
                Existence::Keyword(loc, kw) => (loc, kw),
            };
            let patterns = self.docs.get(loc, Kw::PatternProperties).and_then(Value::as_object);
            let matching = patterns.into_iter().flatten().filter(|(p, _)| matches(p));
            let schemas: SmallVec<[LocId; 1]> = match (kw, self.docs.get(loc, kw)) {
                (Kw::AdditionalProperties, Some(v)) if matching.clone().next().is_none() => {
                    smallvec![self.docs.child(loc, v, Step::Key(kw.text()))]
                }
                (Kw::PatternProperties, _) => {
                    matching.map(|(p, s)| self.docs.child(loc, s, Step::In(kw.text(), p))).collect()
                }
                _ => smallvec![],
            };
            let mut open = SmallVec::new();
            for s in schemas {
                if self.provably_empty(&[Atom::is(s)], 2)? {
                    needs.by_name |= 1 << i;
                } else if !self.is_trivial(s) {
                    open.push(s);
                }
            }
            if needs.by_name >> i & 1 == 0 && !open.is_empty() {
                needs.by_value.push((i as u32, open));
            }
        }
        Ok(needs)
    }

    /// What a name of a class may hold, by the needs that are met with it.
    fn class_values(
        &mut self,
        f: &Flat<'a>,
        class: &NameClass<'a>,
        needs: ClassNeeds,
    ) -> Result<Vec<(Vec<Conj>, u32)>> {
        let mut atoms = self.class_atoms(f, class)?;
        let mut out = vec![];
        if !self.normalize(&mut atoms)? {
            return Ok(out);
        }
        let mut values = vec![(atoms, needs.by_name)];
        for (bit, schemas) in needs.by_value {
            let mut next = vec![];
            for (conj, marks) in values {
                // The first schema that fails, or none.
                let mut holding = conj;
                for s in &schemas {
                    let mut failing = holding.clone();
                    failing.push(Atom::isnt(*s));
                    next.push((failing, marks | 1 << bit));
                    holding.push(Atom::is(*s));
                }
                next.push((holding, marks));
            }
            if next.len() > VALUES {
                let loc = schemas[0];
                self.unsupported(loc, Kw::PatternProperties, "so many schemas are negated at once", "Negate fewer")?;
                next.truncate(VALUES);
            }
            values = next;
        }
        let split = values.len() > 1;
        for (mut conj, marks) in values {
            if split && (!self.normalize(&mut conj)? || self.provably_empty(&conj, 2)?) {
                continue;
            }
            match out.iter_mut().find(|(_, m): &&mut (Vec<Conj>, u32)| *m == marks) {
                Some((list, _)) => list.push(conj),
                None => out.push((vec![conj], marks)),
            }
        }
        Ok(out)
    }

    /// Whether no name is in a class.
    fn no_names(&mut self, f: &Flat<'a>, class: &NameClass<'a>) -> Result<bool> {
        if class.len() < 2 {
            return Ok(false);
        }
        let at = f.object.parts.iter().find(|p| p.patterns.is_some()).map_or(0, |p| p.loc);
        let spec = Strings { patterns: class.iter().copied().collect(), at, ..Strings::default() };
        self.string_empty(&spec)
    }

    fn class_atoms(&mut self, f: &Flat<'a>, class: &NameClass<'a>) -> Result<Conj> {
        let mut atoms = Conj::new();
        let o = &f.object;
        let matches = |p: &str| class.iter().any(|(q, m)| *m && *q == p);
        for part in &o.parts {
            self.by_pattern(part, false, |_, p| Ok(matches(p)), &mut atoms)?;
        }
        for (node, schema) in &o.unevaluated {
            let evaluated =
                o.parts.iter().filter(|p| f.under(p.node, *node)).any(|p| {
                    p.additional.is_some() || p.patterns.into_iter().flat_map(|m| m.keys()).any(|p| matches(p))
                });
            if !evaluated && !self.evaluated_inside(f, *node) {
                atoms.push(Atom::is(*schema));
            }
        }
        Ok(atoms)
    }
}
