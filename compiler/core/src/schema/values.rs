//! Values that are spelled out, and those of which a schema says nothing.

use serde_json::{Map, Value};

use super::array::brackets;
use super::emit::Emitted;
use super::flat::{Flat, Types};
use super::notation::Kind;
use super::{Compiler, Shared, Stand, EXACT_LEVELS};
use crate::error::{CompileError, Result};
use crate::ir::{Body, Expr, ObjectRule, Property, PropertyOrder, RuleId};

/// Nesting of constants.
const CONSTANT_DEPTH: usize = 128;

impl<'a> Compiler<'a> {
    fn inner_constant(&mut self, v: &Value, depth: usize) -> Result<Expr> {
        let at = self.at;
        if self.options.space.has_levels() {
            self.stand_at(Stand { level: at.level + 1, ..at });
        }
        let result = self.constant(v, depth);
        self.stand_at(at);
        result
    }

    /// A constant as an item of the array at hand.
    pub(super) fn item_constant(&mut self, v: &Value, depth: usize) -> Result<Expr> {
        let e = self.inner_constant(v, depth)?;
        Ok(self.as_item(e))
    }

    /// All spellings of one value.
    pub(super) fn constant(&mut self, v: &Value, depth: usize) -> Result<Expr> {
        if depth > CONSTANT_DEPTH {
            return Err(CompileError::limit("depth", "the nesting of a constant", CONSTANT_DEPTH as u64));
        }
        Ok(match v {
            Value::Null => self.written(Kind::Null, Expr::lit("null")),
            Value::Bool(b) => self.written(Kind::Boolean, Expr::lit(if *b { "true" } else { "false" })),
            Value::Number(n) => {
                let number = self.number_constant(n.as_str())?;
                self.written(Kind::Number, number)
            }
            Value::String(s) if self.in_json() => self.string_constant(s),
            Value::String(s) => self.raw_constant(s)?,
            Value::Array(list) => {
                let outer = self.enter();
                let made = self.array_constant(list, depth);
                self.stand_at(outer);
                self.written(Kind::Array, made?)
            }
            Value::Object(map) => {
                let outer = self.enter();
                let made = self.object_constant(map, depth);
                self.stand_at(outer);
                self.written(Kind::Object, made?)
            }
        })
    }

    fn array_constant(&mut self, list: &[Value], depth: usize) -> Result<Expr> {
        if list.is_empty() {
            return Ok(self.brackets(None, true, false));
        }
        let (open, close) = self.array_brackets();
        let mut parts = vec![open, self.space.pad.clone()];
        for (i, v) in list.iter().enumerate() {
            if i > 0 {
                parts.push(self.space.comma.clone());
            }
            parts.push(self.item_constant(v, depth + 1)?);
        }
        parts.push(self.space.before_close().clone());
        parts.push(close);
        Ok(Expr::Seq(parts))
    }

    fn object_constant(&mut self, map: &Map<String, Value>, depth: usize) -> Result<Expr> {
        let mut properties = vec![];
        for (k, v) in map {
            let value = Some(self.inner_constant(v, depth + 1)?);
            properties.push(Property { name: k.clone(), value, required: true });
        }
        let rule = ObjectRule {
            properties,
            others: vec![],
            order: self.options.order,
            min_properties: 0,
            distinct: false,
            max_properties: None,
            space: self.space.clone(),
        };
        match self.in_json() {
            true => Ok(Expr::Rule(self.add_rule("constant".into(), Body::Object(rule))?)),
            false => self.members(None, rule),
        }
    }

    /// Any JSON value.
    pub(super) fn any_value(&mut self) -> Result<Expr> {
        if let Some(r) = self.shared().value {
            return Ok(Expr::Rule(r));
        }
        let rule = self.add_rule("value".into(), Body::Expr(Expr::Never))?;
        self.shared().value = Some(rule);
        let (free, mut e) = (Flat::new(), Emitted::default());
        let raw = self.raw_is_all(&free);
        for group in Types::GROUPS.into_iter().rev().filter(|g| !raw || *g == Types::STRING) {
            self.emit_type(&free, group, &mut e)?;
        }
        self.rules[rule as usize].body = Body::Expr(Expr::Alt(e.exprs));
        Ok(Expr::Rule(rule))
    }

    pub(super) fn any_array(&mut self) -> Result<RuleId> {
        if let Some(r) = self.shared().array {
            return Ok(r);
        }
        let rule = self.add_rule("array".into(), Body::Expr(Expr::Never))?;
        self.shared().array = Some(rule);
        let item = self.any_value()?;
        let item = self.as_item(item);
        let space = self.separators(EXACT_LEVELS);
        let more = Expr::seq([space.comma.clone(), item.clone()]).star();
        let body = brackets(self.array_brackets(), &space, Some(Expr::seq([item, more])), true, false);
        self.rules[rule as usize].body = Body::Expr(body);
        Ok(rule)
    }

    pub(super) fn any_object(&mut self) -> Result<RuleId> {
        if let Some(r) = self.shared().object {
            return Ok(r);
        }
        let rule = self.add_rule("object".into(), Body::Expr(Expr::Never))?;
        self.shared().object = Some(rule);
        let value = self.any_value()?;
        let body = ObjectRule {
            properties: vec![],
            others: vec![crate::ir::OtherProperties { keys: None, value, marks: 0 }],
            // Without declared names the order says nothing; one form for one language.
            order: PropertyOrder::Declared,
            min_properties: 0,
            distinct: false,
            max_properties: None,
            space: self.separators(EXACT_LEVELS),
        };
        self.rules[rule as usize].body = match self.in_json() {
            true => Body::Object(body),
            false => Body::Expr(self.members(None, body)?),
        };
        Ok(rule)
    }

    pub(super) fn string_rule(&mut self) -> Result<RuleId> {
        if let Some(r) = self.shared().string {
            return Ok(r);
        }
        let rule = self.add_rule("string".into(), Body::JsonString)?;
        self.shared().string = Some(rule);
        Ok(rule)
    }

    /// The rules that values share that are written as they are here.
    fn shared(&mut self) -> &mut Shared {
        self.shared.entry(self.at.place).or_default()
    }
}
