//! What an assertion asks of the character beside it, and the operations on expressions that enforce it.
//!
//! Expressions here are over code points ([`Expr::Chars`]) and hold no automata.

use super::class::CharSet;
use crate::ir::Expr;

/// A condition on the neighbour at one side of a position: a character of a set, or the edge of the string.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Any,
    /// The string's start (to the left) or end (to the right).
    Edge,
    Set {
        edge: bool,
        set: CharSet,
    },
}

impl Side {
    /// `None`: nothing satisfies it.
    pub fn new(edge: bool, set: CharSet) -> Option<Side> {
        match (edge, set.is_empty()) {
            (false, true) => None,
            (true, true) => Some(Side::Edge),
            (true, false) if set.is_any() => Some(Side::Any),
            (edge, false) => Some(Side::Set { edge, set }),
        }
    }

    fn split(&self) -> (bool, CharSet) {
        match self {
            Side::Any => (true, CharSet::any()),
            Side::Edge => (true, CharSet::empty()),
            Side::Set { edge, set } => (*edge, set.clone()),
        }
    }

    pub fn and(&self, other: &Side) -> Option<Side> {
        match (self, other) {
            (Side::Any, s) | (s, Side::Any) => Some(s.clone()),
            _ => {
                let ((e, s), (f, t)) = (self.split(), other.split());
                Side::new(e && f, s.and(&t))
            }
        }
    }

    pub fn or(&self, other: &Side) -> Side {
        let ((e, s), (f, t)) = (self.split(), other.split());
        let set = CharSet::new(s.ranges().iter().chain(t.ranges()).copied().collect());
        // A union of what can be satisfied can be satisfied.
        Side::new(e || f, set).unwrap_or(Side::Any)
    }

    pub fn not(&self) -> Option<Side> {
        let (edge, set) = self.split();
        Side::new(!edge, set.negate())
    }

    pub fn edge(&self) -> bool {
        !matches!(self, Side::Set { edge: false, .. })
    }
}

pub fn anything() -> Expr {
    Expr::Chars(CharSet::any().into_ranges()).star()
}

pub fn is_anything(e: &Expr) -> bool {
    match e {
        Expr::Repeat { body, min: 0, max: None } => {
            matches!(&**body, Expr::Chars(r) if r.len() == 2 && CharSet::new(r.clone()).is_any())
        }
        _ => false,
    }
}

/// The items in order, flat.
pub fn seq(items: Vec<Expr>) -> Expr {
    if items.iter().any(|e| matches!(e, Expr::Never)) {
        return Expr::Never;
    }
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Expr::Empty => {}
            Expr::Seq(v) => out.extend(v),
            e => out.push(e),
        }
    }
    match out.len() {
        0 => Expr::Empty,
        1 => out.swap_remove(0),
        _ => Expr::Seq(out),
    }
}

/// Any of the items; single characters become one set.
pub fn alt(items: Vec<Expr>) -> Expr {
    let mut out: Vec<Expr> = Vec::with_capacity(items.len());
    let mut chars: Option<usize> = None;
    for item in items {
        let flat = match item {
            Expr::Never => continue,
            Expr::Alt(v) => v,
            e => vec![e],
        };
        for e in flat {
            match (e, chars) {
                (Expr::Chars(new), Some(i)) => {
                    if let Expr::Chars(old) = &mut out[i] {
                        old.extend(new);
                    }
                }
                (e, _) => {
                    if matches!(e, Expr::Chars(_)) {
                        chars = Some(out.len());
                    }
                    out.push(e);
                }
            }
        }
    }
    if let Some(Expr::Chars(r)) = chars.map(|i| &mut out[i]) {
        *r = CharSet::new(std::mem::take(r)).into_ranges();
    }
    match out.len() {
        0 => Expr::Never,
        1 => out.swap_remove(0),
        _ => Expr::Alt(out),
    }
}

pub fn nullable(e: &Expr) -> bool {
    match e {
        Expr::Empty => true,
        Expr::Seq(v) => v.iter().all(nullable),
        Expr::Alt(v) => v.iter().any(nullable),
        Expr::Repeat { body, min, .. } => *min == 0 || nullable(body),
        _ => false,
    }
}

/// How many nodes.
pub fn size(e: &Expr) -> usize {
    match e {
        Expr::Seq(v) | Expr::Alt(v) => 1 + v.iter().map(size).sum::<usize>(),
        Expr::Repeat { body, .. } => 1 + size(body),
        _ => 1,
    }
}

/// The strings of `e` that are not empty and whose last (`at_end`) or first character is of `set` (`None`: any).
pub fn restrict(e: &Expr, set: Option<&CharSet>, at_end: bool) -> Expr {
    match e {
        Expr::Chars(r) => match set {
            None => e.clone(),
            Some(set) => {
                let both = CharSet::new(r.clone()).and(set);
                if both.is_empty() {
                    Expr::Never
                } else {
                    Expr::Chars(both.into_ranges())
                }
            }
        },
        Expr::Seq(v) => restrict_seq(v, set, at_end),
        Expr::Alt(v) => alt(v.iter().map(|e| restrict(e, set, at_end)).collect()),
        Expr::Repeat { body, min, max } => {
            let (body, min) = if nullable(body) { (restrict(body, None, at_end), 0) } else { ((**body).clone(), *min) };
            let edge = restrict(&body, set, at_end);
            if matches!(edge, Expr::Never) || *max == Some(0) {
                return Expr::Never;
            }
            let rest = repeat(body, min.saturating_sub(1), max.map(|m| m - 1));
            seq(if at_end { vec![rest, edge] } else { vec![edge, rest] })
        }
        _ => Expr::Never,
    }
}

pub fn restrict_seq(v: &[Expr], set: Option<&CharSet>, at_end: bool) -> Expr {
    if set.is_none() && !v.iter().all(nullable) {
        return seq(v.to_vec());
    }
    let mut alts = vec![];
    for k in 0..v.len() {
        let i = if at_end { v.len() - 1 - k } else { k };
        let edge = restrict(&v[i], set, at_end);
        if !matches!(edge, Expr::Never) {
            let rest = if at_end { &v[..i] } else { &v[i + 1..] };
            let mut items = rest.to_vec();
            items.insert(if at_end { items.len() } else { 0 }, edge);
            alts.push(seq(items));
        }
        if !nullable(&v[i]) {
            break;
        }
    }
    alt(alts)
}

pub fn repeat(body: Expr, min: u32, max: Option<u32>) -> Expr {
    match (body, min, max) {
        (_, _, Some(0)) | (Expr::Empty, _, _) | (Expr::Never, 0, _) => Expr::Empty,
        (Expr::Never, _, _) => Expr::Never,
        (body, 1, Some(1)) => body,
        (body, min, max) => body.repeat(min, max),
    }
}

/// Shorten what stands beside "any string": `x{2,5}` followed by anything is `xx` followed by anything.
pub fn trim(items: &mut Vec<Expr>, at_end: bool) {
    loop {
        let Some(i) = items.len().checked_sub(1).map(|last| if at_end { last } else { 0 }) else { return };
        match items.remove(i) {
            Expr::Empty => {}
            Expr::Repeat { min: 0, .. } => {}
            Expr::Repeat { body, min: 1, .. } => items.insert(i, *body),
            Expr::Repeat { body, min, .. } => {
                items.insert(i, Expr::Repeat { body, min, max: Some(min) });
                return;
            }
            Expr::Seq(v) => {
                items.splice(i..i, v);
            }
            Expr::Alt(v) => {
                let mut alts = Vec::with_capacity(v.len());
                for e in v {
                    let mut inner = vec![e];
                    trim(&mut inner, at_end);
                    alts.push(seq(inner));
                }
                if !alts.iter().any(nullable) {
                    items.insert(i, alt(alts));
                    return;
                }
            }
            e => {
                items.insert(i, e);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chars(s: &str) -> Expr {
        Expr::Chars(CharSet::new(s.chars().map(|c| (c as u32, c as u32)).collect()).into_ranges())
    }

    #[test]
    fn sides_form_a_boolean_algebra() {
        let a = Side::new(false, CharSet::single(97)).unwrap();
        assert_eq!(a.not().unwrap().not().unwrap(), a);
        assert_eq!(a.and(&a.not().unwrap()), None);
        assert_eq!(a.or(&a.not().unwrap()), Side::Any);
        assert_eq!(Side::Any.and(&Side::Edge), Some(Side::Edge));
        assert_eq!(Side::Any.not(), None);
        assert_eq!(Side::Edge.and(&a), None);
    }

    #[test]
    fn restricting_keeps_counters() {
        let set = CharSet::single('b' as u32);
        let e = seq(vec![chars("ab").repeat(1, Some(256)), chars("bc").opt()]);
        let last = restrict(&e, Some(&set), true);
        let expected = alt(vec![
            seq(vec![chars("ab").repeat(1, Some(256)), chars("b")]),
            seq(vec![chars("ab").repeat(0, Some(255)), chars("b")]),
        ]);
        assert_eq!(last, expected);
    }

    #[test]
    fn trimming() {
        let mut v = vec![chars("a"), alt(vec![chars("b").plus(), chars("c").repeat(2, Some(9))])];
        trim(&mut v, true);
        assert_eq!(seq(v), seq(vec![chars("a"), alt(vec![chars("b"), chars("c").repeat(2, Some(2))])]));
        let mut v = vec![chars("a").star(), alt(vec![chars("b").opt(), chars("c")])];
        trim(&mut v, true);
        assert!(v.is_empty());
    }
}
