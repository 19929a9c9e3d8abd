//! Texts that must not occur inside JSON strings: the grammar that a schema was compiled to, narrowed. Strings that are not
//! written in JSON never get them ([`super::notation`]).
//!
//! What counts is the text as it is written, before anything is unescaped. Strings, whatever constrains them, lose the
//! spellings that hold an excluded text; so do constants and the names of undeclared properties. Names that the schema
//! declares are left: a caller who excludes one of them asks for two things at once.

use crate::ir::{Body, Expr, Grammar, Rule, RuleId};

/// Narrows a grammar.
pub(super) fn exclude(grammar: &mut Grammar, excludes: &[String]) {
    if excludes.is_empty() {
        return;
    }
    let mut strings: Vec<((u32, Option<u32>), RuleId)> = vec![];
    let is_string: Vec<bool> = grammar.rules.iter().map(|r| r.body == Body::JsonString).collect();
    let mut more: Vec<Rule> = vec![];
    let first = grammar.rules.len() as RuleId;
    let mut string = |bounds: (u32, Option<u32>)| {
        if let Some(known) = strings.iter().find(|s| s.0 == bounds) {
            return known.1;
        }
        let any = Expr::JsonChars { ranges: vec![(0, 0xd7ff), (0xe000, 0x10ffff)], free: true };
        let text = without(any.repeat(bounds.0, bounds.1), excludes);
        let body = Body::Expr(Expr::seq([Expr::lit("\""), text, Expr::lit("\"")]));
        more.push(Rule { name: "string without".into(), body });
        let rule = first + more.len() as RuleId - 1;
        strings.push((bounds, rule));
        rule
    };
    for rule in &mut grammar.rules {
        match &mut rule.body {
            Body::Expr(e) => narrow(e, &is_string, excludes, &mut string),
            Body::Object(o) => {
                let values = o.properties.iter_mut().filter_map(|p| p.value.as_mut());
                values.for_each(|e| narrow(e, &is_string, excludes, &mut string));
                for other in &mut o.others {
                    narrow(&mut other.value, &is_string, excludes, &mut string);
                    let any = || Expr::JsonChars { ranges: vec![(0, 0xd7ff), (0xe000, 0x10ffff)], free: true };
                    let keys = other.keys.take().unwrap_or_else(|| any().star());
                    other.keys = Some(without(keys, excludes));
                }
            }
            Body::Dispatch(_) | Body::JsonString => {}
        }
    }
    grammar.rules.extend(more);
}

/// Recursion is as deep as the expression, which the front end has bounded.
fn narrow(
    e: &mut Expr,
    is_string: &[bool],
    excludes: &[String],
    string: &mut impl FnMut((u32, Option<u32>)) -> RuleId,
) {
    match e {
        Expr::Call { rule, args } if is_string.get(*rule as usize) == Some(&true) => {
            *e = Expr::Rule(string(args.first().copied().unwrap_or((0, None))));
        }
        // A string constant with its quotes.
        Expr::Bytes(b) if b.len() >= 2 && b[0] == b'"' && b[b.len() - 1] == b'"' => {
            let inner = &b[1..b.len() - 1];
            if excludes.iter().any(|x| memchr::memmem::find(inner, x.as_bytes()).is_some()) {
                *e = Expr::Never;
            }
        }
        Expr::Seq(v) => match v.as_mut_slice() {
            // A string with constraints: its text between quotes.
            [Expr::Bytes(open), text, Expr::Bytes(close)] if open == b"\"" && close == b"\"" => {
                *text = without(std::mem::replace(text, Expr::Never), excludes);
            }
            items => items.iter_mut().for_each(|e| narrow(e, is_string, excludes, string)),
        },
        Expr::Alt(v) => v.iter_mut().for_each(|e| narrow(e, is_string, excludes, string)),
        Expr::Repeat { body, .. } => narrow(body, is_string, excludes, string),
        _ => {}
    }
}

/// The strings of `e` that hold none of `texts`.
pub(super) fn without(e: Expr, texts: &[String]) -> Expr {
    let any = || Expr::Class(vec![(0, 255)]).star();
    let holds = texts.iter().map(|t| Expr::seq([any(), Expr::lit(t), any()])).collect();
    Expr::Sub(Box::new(e), Box::new(Expr::Alt(holds)))
}
