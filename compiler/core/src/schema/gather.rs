//! From literals to flat constraints: keywords are read, references followed, and choices set aside.
//!
//! Everything that is applied in place is walked with an explicit stack, so nesting costs no call stack. While a type
//! is already ruled out, keywords about it are skipped: nothing is ever noted about types that cannot occur.

use std::rc::Rc;

use serde_json::Value;
use smallvec::{smallvec, SmallVec};

use super::decimal::Decimal;
use super::documents::{LocId, Step};
use super::flat::*;
use super::keyword::{Draft, Kw};
use super::Compiler;
use crate::error::{CompileError, Result};

/// A literal still to be read, the node that it belongs to, and whether an alternative lies between.
pub(super) type Work<'a> = SmallVec<[(Lit<'a>, u32, bool); 8]>;

impl<'a> Compiler<'a> {
    /// The flat constraints of a conjunction.
    pub(super) fn flatten(&mut self, conj: &[Atom], types: Types) -> Result<Flat<'a>> {
        let mut flat = Flat::new();
        flat.types = types;
        for a in conj {
            self.assume(&mut flat, &[Lit::Atom(*a)], NO_NODE, false)?;
        }
        Ok(flat)
    }

    /// Add literals to what is known.
    pub(super) fn assume(&mut self, flat: &mut Flat<'a>, lits: &[Lit<'a>], node: u32, option: bool) -> Result<()> {
        flat.lits.extend(lits.iter().copied());
        let mut work: Work<'a> = lits.iter().rev().map(|l| (*l, node, option)).collect();
        while let Some((lit, node, option)) = work.pop() {
            self.budget.tick()?;
            if flat.types.is_empty() {
                return Ok(());
            }
            // What is denied evaluates nothing: it belongs to no node that collects annotations.
            let inside = if self.track { NO_NODE } else { node };
            match lit {
                Lit::Atom(a) if a.negated() => self.denied(flat, &mut work, a.loc(), inside)?,
                Lit::Atom(a) => self.applied(flat, &mut work, a.loc(), node, option)?,
                Lit::Fails(loc, kw) => self.fails(flat, &mut work, loc, kw, inside)?,
                Lit::MinItems(n) => flat.item_count(Some(n), None),
                Lit::MaxItems(n) => flat.item_count(None, Some(n)),
                Lit::Outside(_, Side::Fraction) => flat.restrict(Types::FRACTION),
                Lit::Outside(bound, side) => {
                    flat.restrict(Types::NUMBER);
                    if let Some(bound) = Decimal::parse(bound) {
                        flat.bound(bound, true, side == Side::Below);
                    }
                }
                Lit::Require(_)
                | Lit::Forbid(_)
                | Lit::Property(..)
                | Lit::SomeProperty(..)
                | Lit::Beyond(..)
                | Lit::SomeName(_)
                    if !flat.types.has(Types::OBJECT) => {}
                Lit::Require(name) => flat.require(name),
                Lit::Forbid(name) => flat.forbid(name),
                Lit::Property(name, atom) => {
                    flat.object.properties.push((name, atom));
                    flat.edits += 1;
                }
                Lit::SomeProperty(loc, kw) => {
                    flat.object.some.push(Existence::Keyword(loc, kw));
                    flat.edits += 1;
                }
                Lit::Beyond(names, at) => {
                    flat.object.some.push(Existence::Beyond(names, at));
                    flat.edits += 1;
                }
                Lit::SomeName(what) => {
                    flat.property_count(Some(1), None);
                    flat.object.some_names.push(what);
                    flat.edits += 1;
                }
                Lit::Item(i, atom) => {
                    flat.array.items.push((i, atom));
                    flat.edits += 1;
                }
                Lit::SomeItem(from, atom) => {
                    flat.item_count(Some(from as u64 + 1), None);
                    flat.array.contains.push(Contains {
                        atom,
                        node: NO_NODE,
                        from,
                        min: 1,
                        max: None,
                        evaluates: false,
                    });
                    flat.edits += 1;
                }
                Lit::Count(loc, min, max) => {
                    let atom = Atom::is(loc);
                    flat.array.contains.push(Contains { atom, node: NO_NODE, from: 0, min, max, evaluates: false });
                    flat.edits += 1;
                }
            }
        }
        Ok(())
    }

    /// A schema that the instance must satisfy.
    fn applied(
        &mut self,
        flat: &mut Flat<'a>,
        work: &mut Work<'a>,
        loc: LocId,
        parent: u32,
        option: bool,
    ) -> Result<()> {
        match self.docs.value(loc) {
            Value::Bool(true) => return Ok(()),
            Value::Bool(false) => {
                flat.kill();
                return Ok(());
            }
            Value::Object(_) => {}
            _ => return Err(self.invalid(loc, "a schema is an object or a boolean")),
        }
        let range = self.docs.open(loc);
        if range.is_empty() {
            return Ok(());
        }
        if flat.denied.contains(&loc) {
            flat.kill();
            return Ok(());
        }
        if flat.nodes.iter().any(|n| n.loc == loc) {
            let (mut at, mut optional) = (parent, option);
            while at != NO_NODE {
                let n = flat.nodes[at as usize];
                if n.loc == loc {
                    if optional {
                        // What an alternative allows only if it is allowed already adds nothing.
                        flat.kill();
                        return Ok(());
                    }
                    return Err(self.invalid(loc, "the schema refers to itself without looking at anything first"));
                }
                optional |= n.option;
                at = n.parent;
            }
            if !self.track {
                return Ok(());
            }
            // The same schema applied once more: paths may multiply.
            self.budget.states(flat.nodes.len())?;
        }
        let node = flat.nodes.len() as u32;
        flat.nodes.push(Node { loc, parent, option });
        let mut object = ObjectPart { loc, node, properties: None, patterns: None, additional: None };
        let mut has_object = false;
        let mut array = ArrayPart { loc, node, prefix: None, rest: None };
        let mut has_array = false;
        let start = work.len();
        for i in range {
            let (kw, v) = self.docs.keyword(i);
            if !flat.types.has(Types::on(kw.on())) {
                continue;
            }
            match kw {
                Kw::Properties => {
                    object.properties = Some(self.map(loc, kw, v)?);
                    has_object = true;
                }
                Kw::PatternProperties => {
                    object.patterns = Some(self.map(loc, kw, v)?);
                    has_object = true;
                }
                Kw::AdditionalProperties => {
                    object.additional = Some(v);
                    has_object = true;
                }
                Kw::Items => {
                    match v {
                        Value::Array(list) => {
                            array.prefix = Some((kw.text(), list));
                            if let Some(rest) = self.docs.get(loc, Kw::AdditionalItems) {
                                array.rest = Some((Kw::AdditionalItems.text(), rest));
                            }
                        }
                        v => array.rest = Some((kw.text(), v)),
                    }
                    has_array = true;
                }
                Kw::PrefixItems => {
                    array.prefix = Some((kw.text(), self.list(loc, kw, v)?));
                    has_array = true;
                }
                kw => self.keyword(flat, work, (loc, node), kw, v)?,
            }
        }
        // The stack is read from its end: what was written first comes first.
        work[start..].reverse();
        if has_object && flat.types.has(Types::OBJECT) {
            flat.object.parts.push(object);
            flat.edits += 1;
        }
        if has_array && flat.types.has(Types::ARRAY) {
            flat.array.parts.push(array);
            flat.edits += 1;
        }
        Ok(())
    }

    /// A keyword of an applied schema, other than those about the parts of objects and arrays.
    fn keyword(
        &mut self,
        flat: &mut Flat<'a>,
        work: &mut Work<'a>,
        (loc, node): (LocId, u32),
        kw: Kw,
        v: &'a Value,
    ) -> Result<()> {
        match kw {
            Kw::Type => {
                let types = self.types(loc, v)?;
                flat.restrict(types);
                if types.has(Types::INTEGER) && !types.has(Types::FRACTION) && self.docs.draft(loc) == Draft::D4 {
                    flat.number.plain = true;
                }
            }
            Kw::Enum => {
                let list: Vec<&'a Value> = self.list(loc, kw, v)?.iter().collect();
                self.weigh(list.len())?;
                self.one_of_values(flat, Rc::new(list));
            }
            Kw::Const => self.one_of_values(flat, Rc::new(vec![v])),
            Kw::Ref | Kw::DynamicRef | Kw::RecursiveRef => {
                let target = self.reference(loc, kw, v)?;
                work.push((Lit::Atom(Atom::is(target)), node, false));
            }
            Kw::AllOf => {
                for (i, s) in self.list(loc, kw, v)?.iter().enumerate() {
                    let child = self.docs.child(loc, s, Step::Nth(kw.text(), i));
                    work.push((Lit::Atom(Atom::is(child)), node, false));
                }
            }
            Kw::AnyOf | Kw::OneOf => {
                let list = self.list(loc, kw, v)?;
                let children: Vec<LocId> =
                    list.iter().enumerate().map(|(i, s)| self.docs.child(loc, s, Step::Nth(kw.text(), i))).collect();
                if let (Kw::AnyOf, Some(values)) = (kw, self.listed_values(loc, &children)?) {
                    self.one_of_values(flat, values);
                    return Ok(());
                }
                match children[..] {
                    [] => flat.kill(),
                    [one] => work.push((Lit::Atom(Atom::is(one)), node, false)),
                    _ => {
                        let mut options: Vec<Lits<'a>> =
                            children.iter().map(|c| smallvec![Lit::Atom(Atom::is(*c))]).collect();
                        if self.track && kw == Kw::AnyOf {
                            // What is evaluated depends on every branch that holds, not on one.
                            options = self.subsets(loc, &children)?;
                        }
                        self.choice(flat, node, loc, kw, options);
                    }
                }
            }
            Kw::Not => {
                let child = self.docs.child(loc, v, Step::Key(kw.text()));
                work.push((Lit::Atom(Atom::isnt(child)), node, false));
            }
            Kw::If => {
                let [then, other] = [Kw::Then, Kw::Else].map(|k| {
                    let v = self.docs.get(loc, k);
                    v.map(|v| self.docs.child(loc, v, Step::Key(k.text())))
                });
                if then.is_some() || other.is_some() || self.track {
                    let test = self.docs.child(loc, v, Step::Key(kw.text()));
                    let mut yes: Lits<'a> = smallvec![Lit::Atom(Atom::is(test))];
                    yes.extend(then.map(|l| Lit::Atom(Atom::is(l))));
                    let mut no: Lits<'a> = smallvec![Lit::Atom(Atom::isnt(test))];
                    no.extend(other.map(|l| Lit::Atom(Atom::is(l))));
                    self.choice(flat, node, loc, kw, vec![yes, no]);
                }
            }
            Kw::Required => {
                if v.is_boolean() {
                    // Draft 3 wrote it into the property; no draft since reads it there.
                    self.note(loc, kw, "a boolean here means nothing since draft 4".into());
                    return Ok(());
                }
                for name in self.list(loc, kw, v)? {
                    flat.require(self.text(loc, kw, name)?);
                }
            }
            Kw::DependentRequired | Kw::DependentSchemas | Kw::Dependencies => {
                for (key, what) in self.map(loc, kw, v)? {
                    // Names that several properties ask for make one alternative for all of them: whether the property is
                    // there does not matter then.
                    let mut then: Lits<'a> = smallvec![];
                    match what {
                        Value::Array(names) if kw != Kw::DependentSchemas => {
                            for n in names {
                                then.push(Lit::Require(self.text(loc, kw, n)?));
                            }
                        }
                        Value::String(name) if kw == Kw::Dependencies => then.push(Lit::Require(name)),
                        schema if kw != Kw::DependentRequired => {
                            let child = self.docs.child(loc, schema, Step::In(kw.text(), key));
                            then.extend([Lit::Require(key), Lit::Atom(Atom::is(child))]);
                        }
                        _ => return Err(self.invalid_kw(loc, kw, "a list of names belongs here")),
                    }
                    if !then.is_empty() {
                        self.choice(flat, node, loc, kw, vec![smallvec![Lit::Forbid(key)], then]);
                    }
                }
            }
            Kw::PropertyNames => {
                let child = self.docs.child(loc, v, Step::Key(kw.text()));
                flat.object.names.push(Atom::is(child));
                flat.edits += 1;
            }
            Kw::MinProperties => flat.property_count(Some(self.count(loc, kw, v)?), None),
            Kw::MaxProperties => flat.property_count(None, Some(self.count(loc, kw, v)?)),
            Kw::MinItems => flat.item_count(Some(self.count(loc, kw, v)?), None),
            Kw::MaxItems => flat.item_count(None, Some(self.count(loc, kw, v)?)),
            Kw::MinLength => flat.length(Some(self.count(loc, kw, v)?), None),
            Kw::MaxLength => flat.length(None, Some(self.count(loc, kw, v)?)),
            Kw::UniqueItems => {
                if v == &Value::Bool(true) {
                    flat.array.unique = Some(loc);
                    flat.edits += 1;
                }
            }
            Kw::Contains => {
                let child = self.docs.child(loc, v, Step::Key(kw.text()));
                let min = self.count_of(loc, Kw::MinContains)?.unwrap_or(1);
                let max = self.count_of(loc, Kw::MaxContains)?;
                let evaluates = self.docs.draft(loc) >= Draft::D2020;
                flat.item_count(Some(min), None);
                if max.is_some_and(|m| m < min) {
                    flat.restrict(Types::ARRAY.not());
                }
                flat.array.contains.push(Contains { atom: Atom::is(child), node, from: 0, min, max, evaluates });
                flat.edits += 1;
            }
            Kw::UnevaluatedItems | Kw::UnevaluatedProperties => {
                self.tracked()?;
                let child = self.docs.child(loc, v, Step::Key(kw.text()));
                let list =
                    if kw == Kw::UnevaluatedItems { &mut flat.array.unevaluated } else { &mut flat.object.unevaluated };
                list.push((node, child));
                flat.edits += 1;
            }
            Kw::Pattern => {
                flat.string.patterns.push((self.text(loc, kw, v)?, true));
                flat.string.at = loc;
                flat.edits += 1;
            }
            Kw::Format => {
                let name = self.text(loc, kw, v)?;
                self.format(flat, loc, name);
            }
            Kw::ContentEncoding => {
                if v.as_str().is_some_and(|s| s.eq_ignore_ascii_case("base64")) {
                    flat.string.base64 = true;
                    flat.string.at = loc;
                    flat.edits += 1;
                }
            }
            Kw::ContentMediaType => {
                if v == "application/json" {
                    self.unsupported(
                        loc,
                        kw,
                        "JSON inside of a string cannot be checked",
                        "Leave the keyword out and check the string afterwards",
                    )?;
                }
            }
            Kw::Minimum | Kw::Maximum | Kw::ExclusiveMinimum | Kw::ExclusiveMaximum => {
                if let Some((value, exclusive, upper)) = self.limit(loc, kw, v)? {
                    flat.bound(value, exclusive, upper);
                }
            }
            Kw::MultipleOf => {
                let n = self.number(loc, kw, v)?;
                if n.negative || n.is_zero() {
                    return Err(self.invalid_kw(loc, kw, "a number above 0 belongs here"));
                }
                if n.to_u64() == Some(1) {
                    flat.restrict(Types::FRACTION.not());
                } else if let Value::Number(v) = v {
                    if !flat.number.multiples.contains(&v.as_str()) {
                        flat.number.multiples.push(v.as_str());
                        flat.edits += 1;
                    }
                }
            }
            Kw::Properties | Kw::PatternProperties | Kw::AdditionalProperties | Kw::Items | Kw::PrefixItems => {}
            Kw::AdditionalItems | Kw::Then | Kw::Else | Kw::MinContains | Kw::MaxContains => {}
        }
        Ok(())
    }

    pub(super) fn choice(&mut self, flat: &mut Flat<'a>, node: u32, loc: LocId, kw: Kw, options: Vec<Lits<'a>>) {
        let exclusive = kw == Kw::OneOf;
        flat.choices.push((Rc::new(Disjunction { exclusive, options, loc }), node));
    }

    /// All non-empty sets of branches.
    fn subsets(&mut self, loc: LocId, children: &[LocId]) -> Result<Vec<Lits<'a>>> {
        if children.len() > 8 {
            self.unsupported(
                loc,
                Kw::AnyOf,
                "more than 8 alternatives together with an unevaluated keyword",
                "Use fewer alternatives, or additionalProperties / items instead",
            )?;
            return Ok(children.iter().map(|c| smallvec![Lit::Atom(Atom::is(*c))]).collect());
        }
        let pick = |set: u32| (0..children.len()).filter(move |i| set >> i & 1 == 1);
        Ok((1..1u32 << children.len())
            .map(|set| pick(set).map(|i| Lit::Atom(Atom::is(children[i]))).collect())
            .collect())
    }

    pub(super) fn format(&mut self, flat: &mut Flat<'a>, loc: LocId, name: &'a str) {
        if let Some((low, high, whole)) = super::numbers::format_bounds(name) {
            if flat.types.has(Types::NUMBER) {
                if whole {
                    flat.restrict(Types::FRACTION.not());
                }
                for (text, upper) in [(low, false), (high, true)] {
                    if let Some(d) = Decimal::parse(text) {
                        flat.bound(d, false, upper);
                    }
                }
            }
        } else if self.known_format(name) {
            if !flat.types.has(Types::STRING) {
                return;
            }
            if !flat.string.formats.contains(&(name, true)) {
                flat.string.formats.push((name, true));
                flat.string.at = loc;
                flat.edits += 1;
            }
        } else {
            self.note(loc, Kw::Format, format!("the format {name:?} is not known; the specification ignores it"));
        }
    }

    pub(super) fn reference(&mut self, loc: LocId, kw: Kw, v: &'a Value) -> Result<LocId> {
        let text = self.text(loc, kw, v)?;
        if kw == Kw::Ref {
            return self.docs.resolve(loc, text, kw);
        }
        if !self.docs.dynamic {
            self.need_dynamic = true;
            return Err(CompileError::Cancelled);
        }
        self.docs.resolve_dynamic(loc, text, kw)
    }

    /// Annotations are wanted: start over with tracking if it is off.
    fn tracked(&mut self) -> Result<()> {
        if self.track {
            return Ok(());
        }
        self.need_track = true;
        Err(CompileError::Cancelled)
    }

    /// A bound of a number: (value, exclusive, upper).
    pub(super) fn limit(&mut self, loc: LocId, kw: Kw, v: &'a Value) -> Result<Option<(Decimal, bool, bool)>> {
        let upper = matches!(kw, Kw::Maximum | Kw::ExclusiveMaximum);
        if matches!(kw, Kw::ExclusiveMinimum | Kw::ExclusiveMaximum) {
            // Draft 4 has flags here, which the other keyword reads.
            if v.is_boolean() {
                return Ok(None);
            }
            return Ok(Some((self.number(loc, kw, v)?, true, upper)));
        }
        let flag = if upper { Kw::ExclusiveMaximum } else { Kw::ExclusiveMinimum };
        let exclusive = self.docs.get(loc, flag) == Some(&Value::Bool(true));
        Ok(Some((self.number(loc, kw, v)?, exclusive, upper)))
    }

    pub(super) fn types(&self, loc: LocId, v: &'a Value) -> Result<Types> {
        let one = |v: &'a Value| {
            let name = v.as_str().and_then(Types::named);
            name.ok_or_else(|| self.invalid_kw(loc, Kw::Type, "the name of a JSON type belongs here"))
        };
        match v {
            Value::Array(list) => {
                let mut types = Types::NONE;
                for v in list {
                    types.0 |= one(v)?.0;
                }
                Ok(types)
            }
            v => one(v),
        }
    }

    pub(super) fn list(&self, loc: LocId, kw: Kw, v: &'a Value) -> Result<&'a Vec<Value>> {
        v.as_array().ok_or_else(|| self.invalid_kw(loc, kw, "a list belongs here"))
    }

    pub(super) fn map(&self, loc: LocId, kw: Kw, v: &'a Value) -> Result<&'a serde_json::Map<String, Value>> {
        v.as_object().ok_or_else(|| self.invalid_kw(loc, kw, "an object belongs here"))
    }

    pub(super) fn text(&self, loc: LocId, kw: Kw, v: &'a Value) -> Result<&'a str> {
        v.as_str().ok_or_else(|| self.invalid_kw(loc, kw, "a string belongs here"))
    }

    pub(super) fn number(&self, loc: LocId, kw: Kw, v: &'a Value) -> Result<Decimal> {
        match v {
            Value::Number(n) => Decimal::parse(n.as_str())
                .ok_or_else(|| self.invalid_kw(loc, kw, "the exponent of the number is out of all bounds")),
            _ => Err(self.invalid_kw(loc, kw, "a number belongs here")),
        }
    }

    pub(super) fn count(&self, loc: LocId, kw: Kw, v: &'a Value) -> Result<u64> {
        if let Some(n) = v.as_u64() {
            return Ok(n);
        }
        let n = self.number(loc, kw, v)?;
        if n.negative || !n.is_integer() {
            return Err(self.invalid_kw(loc, kw, "a whole number from 0 on belongs here"));
        }
        Ok(n.to_u64().unwrap_or(u64::MAX))
    }

    fn count_of(&mut self, loc: LocId, kw: Kw) -> Result<Option<u64>> {
        match self.docs.get(loc, kw) {
            Some(v) => Ok(Some(self.count(loc, kw, v)?)),
            None => Ok(None),
        }
    }
}
