//! Negation, pushed inward: what it means that a schema, or one of its keywords, does not hold.

use rustc_hash::FxHashSet;
use serde_json::Value;
use smallvec::smallvec;

use super::documents::{LocId, Step};
use super::flat::*;
use super::gather::Work;
use super::keyword::Kw;
use super::{formats, Compiler};
use crate::error::Result;

impl<'a> Compiler<'a> {
    /// A schema that the instance must not satisfy: one of its keywords fails.
    pub(super) fn denied(&mut self, flat: &mut Flat<'a>, work: &mut Work<'a>, loc: LocId, node: u32) -> Result<()> {
        match self.docs.value(loc) {
            Value::Bool(true) => {
                flat.kill();
                return Ok(());
            }
            Value::Bool(false) => return Ok(()),
            Value::Object(_) => {}
            _ => return Err(self.invalid(loc, "a schema is an object or a boolean")),
        }
        if flat.denied.contains(&loc) {
            return Ok(());
        }
        flat.denied.push(loc);
        if flat.nodes.iter().any(|n| n.loc == loc) {
            flat.kill();
            return Ok(());
        }
        let range = self.docs.open(loc);
        let mut options: Vec<Lits<'a>> = vec![];
        for i in range {
            let (kw, _) = self.docs.keyword(i);
            // These belong to others.
            let part = matches!(kw, Kw::Then | Kw::Else | Kw::MinContains | Kw::MaxContains)
                || kw == Kw::Required && self.docs.get(loc, Kw::Properties).is_some();
            if part || !flat.types.has(Types::on(kw.on())) {
                continue;
            }
            options.push(smallvec![Lit::Fails(loc, kw)]);
        }
        self.some(flat, work, node, (loc, Kw::Not), options);
        Ok(())
    }

    /// At least one of the options.
    fn some(
        &mut self,
        flat: &mut Flat<'a>,
        work: &mut Work<'a>,
        node: u32,
        (loc, kw): (LocId, Kw),
        mut options: Vec<Lits<'a>>,
    ) {
        match options.len() {
            0 => flat.kill(),
            1 => {
                let only = options.remove(0);
                work.extend(only.into_iter().rev().map(|l| (l, node, false)));
            }
            _ => self.choice(flat, node, loc, if kw == Kw::OneOf { Kw::Not } else { kw }, options),
        }
    }

    /// One keyword that must not hold.
    pub(super) fn fails(
        &mut self,
        flat: &mut Flat<'a>,
        work: &mut Work<'a>,
        loc: LocId,
        kw: Kw,
        node: u32,
    ) -> Result<()> {
        let Some(v) = self.docs.get(loc, kw) else {
            flat.kill();
            return Ok(());
        };
        flat.restrict(Types::on(kw.on()));
        if flat.types.is_empty() {
            return Ok(());
        }
        let at = (loc, kw);
        match kw {
            Kw::Type => flat.restrict(self.types(loc, v)?.not()),
            Kw::Enum => {
                let list = self.list(loc, kw, v)?;
                self.exclude(flat, loc, kw, list);
            }
            Kw::Const => self.exclude(flat, loc, kw, std::slice::from_ref(v)),
            Kw::Ref | Kw::DynamicRef | Kw::RecursiveRef => {
                let target = self.reference(loc, kw, v)?;
                work.push((Lit::Atom(Atom::isnt(target)), node, false));
            }
            Kw::Not => {
                let child = self.docs.child(loc, v, Step::Key(kw.text()));
                work.push((Lit::Atom(Atom::is(child)), node, false));
            }
            Kw::AllOf | Kw::AnyOf | Kw::OneOf => {
                let list = self.list(loc, kw, v)?;
                let child: Vec<LocId> =
                    list.iter().enumerate().map(|(i, s)| self.docs.child(loc, s, Step::Nth(kw.text(), i))).collect();
                let no = |c: &LocId| Lit::Atom(Atom::isnt(*c));
                match kw {
                    Kw::AllOf => {
                        let options = child.iter().map(|c| smallvec![no(c)]).collect();
                        self.some(flat, work, node, at, options);
                    }
                    Kw::AnyOf => work.extend(child.iter().rev().map(|c| (no(c), node, false))),
                    _ => {
                        if child.len() > 24 {
                            return self.unsupported(
                                loc,
                                kw,
                                "the negation of more than 24 alternatives",
                                "Rewrite the schema without negating it",
                            );
                        }
                        let mut options: Vec<Lits<'a>> = vec![child.iter().map(no).collect()];
                        for (i, a) in child.iter().enumerate() {
                            for b in &child[i + 1..] {
                                options.push(smallvec![Lit::Atom(Atom::is(*a)), Lit::Atom(Atom::is(*b))]);
                            }
                        }
                        self.some(flat, work, node, at, options);
                    }
                }
            }
            Kw::If => {
                let test = self.docs.child(loc, v, Step::Key(kw.text()));
                let mut options: Vec<Lits<'a>> = vec![];
                for (branch, test) in [(Kw::Then, Atom::is(test)), (Kw::Else, Atom::isnt(test))] {
                    if let Some(v) = self.docs.get(loc, branch) {
                        let b = self.docs.child(loc, v, Step::Key(branch.text()));
                        options.push(smallvec![Lit::Atom(test), Lit::Atom(Atom::isnt(b))]);
                    }
                }
                self.some(flat, work, node, at, options);
            }
            Kw::Properties => {
                // Together with `required`: that a property is there and valid fails in one way, not in two, if it must not
                // be valid where it is there. Alternatives of `oneOf` multiply these ways.
                let required = self.required_names(loc)?;
                let needed: FxHashSet<&str> = required.iter().copied().collect();
                let mut told: FxHashSet<&str> = FxHashSet::default();
                let mut options: Vec<Lits<'a>> = vec![];
                for (name, schema) in self.map(loc, kw, v)? {
                    let child = self.docs.child(loc, schema, Step::In(kw.text(), name));
                    if self.is_trivial(child) {
                        continue;
                    }
                    let invalid = Lit::Property(name, Atom::isnt(child));
                    if needed.contains(name.as_str()) {
                        told.insert(name);
                        options.push(smallvec![invalid]);
                    } else {
                        options.push(smallvec![Lit::Require(name), invalid]);
                    }
                }
                let rest = required.into_iter().filter(|name| !told.contains(name));
                options.extend(rest.map(|name| smallvec![Lit::Forbid(name)]));
                self.some(flat, work, node, at, options);
            }
            Kw::Required => {
                let names = self.required_names(loc)?;
                let options = names.into_iter().map(|name| smallvec![Lit::Forbid(name)]).collect();
                self.some(flat, work, node, at, options);
            }
            Kw::DependentRequired | Kw::DependentSchemas | Kw::Dependencies => {
                let mut options: Vec<Lits<'a>> = vec![];
                for (key, what) in self.map(loc, kw, v)? {
                    match what {
                        Value::Array(names) if kw != Kw::DependentSchemas => {
                            for n in names {
                                options.push(smallvec![Lit::Require(key), Lit::Forbid(self.text(loc, kw, n)?)]);
                            }
                        }
                        Value::String(name) if kw == Kw::Dependencies => {
                            options.push(smallvec![Lit::Require(key), Lit::Forbid(name)]);
                        }
                        schema if kw != Kw::DependentRequired => {
                            let child = self.docs.child(loc, schema, Step::In(kw.text(), key));
                            options.push(smallvec![Lit::Require(key), Lit::Atom(Atom::isnt(child))]);
                        }
                        _ => return Err(self.invalid_kw(loc, kw, "a list of names belongs here")),
                    }
                }
                self.some(flat, work, node, at, options);
            }
            Kw::AdditionalProperties | Kw::PatternProperties | Kw::PropertyNames => {
                let trivial = match kw {
                    Kw::PatternProperties => self.map(loc, kw, v)?.is_empty(),
                    _ => {
                        let child = self.docs.child(loc, v, Step::Key(kw.text()));
                        self.is_trivial(child)
                    }
                };
                if trivial {
                    flat.kill();
                } else {
                    work.push((Lit::SomeProperty(loc, kw), node, false));
                }
            }
            Kw::MinProperties | Kw::MinItems | Kw::MinLength => match self.count(loc, kw, v)? {
                0 => flat.kill(),
                n if kw == Kw::MinProperties => flat.property_count(None, Some(n - 1)),
                n if kw == Kw::MinItems => flat.item_count(None, Some(n - 1)),
                n => flat.length(None, Some(n - 1)),
            },
            Kw::MaxProperties => flat.property_count(Some(self.count(loc, kw, v)?.saturating_add(1)), None),
            Kw::MaxItems => flat.item_count(Some(self.count(loc, kw, v)?.saturating_add(1)), None),
            Kw::MaxLength => flat.length(Some(self.count(loc, kw, v)?.saturating_add(1)), None),
            Kw::Items | Kw::PrefixItems => match v {
                Value::Array(list) => {
                    let mut options: Vec<Lits<'a>> = vec![];
                    for (i, s) in list.iter().enumerate() {
                        let child = self.docs.child(loc, s, Step::Nth(kw.text(), i));
                        if !self.is_trivial(child) {
                            options.push(smallvec![Lit::MinItems(i as u64 + 1), Lit::Item(i, Atom::isnt(child))]);
                        }
                    }
                    self.some(flat, work, node, at, options);
                }
                v => {
                    let from = self.docs.get(loc, Kw::PrefixItems).and_then(Value::as_array).map_or(0, Vec::len);
                    let child = self.docs.child(loc, v, Step::Key(kw.text()));
                    self.some_item(flat, work, node, from, child);
                }
            },
            Kw::AdditionalItems => match self.docs.get(loc, Kw::Items) {
                Some(Value::Array(list)) => {
                    let child = self.docs.child(loc, v, Step::Key(kw.text()));
                    self.some_item(flat, work, node, list.len(), child);
                }
                _ => flat.kill(),
            },
            Kw::Contains => {
                let child = self.docs.child(loc, v, Step::Key(kw.text()));
                let of = |c: &mut Self, k: Kw| match c.docs.get(loc, k) {
                    Some(v) => c.count(loc, k, v).map(Some),
                    None => Ok(None),
                };
                let (min, max) = (of(self, Kw::MinContains)?.unwrap_or(1), of(self, Kw::MaxContains)?);
                let mut options: Vec<Lits<'a>> = vec![];
                if min > 0 {
                    options.push(smallvec![Lit::Count(child, 0, Some(min - 1))]);
                }
                if let Some(max) = max {
                    options.push(smallvec![Lit::Count(child, max.saturating_add(1), None)]);
                }
                self.some(flat, work, node, at, options);
            }
            Kw::UniqueItems => {
                if v == &Value::Bool(true) {
                    // Equal items need two of them.
                    if flat.array.max.is_some_and(|m| m < 2) {
                        flat.kill();
                    } else {
                        self.cannot_negate(loc, kw)?;
                    }
                } else {
                    flat.kill();
                }
            }
            Kw::Pattern => {
                flat.string.patterns.push((self.text(loc, kw, v)?, false));
                flat.string.at = loc;
                flat.edits += 1;
            }
            Kw::Format => {
                let name = self.text(loc, kw, v)?;
                if let Some((low, high, whole)) = super::numbers::format_bounds(name) {
                    let mut sides = vec![Lit::Outside(low, Side::Below), Lit::Outside(high, Side::Above)];
                    if whole {
                        sides.push(Lit::Outside(low, Side::Fraction));
                    }
                    self.some(flat, work, node, at, sides.into_iter().map(|side| smallvec![side]).collect());
                } else if formats::is_partial(name) {
                    flat.restrict(Types::STRING);
                    if !flat.types.is_empty() {
                        self.unsupported(
                            loc,
                            kw,
                            "strings without this format are asked for, which cannot be told: it is taken more narrowly than it is",
                            "Say by a pattern which strings are wanted",
                        )?;
                    }
                } else if self.known_format(name) {
                    flat.restrict(Types::STRING);
                    flat.string.formats.push((name, false));
                    flat.string.at = loc;
                    flat.edits += 1;
                } else {
                    flat.kill();
                }
            }
            Kw::Minimum | Kw::Maximum | Kw::ExclusiveMinimum | Kw::ExclusiveMaximum => match self.limit(loc, kw, v)? {
                Some((value, exclusive, upper)) => flat.bound(value, !exclusive, !upper),
                None => flat.kill(),
            },
            Kw::MultipleOf => {
                if self.number(loc, kw, v)?.to_u64() == Some(1) {
                    flat.restrict(Types::FRACTION);
                } else if let Value::Number(n) = v {
                    flat.number.not_multiples.push(n.as_str());
                    flat.edits += 1;
                }
            }
            Kw::UnevaluatedItems | Kw::UnevaluatedProperties | Kw::ContentEncoding | Kw::ContentMediaType => {
                self.cannot_negate(loc, kw)?;
            }
            Kw::Then | Kw::Else | Kw::MinContains | Kw::MaxContains => flat.kill(),
        }
        Ok(())
    }

    /// The names that a location requires.
    fn required_names(&mut self, loc: LocId) -> Result<Vec<&'a str>> {
        match self.docs.get(loc, Kw::Required) {
            None | Some(Value::Bool(_)) => Ok(vec![]),
            Some(v) => self.list(loc, Kw::Required, v)?.iter().map(|n| self.text(loc, Kw::Required, n)).collect(),
        }
    }

    fn some_item(&mut self, flat: &mut Flat<'a>, work: &mut Work<'a>, node: u32, from: usize, child: LocId) {
        if self.is_trivial(child) {
            flat.kill();
        } else {
            work.push((Lit::SomeItem(from, Atom::isnt(child)), node, false));
        }
    }

    fn cannot_negate(&mut self, loc: LocId, kw: Kw) -> Result<()> {
        self.unsupported(
            loc,
            kw,
            "it stands where its negation is needed (not, if, or alternatives of oneOf that overlap), which is not regular",
            "Make the alternatives exclude each other by type, by a constant or by a required property",
        )
    }

    /// Values that must not occur.
    fn exclude(&mut self, flat: &mut Flat<'a>, loc: LocId, kw: Kw, list: &'a [Value]) {
        for v in list {
            let types = Types::of(v);
            if !flat.types.has(types) {
                continue;
            }
            match v {
                Value::Null | Value::Bool(_) => flat.restrict(types.not()),
                Value::Number(n) => {
                    if let Some(d) = super::decimal::Decimal::parse(n.as_str()) {
                        flat.number.except.push(d);
                        flat.edits += 1;
                    }
                }
                Value::String(s) => {
                    flat.string.except.push(s);
                    flat.string.at = loc;
                    flat.edits += 1;
                }
                Value::Array(a) if a.is_empty() => flat.item_count(Some(1), None),
                Value::Object(o) if o.is_empty() => flat.property_count(Some(1), None),
                Value::Array(list) => {
                    let n = list.len() as u64;
                    let mut options: Vec<Lits<'a>> = vec![smallvec![Lit::MaxItems(n - 1)]];
                    for (i, item) in list.iter().enumerate() {
                        let other = Atom::isnt(self.docs.constant(loc, item));
                        options.push(smallvec![Lit::MinItems(i as u64 + 1), Lit::Item(i, other)]);
                    }
                    options.push(smallvec![Lit::MinItems(n + 1)]);
                    self.choice(flat, NO_NODE, loc, kw, options);
                }
                Value::Object(map) => {
                    let mut options: Vec<Lits<'a>> = vec![];
                    for (name, value) in map {
                        let other = Atom::isnt(self.docs.constant(loc, value));
                        options.push(smallvec![Lit::Forbid(name)]);
                        options.push(smallvec![Lit::Require(name), Lit::Property(name, other)]);
                    }
                    options.push(smallvec![Lit::Beyond(map, (loc, kw))]);
                    self.choice(flat, NO_NODE, loc, kw, options);
                }
            }
        }
    }
}
