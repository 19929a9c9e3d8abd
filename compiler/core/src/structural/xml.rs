//! Parameters as models write them in tags of their own instead of JSON: the styles of `json_schema`.
//!
//! ```text
//! qwen_xml      <parameter=city>Oslo</parameter>
//! deepseek_xml  <｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>
//! ```
//!
//! A string is written raw, up to the closing tag; everything else is JSON. What a schema says of a string (its length,
//! pattern, values) holds for the raw text. Whitespace may stand around blocks and around values. Parameters come in the
//! order of `properties`, those that are not declared last; where the schema declares some and does not speak of
//! `additionalProperties`, there are no others. With `any_order` they come in any order, and how often is not counted.
//!
//! A new style is one more [`Form`].

use serde_json::{json, Map, Value};

use super::excludes::without;
use super::format::Style;
use crate::error::{CompileError, Result};
use crate::ir::{Body, Expr, Grammar, PropertyOrder, Rule, RuleId};
use crate::limits::Budget;
use crate::schema::{self, Compiled, Options, Warning};

/// How a style writes a block.
struct Form {
    /// Before and after the name.
    open: (&'static str, &'static str),
    close: &'static str,
    /// Between name and `open.1`: for a string, and for anything else.
    kinds: Option<(&'static str, &'static str)>,
}

fn form(style: Style) -> Option<Form> {
    match style {
        Style::Json => None,
        Style::QwenXml => Some(Form { open: ("<parameter=", ">"), close: "</parameter>", kinds: None }),
        Style::DeepseekXml => Some(Form {
            open: ("<｜DSML｜parameter name=\"", ">"),
            close: "</｜DSML｜parameter>",
            kinds: Some(("\" string=\"true\"", "\" string=\"false\"")),
        }),
    }
}

/// Compiles a schema of parameters.
pub fn compile(
    source: &Value,
    style: Style,
    excludes: &[String],
    options: &Options,
    budget: &Budget,
) -> Result<Compiled> {
    let Some(form) = form(style) else {
        let mut compiled = schema::compile(source, options, budget)?;
        super::excludes::exclude(&mut compiled.grammar, excludes);
        return Ok(compiled);
    };
    let mut barred = vec![form.close.to_owned()];
    barred.extend(excludes.iter().cloned());
    let mut b = Blocks {
        form,
        barred,
        excludes,
        options,
        budget,
        rules: vec![],
        warnings: vec![],
        source,
        nodes: nodes(source),
    };
    let root = b.all()?;
    b.rules.push(Rule { name: "parameters".into(), body: Body::Expr(root) });
    let root = b.rules.len() as RuleId - 1;
    Ok(Compiled { grammar: Grammar { rules: b.rules, root }, warnings: b.warnings })
}

struct Blocks<'a> {
    form: Form,
    /// What a raw text must not hold.
    barred: Vec<String>,
    excludes: &'a [String],
    options: &'a Options,
    budget: &'a Budget,
    source: &'a Value,
    /// Values in the source.
    nodes: usize,
    rules: Vec<Rule>,
    warnings: Vec<Warning>,
}

/// Keywords about an object's members that blocks cannot follow.
const UNSUPPORTED: [&str; 17] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "enum",
    "const",
    "$dynamicRef",
    "$recursiveRef",
];

/// How often a reference at the top may lead to another.
const MOST_HOPS: usize = 32;

impl<'a> Blocks<'a> {
    /// All blocks, with the whitespace around them.
    fn all(&mut self) -> Result<Expr> {
        let empty = Map::new();
        let free = Value::Bool(true);
        let (place, schema) = self.top()?;
        let schema = match schema {
            Value::Bool(true) => &empty,
            Value::Object(o) => o,
            _ => return Err(CompileError::unsatisfiable(place, "the schema is false")),
        };
        if let Some(keyword) = UNSUPPORTED.iter().find(|k| schema.contains_key(**k)) {
            return Err(CompileError::unsupported(
                format!("{place}/{keyword}"),
                *keyword,
                "parameters are written one by one, and only properties and required say which",
                "Use the style \"json\", or put the constraint into a parameter's own schema",
            ));
        }
        let kind = schema.get("type");
        let object = |t: &Value| t == "object";
        if !kind.is_none_or(|t| object(t) || t.as_array().is_some_and(|v| v.iter().any(object))) {
            return Err(CompileError::unsupported(
                format!("{place}/type"),
                "type",
                "parameters are the members of an object",
                "Give a schema of type object",
            ));
        }
        let properties = match schema.get("properties") {
            None => &empty,
            Some(Value::Object(p)) => p,
            Some(_) => {
                return Err(CompileError::invalid(format!("{place}/properties"), "properties must be an object"))
            }
        };
        let mut required: Vec<&str> = vec![];
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            match name.as_str() {
                Some(n) => required.push(n),
                None => return Err(CompileError::invalid(format!("{place}/required"), "required lists strings")),
            }
        }
        let any_order = self.options.order == PropertyOrder::Any;
        let ws = self.space();
        let mut items = vec![];
        for (name, value) in properties {
            self.budget.tick()?;
            let at = format!("{place}/properties/{}", name.replace('~', "~0").replace('/', "~1"));
            let Some(values) = self.values(&at, value)? else {
                if required.contains(&name.as_str()) {
                    return Err(CompileError::unsatisfiable(at, "no value is possible for a required parameter"));
                }
                continue;
            };
            let block = self.block(self.name(name, &at)?, values, name);
            let optional = any_order || !required.contains(&name.as_str());
            items.push(if optional && !any_order { block.opt() } else { block });
        }
        let undeclared = match schema.get("additionalProperties") {
            None => properties.is_empty().then_some(&free),
            Some(Value::Bool(false)) => None,
            Some(other) => Some(other),
        };
        if let Some(missing) = required.iter().find(|n| !properties.contains_key(**n)) {
            return Err(CompileError::unsupported(
                format!("{place}/required"),
                "required",
                format!("{missing:?} is not among the properties"),
                "Declare it",
            ));
        }
        if let Some(value) = undeclared {
            let at = format!("{place}/additionalProperties");
            if let Some(values) = self.values(&at, value)? {
                let names = properties.keys().map(Expr::lit).collect::<Vec<_>>();
                let start = Expr::Class(vec![(b'A', b'Z'), (b'_', b'_'), (b'a', b'z')]);
                let next = Expr::Class(vec![(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')]);
                let any = Expr::seq([start, next.star()]);
                let name = match names.is_empty() {
                    true => any,
                    false => Expr::Sub(Box::new(any), Box::new(Expr::Alt(names))),
                };
                let block = self.block(name, values, "another parameter");
                items.push(if any_order { block } else { block.star() });
            }
        }
        let blocks = if any_order { Expr::Alt(items).star() } else { Expr::Seq(items) };
        Ok(Expr::seq([blocks, ws]))
    }

    /// The schema that counts, references followed, and its pointer.
    fn top(&self) -> Result<(String, &'a Value)> {
        let (mut place, mut schema): (String, &'a Value) = (String::new(), self.source);
        for _ in 0..MOST_HOPS {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return Ok((place, schema)) };
            match reference.strip_prefix('#').and_then(|p| Some((p, self.source.pointer(p)?))) {
                Some((p, to)) => (place, schema) = (p.to_owned(), to),
                None => {
                    return Err(CompileError::unsupported(
                        format!("{place}/$ref"),
                        "$ref",
                        format!("{reference:?} is no place in this schema"),
                        "Write the parameters out",
                    ))
                }
            }
        }
        Err(CompileError::invalid(place, "the references lead in a circle"))
    }

    fn name(&self, name: &str, at: &str) -> Result<Expr> {
        let odd = |c: char| c.is_control() || matches!(c, '<' | '>' | '"');
        if name.is_empty() || name.contains(odd) {
            return Err(CompileError::unsupported(
                at,
                "properties",
                format!("{name:?} cannot be the name of a parameter in a tag"),
                "Rename it, or use the style \"json\"",
            ));
        }
        Ok(Expr::lit(name))
    }

    fn space(&self) -> Expr {
        self.options.space.outer()
    }

    /// A block of one parameter. `values`: as raw text, and as JSON.
    fn block(&mut self, name: Expr, (raw, json): (Option<Expr>, Option<Expr>), title: &str) -> Expr {
        let ws = self.space();
        let Form { open, close, kinds } = &self.form;
        let around = |e: Expr| Expr::seq([ws.clone(), e, ws.clone()]);
        let body = match kinds {
            None => {
                let ways = raw.into_iter().chain(json).map(around).collect();
                Expr::seq([Expr::lit(open.1), Expr::Alt(ways)])
            }
            Some((text, other)) => {
                let way = |kind: &str, e: Expr| Expr::seq([Expr::lit(format!("{kind}{}", open.1)), e]);
                let ways = raw.map(|e| way(text, e)).into_iter().chain(json.map(|e| way(other, around(e)))).collect();
                Expr::Alt(ways)
            }
        };
        let e = Expr::seq([ws.clone(), Expr::lit(open.0), name, body, Expr::lit(*close)]);
        self.rules.push(Rule { name: format!("parameter {title}"), body: Body::Expr(e) });
        Expr::Rule(self.rules.len() as RuleId - 1)
    }

    /// What a parameter may hold, as raw text and as JSON; `None` if nothing.
    fn values(&mut self, at: &str, value: &Value) -> Result<Option<(Option<Expr>, Option<Expr>)>> {
        let free = matches!(value, Value::Bool(true)) || value.as_object().is_some_and(|o| o.is_empty());
        let raw = match free {
            true => Some(any_text()),
            false => self.variant(at, &json!("string"))?.map(|g| self.raw(g, at)).transpose()?,
        };
        // A text without constraints is written like anything else; a style that tells the two apart keeps both.
        let json = match self.form.kinds.is_none() && raw.as_ref() == Some(&any_text()) {
            true => None,
            false => {
                let others = json!(["null", "boolean", "number", "array", "object"]);
                match self.variant(at, &others)? {
                    Some(mut g) => {
                        super::excludes::exclude(&mut g, &self.barred_in_json());
                        Some(self.adopt(g))
                    }
                    None => None,
                }
            }
        };
        let raw = raw.map(|e| without(e, &self.barred));
        Ok((raw.is_some() || json.is_some()).then_some((raw, json)))
    }

    fn barred_in_json(&self) -> Vec<String> {
        self.excludes.to_vec()
    }

    /// The grammar of the values at `at` that have one of the types; `None` if there are none.
    fn variant(&mut self, at: &str, types: &Value) -> Result<Option<Grammar>> {
        // Each variant copies the document.
        self.budget.states(self.nodes)?;
        let mut root = self.source.clone();
        if root.get("$id").is_none() {
            move_references(&mut root);
        }
        let mut wrapper = Map::new();
        if let Some(draft) = self.source.get("$schema") {
            wrapper.insert("$schema".into(), draft.clone());
        }
        wrapper.insert("$defs".into(), json!({ "root": root }));
        // Beside each other `$ref` and `type` would not count in older drafts.
        wrapper.insert("allOf".into(), json!([{ "$ref": format!("#/$defs/root{}", escaped(at)) }, { "type": types }]));
        let strip = |p: &str| p.strip_prefix("/$defs/root").unwrap_or(p).to_owned();
        match schema::compile(&Value::Object(wrapper), self.options, self.budget) {
            Ok(compiled) => {
                let placed = compiled.warnings.into_iter().map(|w| Warning { pointer: strip(&w.pointer), ..w });
                for w in placed.collect::<Vec<_>>() {
                    if !self.warnings.contains(&w) {
                        self.warnings.push(w);
                    }
                }
                Ok(Some(compiled.grammar))
            }
            Err(CompileError::Unsatisfiable { .. }) => Ok(None),
            Err(e) => Err(e.replaced(strip)),
        }
    }

    /// Takes over a grammar's rules; its root as an expression.
    fn adopt(&mut self, grammar: Grammar) -> Expr {
        let by = self.rules.len() as RuleId;
        for mut rule in grammar.rules {
            match &mut rule.body {
                Body::Expr(e) => shift(e, by),
                Body::Object(o) => {
                    o.properties.iter_mut().filter_map(|p| p.value.as_mut()).for_each(|e| shift(e, by));
                    o.others.iter_mut().for_each(|p| shift(&mut p.value, by));
                }
                Body::Dispatch(d) => d.handlers.iter_mut().for_each(|e| shift(e, by)),
                Body::JsonString => {}
            }
            self.rules.push(rule);
        }
        Expr::Rule(grammar.root + by)
    }

    /// A grammar of JSON strings as the grammar of what they stand for.
    fn raw(&self, grammar: Grammar, at: &str) -> Result<Expr> {
        let mut budget = 100_000usize;
        unquoted(&Expr::Rule(grammar.root), &grammar, &mut budget).ok_or_else(|| {
            CompileError::unsupported(
                at,
                "pattern",
                "what it says of a string cannot be said of raw text",
                "Write the pattern without look-around, or use the style \"json\"",
            )
        })
    }
}

fn any_text() -> Expr {
    Expr::Chars(vec![(0, 0xd7ff), (0xe000, 0x10ffff)]).star()
}

fn nodes(value: &Value) -> usize {
    let (mut count, mut stack) = (0, vec![value]);
    while let Some(v) = stack.pop() {
        count += 1;
        match v {
            Value::Object(o) => stack.extend(o.values()),
            Value::Array(items) => stack.extend(items),
            _ => {}
        }
    }
    count
}

/// A pointer as part of a URI fragment.
fn escaped(pointer: &str) -> String {
    let mut out = String::new();
    for b in pointer.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'~' | b'_' | b'-' | b'.' | b'$' => out.push(b as char),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// References into the document lead to where it has been moved.
fn move_references(value: &mut Value) {
    let mut stack = vec![value];
    while let Some(v) = stack.pop() {
        match v {
            Value::Object(o) => {
                for (k, v) in o.iter_mut() {
                    match v {
                        Value::String(s) if k == "$ref" && (s == "#" || s.starts_with("#/")) => {
                            *s = format!("#/$defs/root{}", &s[1..]);
                        }
                        v => stack.push(v),
                    }
                }
            }
            Value::Array(items) => stack.extend(items),
            _ => {}
        }
    }
}

fn shift(e: &mut Expr, by: RuleId) {
    let mut stack = vec![e];
    while let Some(e) = stack.pop() {
        match e {
            Expr::Rule(r) | Expr::Call { rule: r, .. } => *r += by,
            Expr::Seq(v) | Expr::Alt(v) => stack.extend(v),
            Expr::Repeat { body, .. } => stack.push(body),
            _ => {}
        }
    }
}

/// A string with its quotes, as what it stands for: references written out, characters in UTF-8. `None` where that is not
/// to be seen.
fn unquoted(e: &Expr, grammar: &Grammar, budget: &mut usize) -> Option<Expr> {
    *budget = budget.checked_sub(1)?;
    match e {
        Expr::Rule(r) => match &grammar.rules.get(*r as usize)?.body {
            Body::Expr(body) => unquoted(body, grammar, budget),
            _ => None,
        },
        Expr::Call { args, .. } => {
            let &(min, max) = args.first()?;
            Some(match (min, max) {
                (0, None) => any_text(),
                _ => Expr::Chars(vec![(0, 0xd7ff), (0xe000, 0x10ffff)]).repeat(min, max),
            })
        }
        Expr::Alt(v) => Some(Expr::Alt(v.iter().map(|e| unquoted(e, grammar, budget)).collect::<Option<_>>()?)),
        Expr::Bytes(b) => match b.as_slice() {
            [b'"', inner @ .., b'"'] => Some(Expr::Bytes(inner.to_vec())),
            _ => None,
        },
        Expr::Seq(v) => match v.as_slice() {
            [Expr::Bytes(open), text, Expr::Bytes(close)] if open == b"\"" && close == b"\"" => plain(text),
            [Expr::Bytes(open), middle @ .., Expr::Bytes(close)]
                if open.first() == Some(&b'"') && close.last() == Some(&b'"') =>
            {
                let mut items = vec![Expr::Bytes(open[1..].to_vec())];
                items.extend(middle.iter().map(plain).collect::<Option<Vec<_>>>()?);
                items.push(Expr::Bytes(close[..close.len() - 1].to_vec()));
                Some(Expr::Seq(items))
            }
            [one] => unquoted(one, grammar, budget),
            _ => None,
        },
        Expr::Never => Some(Expr::Never),
        _ => None,
    }
}

/// The text between the quotes, in UTF-8.
fn plain(e: &Expr) -> Option<Expr> {
    let all = |v: &[Expr]| v.iter().map(plain).collect::<Option<Vec<_>>>();
    Some(match e {
        Expr::JsonChars { ranges, .. } => Expr::Chars(ranges.clone()),
        Expr::Seq(v) => Expr::Seq(all(v)?),
        Expr::Alt(v) => Expr::Alt(all(v)?),
        Expr::And(v) => Expr::And(all(v)?),
        Expr::Sub(a, b) => Expr::Sub(Box::new(plain(a)?), Box::new(plain(b)?)),
        Expr::Repeat { body, min, max } => plain(body)?.repeat(*min, *max),
        Expr::Bytes(_) | Expr::Empty | Expr::Never | Expr::Class(_) | Expr::Chars(_) => e.clone(),
        // Made for the JSON spelling, or no text at all.
        _ => return None,
    })
}
