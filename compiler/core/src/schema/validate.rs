//! The exact validator: which of finitely many values satisfy a conjunction.

use serde_json::{Map, Value};

use super::decimal::Decimal;
use super::documents::{LocId, Step};
use super::flat::{Existence, Lit, Side, Types};
use super::keyword::{Draft, Kw};
use super::Compiler;
use crate::error::{CompileError, Result};

/// Nesting of schemas and values that a validation follows.
const DEPTH: usize = 256;

/// Equality of JSON values: numbers by value, objects in any order.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    if let (Value::String(_), _) | (_, Value::String(_)) = (a, b) {
        return a == b;
    }
    let mut work = vec![(a, b)];
    while let Some((a, b)) = work.pop() {
        match (a, b) {
            (Value::Number(x), Value::Number(y)) => {
                if x.as_str() != y.as_str() {
                    match (Decimal::parse(x.as_str()), Decimal::parse(y.as_str())) {
                        (Some(x), Some(y)) if x == y => {}
                        _ => return false,
                    }
                }
            }
            (Value::Array(x), Value::Array(y)) => {
                if x.len() != y.len() {
                    return false;
                }
                work.extend(x.iter().zip(y));
            }
            (Value::Object(x), Value::Object(y)) => {
                if x.len() != y.len() {
                    return false;
                }
                for (k, v) in x {
                    match y.get(k) {
                        Some(w) => work.push((v, w)),
                        None => return false,
                    }
                }
            }
            (Value::Null, Value::Null) => {}
            (Value::Bool(x), Value::Bool(y)) if x == y => {}
            (Value::String(x), Value::String(y)) if x == y => {}
            _ => return false,
        }
    }
    true
}

impl<'a> Compiler<'a> {
    /// Whether a value satisfies a literal.
    pub(super) fn lit_holds(&mut self, lit: &Lit<'a>, v: &Value) -> Result<bool> {
        let object = v.as_object();
        let array = v.as_array();
        Ok(match lit {
            Lit::Atom(a) => self.holds(a.loc(), v, DEPTH)? != a.negated(),
            Lit::Fails(loc, kw) => {
                // `properties` and `required` are denied together.
                let with = if *kw == Kw::Properties { Some(Kw::Required) } else { None };
                let mut fails = false;
                for kw in std::iter::once(*kw).chain(with) {
                    if let Some(k) = self.docs.get(*loc, kw) {
                        fails |= !self.keyword_holds(*loc, kw, k, v, DEPTH)?;
                    }
                }
                fails
            }
            Lit::Require(n) => object.is_none_or(|o| o.contains_key(*n)),
            Lit::Forbid(n) => object.is_none_or(|o| !o.contains_key(*n)),
            Lit::Property(n, a) => match object.and_then(|o| o.get(*n)) {
                Some(v) => self.holds(a.loc(), v, DEPTH)? != a.negated(),
                None => true,
            },
            Lit::MinItems(n) => array.is_none_or(|a| a.len() as u64 >= *n),
            Lit::Item(i, a) => match array.and_then(|l| l.get(*i)) {
                Some(v) => self.holds(a.loc(), v, DEPTH)? != a.negated(),
                None => true,
            },
            Lit::SomeItem(from, a) => match array {
                Some(list) => {
                    for v in list.iter().skip(*from) {
                        if self.holds(a.loc(), v, DEPTH)? != a.negated() {
                            return Ok(true);
                        }
                    }
                    false
                }
                None => true,
            },
            Lit::Count(loc, min, max) => match array {
                Some(list) => {
                    let n = self.matching(*loc, list, DEPTH)?;
                    n >= *min && max.is_none_or(|m| n <= m)
                }
                None => true,
            },
            Lit::MaxItems(n) => array.is_none_or(|a| a.len() as u64 <= *n),
            Lit::Outside(bound, side) => {
                let Value::Number(n) = v else { return Ok(false) };
                let (Some(n), Some(bound)) = (Decimal::parse(n.as_str()), Decimal::parse(bound)) else {
                    return Ok(false);
                };
                match side {
                    Side::Below => n < bound,
                    Side::Above => n > bound,
                    Side::Fraction => !n.is_integer(),
                }
            }
            Lit::Beyond(names, _) | Lit::SomeName(Existence::Beyond(names, _)) => {
                object.is_none_or(|o| o.keys().any(|k| !names.contains_key(k)))
            }
            Lit::SomeProperty(loc, kw) | Lit::SomeName(Existence::Keyword(loc, kw)) => {
                match (object, self.docs.get(*loc, *kw)) {
                    (Some(_), Some(k)) => !self.keyword_holds(*loc, *kw, k, v, DEPTH)?,
                    _ => true,
                }
            }
        })
    }

    fn matching(&mut self, loc: LocId, list: &[Value], depth: usize) -> Result<u64> {
        let mut n = 0;
        for v in list {
            n += self.holds(loc, v, depth)? as u64;
        }
        Ok(n)
    }

    /// Whether a value is valid at a location.
    pub(super) fn holds(&mut self, loc: LocId, v: &Value, depth: usize) -> Result<bool> {
        self.weigh(1)?;
        if depth == 0 {
            return Err(CompileError::limit("depth", "the nesting of a constant and its schema", DEPTH as u64)
                .within(&self.docs.pointer(loc)));
        }
        match self.docs.value(loc) {
            Value::Bool(b) => return Ok(*b),
            Value::Object(_) => {}
            _ => return Err(self.invalid(loc, "a schema is an object or a boolean")),
        }
        for i in self.docs.open(loc) {
            let (kw, k) = self.docs.keyword(i);
            if Types::on(kw.on()).has(Types::of(v)) && !self.keyword_holds(loc, kw, k, v, depth - 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn sub(&mut self, loc: LocId, kw: Kw, k: &'a Value, v: &Value, depth: usize) -> Result<bool> {
        let child = self.docs.child(loc, k, Step::Key(kw.text()));
        self.holds(child, v, depth)
    }

    /// Whether one keyword accepts a value.
    fn keyword_holds(&mut self, loc: LocId, kw: Kw, k: &'a Value, v: &Value, depth: usize) -> Result<bool> {
        if !Types::on(kw.on()).has(Types::of(v)) {
            return Ok(true);
        }
        match kw {
            Kw::Type => {
                let types = self.types(loc, k)?;
                let plain = self.docs.draft(loc) == Draft::D4 && types.has(Types::INTEGER);
                if plain && !types.has(Types::FRACTION) {
                    if let Value::Number(n) = v {
                        return Ok(!n.as_str().contains(['.', 'e', 'E']));
                    }
                }
                Ok(types.has(Types::of(v)))
            }
            Kw::Enum => self.is_listed(loc, k, v),
            Kw::Const => Ok(equal(v, k)),
            Kw::Ref | Kw::DynamicRef | Kw::RecursiveRef => {
                let target = self.reference(loc, kw, k)?;
                self.holds(target, v, depth)
            }
            Kw::AllOf | Kw::AnyOf | Kw::OneOf => {
                let mut n = 0;
                let list = self.list(loc, kw, k)?;
                for (i, s) in list.iter().enumerate() {
                    let child = self.docs.child(loc, s, Step::Nth(kw.text(), i));
                    n += self.holds(child, v, depth)? as usize;
                    match kw {
                        Kw::AllOf if n <= i => return Ok(false),
                        Kw::AnyOf if n > 0 => return Ok(true),
                        Kw::OneOf if n > 1 => return Ok(false),
                        _ => {}
                    }
                }
                Ok(kw == Kw::AllOf || n == 1)
            }
            Kw::Not => Ok(!self.sub(loc, kw, k, v, depth)?),
            Kw::If => {
                let branch = if self.sub(loc, kw, k, v, depth)? { Kw::Then } else { Kw::Else };
                match self.docs.get(loc, branch) {
                    Some(b) => self.sub(loc, branch, b, v, depth),
                    None => Ok(true),
                }
            }
            Kw::Then | Kw::Else | Kw::MinContains | Kw::MaxContains => Ok(true),
            Kw::Format => {
                let name = self.text(loc, kw, k)?;
                match (v, super::numbers::format_bounds(name)) {
                    (Value::String(s), None) if self.known_format(name) => self.format_matches(loc, name, s),
                    (Value::Number(n), Some((low, high, whole))) => {
                        let [n, low, high] = [n.as_str(), low, high].map(Decimal::parse);
                        Ok(n.is_some() && low <= n && n <= high && (!whole || n.is_some_and(|n| n.is_integer())))
                    }
                    _ => Ok(true),
                }
            }
            _ => match v {
                Value::Object(map) => self.object_holds(loc, kw, k, map, v, depth),
                Value::Array(list) => self.array_holds(loc, kw, k, list, depth),
                Value::String(s) => self.string_holds(loc, kw, k, s),
                Value::Number(n) => match Decimal::parse(n.as_str()) {
                    Some(d) => self.number_holds(loc, kw, k, &d),
                    None => Err(self.invalid(loc, "a number's exponent is out of all bounds")),
                },
                _ => Ok(true),
            },
        }
    }

    fn number_holds(&mut self, loc: LocId, kw: Kw, k: &'a Value, d: &Decimal) -> Result<bool> {
        if kw == Kw::MultipleOf {
            let step = self.number(loc, kw, k)?;
            return match d.is_multiple_of(&step) {
                Some(b) => Ok(b),
                None => {
                    self.unsupported(loc, kw, "the numbers are too long", "Use a shorter number")?;
                    Ok(true)
                }
            };
        }
        Ok(match self.limit(loc, kw, k)? {
            Some((b, exclusive, upper)) => match d.cmp(&b) {
                std::cmp::Ordering::Equal => !exclusive,
                std::cmp::Ordering::Less => upper,
                std::cmp::Ordering::Greater => !upper,
            },
            None => true,
        })
    }

    fn string_holds(&mut self, loc: LocId, kw: Kw, k: &'a Value, s: &str) -> Result<bool> {
        let length = || s.chars().count() as u64;
        Ok(match kw {
            Kw::MinLength => length() >= self.count(loc, kw, k)?,
            Kw::MaxLength => length() <= self.count(loc, kw, k)?,
            Kw::Pattern => {
                let p = self.text(loc, kw, k)?;
                self.pattern_matches(loc, kw, p, s)?
            }
            Kw::ContentEncoding => {
                !k.as_str().is_some_and(|k| k.eq_ignore_ascii_case("base64")) || super::leaf::is_base64(s)
            }
            _ => self.unknowable(loc, kw)?,
        })
    }

    fn array_holds(&mut self, loc: LocId, kw: Kw, k: &'a Value, list: &[Value], depth: usize) -> Result<bool> {
        let n = list.len() as u64;
        match kw {
            Kw::MinItems => Ok(n >= self.count(loc, kw, k)?),
            Kw::MaxItems => Ok(n <= self.count(loc, kw, k)?),
            Kw::UniqueItems => {
                let unique = k == &Value::Bool(true);
                Ok(!unique || list.iter().enumerate().all(|(i, a)| !list[..i].iter().any(|b| equal(a, b))))
            }
            Kw::Items | Kw::PrefixItems if k.is_array() => {
                let schemas = self.list(loc, kw, k)?;
                for (i, (s, v)) in schemas.iter().zip(list).enumerate() {
                    let child = self.docs.child(loc, s, Step::Nth(kw.text(), i));
                    if !self.holds(child, v, depth)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Kw::Items | Kw::AdditionalItems => {
                let from = match kw {
                    Kw::Items => self.docs.get(loc, Kw::PrefixItems).and_then(Value::as_array).map_or(0, Vec::len),
                    _ => match self.docs.get(loc, Kw::Items) {
                        Some(Value::Array(l)) => l.len(),
                        _ => return Ok(true),
                    },
                };
                for v in list.iter().skip(from) {
                    if !self.sub(loc, kw, k, v, depth)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Kw::Contains => {
                let child = self.docs.child(loc, k, Step::Key(kw.text()));
                let n = self.matching(child, list, depth)?;
                let min = match self.docs.get(loc, Kw::MinContains) {
                    Some(m) => self.count(loc, Kw::MinContains, m)?,
                    None => 1,
                };
                let max = match self.docs.get(loc, Kw::MaxContains) {
                    Some(m) => self.count(loc, Kw::MaxContains, m)?,
                    None => u64::MAX,
                };
                Ok(n >= min && n <= max)
            }
            _ => self.unknowable(loc, kw),
        }
    }

    fn object_holds(
        &mut self,
        loc: LocId,
        kw: Kw,
        k: &'a Value,
        map: &Map<String, Value>,
        v: &Value,
        depth: usize,
    ) -> Result<bool> {
        match kw {
            Kw::MinProperties => Ok(map.len() as u64 >= self.count(loc, kw, k)?),
            Kw::MaxProperties => Ok(map.len() as u64 <= self.count(loc, kw, k)?),
            Kw::Required => Ok(k.is_boolean()
                || self.list(loc, kw, k)?.iter().all(|n| n.as_str().is_some_and(|n| map.contains_key(n)))),
            Kw::Properties => {
                for (name, schema) in self.map(loc, kw, k)? {
                    if let Some(v) = map.get(name) {
                        let child = self.docs.child(loc, schema, Step::In(kw.text(), name));
                        if !self.holds(child, v, depth)? {
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            }
            Kw::PatternProperties => {
                for (pattern, schema) in self.map(loc, kw, k)? {
                    let child = self.docs.child(loc, schema, Step::In(kw.text(), pattern));
                    for (name, v) in map {
                        if self.pattern_matches(loc, kw, pattern, name)? && !self.holds(child, v, depth)? {
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            }
            Kw::AdditionalProperties => {
                for (name, v) in map {
                    if !self.is_named(loc, name)? && !self.sub(loc, kw, k, v, depth)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Kw::PropertyNames => {
                for name in map.keys() {
                    if !self.sub(loc, kw, k, &Value::String(name.clone()), depth)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Kw::DependentRequired | Kw::DependentSchemas | Kw::Dependencies => {
                for (key, what) in self.map(loc, kw, k)? {
                    if !map.contains_key(key) {
                        continue;
                    }
                    let ok = match what {
                        Value::Array(names) => names.iter().all(|n| n.as_str().is_some_and(|n| map.contains_key(n))),
                        Value::String(n) => map.contains_key(n),
                        schema => {
                            let child = self.docs.child(loc, schema, Step::In(kw.text(), key));
                            self.holds(child, v, depth)?
                        }
                    };
                    if !ok {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => self.unknowable(loc, kw),
        }
    }

    /// Whether `properties` or `patternProperties` of a location speak about a name.
    pub(super) fn is_named(&mut self, loc: LocId, name: &str) -> Result<bool> {
        if self.docs.get(loc, Kw::Properties).and_then(Value::as_object).is_some_and(|m| m.contains_key(name)) {
            return Ok(true);
        }
        if let Some(patterns) = self.docs.get(loc, Kw::PatternProperties).and_then(Value::as_object) {
            for pattern in patterns.keys() {
                if self.pattern_matches(loc, Kw::PatternProperties, pattern, name)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn unknowable(&mut self, loc: LocId, kw: Kw) -> Result<bool> {
        self.unsupported(
            loc,
            kw,
            "it meets an enum or const of arrays or objects",
            "List only the constants that satisfy it, and leave it out",
        )?;
        Ok(true)
    }
}
