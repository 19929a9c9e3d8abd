//! Rules that cannot match are taken out, and what depends on them with them.
//!
//! A schema may demand what a later rule turns out to forbid (`required` of an impossible property, a recursion that
//! never ends). Left in, such rules would be dead ends for whoever follows the grammar byte by byte.

use crate::ir::{Body, Expr, Grammar, ObjectRule, RuleId};

/// Drop what cannot match and what is not reachable. `false` if nothing at all can match.
pub(super) fn prune(g: &mut Grammar) -> bool {
    let alive = productive(g);
    if !alive[g.root as usize] {
        return false;
    }
    if alive.iter().any(|a| !a) {
        for rule in &mut g.rules {
            match &mut rule.body {
                Body::Expr(e) => {
                    cut(e, &alive);
                }
                Body::Object(o) => cut_object(o, &alive),
                _ => {}
            }
        }
    }
    sweep(g);
    true
}

/// The rules that the root cannot do without, or one of which it needs, the nearest first.
pub(super) fn needed(g: &Grammar) -> impl Iterator<Item = RuleId> + '_ {
    let mut found = vec![g.root];
    let mut seen = vec![false; g.rules.len()];
    seen[g.root as usize] = true;
    let mut next = 0;
    std::iter::from_fn(move || {
        let rule = *found.get(next)?;
        next += 1;
        let mut mentions = vec![];
        match &g.rules[rule as usize].body {
            Body::Object(o) => {
                let required = o.properties.iter().filter(|p| p.required).filter_map(|p| p.value.as_ref());
                required.for_each(|e| necessary(e, &mut mentions));
            }
            Body::Expr(e) => necessary(e, &mut mentions),
            _ => {}
        }
        found.extend(mentions.into_iter().filter(|m| !std::mem::replace(&mut seen[*m as usize], true)));
        Some(rule)
    })
}

/// References that are not left out.
fn necessary(e: &Expr, out: &mut Vec<RuleId>) {
    match e {
        Expr::Rule(r) | Expr::Call { rule: r, .. } => out.push(*r),
        Expr::Seq(v) | Expr::Alt(v) => v.iter().for_each(|e| necessary(e, out)),
        Expr::Repeat { body, min: 1.., .. } => necessary(body, out),
        _ => {}
    }
}

fn productive(g: &Grammar) -> Vec<bool> {
    let mut alive = vec![false; g.rules.len()];
    // Who waits for whom; a rule is looked at again when something it mentions became productive.
    let mut users: Vec<Vec<RuleId>> = vec![vec![]; g.rules.len()];
    let mut mentions = vec![];
    for (i, rule) in g.rules.iter().enumerate() {
        mentions.clear();
        references(&rule.body, &mut mentions);
        for m in &mentions {
            if users[*m as usize].last() != Some(&(i as RuleId)) {
                users[*m as usize].push(i as RuleId);
            }
        }
    }
    let mut work: Vec<RuleId> = (0..g.rules.len() as RuleId).rev().collect();
    while let Some(i) = work.pop() {
        if !alive[i as usize] && body_lives(&g.rules[i as usize].body, &alive) {
            alive[i as usize] = true;
            work.extend(users[i as usize].iter().copied().filter(|u| !alive[*u as usize]));
        }
    }
    alive
}

fn body_lives(body: &Body, alive: &[bool]) -> bool {
    match body {
        Body::Expr(e) => lives(e, alive),
        Body::Object(o) => {
            let value = |v: &Option<Expr>| v.as_ref().is_some_and(|e| lives(e, alive));
            if o.properties.iter().any(|p| p.required && !value(&p.value)) {
                return false;
            }
            let possible = o.properties.iter().filter(|p| value(&p.value)).count();
            let met = o.others.iter().filter(|p| lives(&p.value, alive)).fold(0, |bits, p| bits | p.marks);
            if met != o.needs() {
                return false;
            }
            o.others.iter().any(|p| lives(&p.value, alive)) || possible >= o.min_properties as usize
        }
        _ => true,
    }
}

fn lives(e: &Expr, alive: &[bool]) -> bool {
    match e {
        Expr::Never => false,
        Expr::Seq(v) | Expr::And(v) => v.iter().all(|e| lives(e, alive)),
        Expr::Alt(v) => v.iter().any(|e| lives(e, alive)),
        Expr::Repeat { body, min, .. } => *min == 0 || lives(body, alive),
        Expr::Rule(r) | Expr::Call { rule: r, .. } => alive[*r as usize],
        Expr::Sub(a, _) => lives(a, alive),
        Expr::Automaton(d) => !d.is_empty(),
        Expr::Class(c) => !c.is_empty(),
        _ => true,
    }
}

/// Take dead parts out of an expression; `false` if it is dead itself.
fn cut(e: &mut Expr, alive: &[bool]) -> bool {
    match e {
        Expr::Seq(v) => {
            let alive = v.iter_mut().all(|e| cut(e, alive));
            if !alive {
                *e = Expr::Never;
            }
        }
        Expr::Alt(v) => {
            v.retain_mut(|e| cut(e, alive));
            if v.is_empty() {
                *e = Expr::Never;
            }
        }
        Expr::Repeat { body, min, .. } => {
            let alive = cut(body, alive);
            if !alive {
                *e = if *min == 0 { Expr::Empty } else { Expr::Never };
            }
        }
        _ if !lives(e, alive) => *e = Expr::Never,
        _ => {}
    }
    *e != Expr::Never
}

fn cut_object(o: &mut ObjectRule, alive: &[bool]) {
    for p in &mut o.properties {
        if p.value.as_mut().is_some_and(|e| !cut(e, alive)) {
            p.value = None;
        }
    }
    o.others.retain_mut(|p| cut(&mut p.value, alive));
}

fn references(body: &Body, out: &mut Vec<RuleId>) {
    match body {
        Body::Expr(e) => expr_references(e, out),
        Body::Object(o) => {
            for e in o.properties.iter().filter_map(|p| p.value.as_ref()).chain(o.others.iter().map(|p| &p.value)) {
                expr_references(e, out);
            }
        }
        _ => {}
    }
}

fn expr_references(e: &Expr, out: &mut Vec<RuleId>) {
    match e {
        Expr::Rule(r) | Expr::Call { rule: r, .. } => out.push(*r),
        Expr::Seq(v) | Expr::Alt(v) => v.iter().for_each(|e| expr_references(e, out)),
        Expr::Repeat { body, .. } => expr_references(body, out),
        _ => {}
    }
}

/// Keep only what the root reaches, in the order of the numbers.
fn sweep(g: &mut Grammar) {
    let mut reached = vec![false; g.rules.len()];
    let mut work = vec![g.root];
    reached[g.root as usize] = true;
    let mut mentions = vec![];
    while let Some(i) = work.pop() {
        mentions.clear();
        references(&g.rules[i as usize].body, &mut mentions);
        for m in &mentions {
            if !std::mem::replace(&mut reached[*m as usize], true) {
                work.push(*m);
            }
        }
    }
    if reached.iter().all(|r| *r) {
        return;
    }
    let mut number = vec![0; g.rules.len()];
    let mut n = 0;
    for (i, r) in reached.iter().enumerate() {
        number[i] = n;
        n += *r as RuleId;
    }
    let mut i = 0;
    g.rules.retain(|_| {
        i += 1;
        reached[i - 1]
    });
    for rule in &mut g.rules {
        match &mut rule.body {
            Body::Expr(e) => renumber(e, &number),
            Body::Object(o) => {
                o.properties.iter_mut().filter_map(|p| p.value.as_mut()).for_each(|e| renumber(e, &number));
                o.others.iter_mut().for_each(|p| renumber(&mut p.value, &number));
            }
            _ => {}
        }
    }
    g.root = number[g.root as usize];
}

fn renumber(e: &mut Expr, number: &[RuleId]) {
    match e {
        Expr::Rule(r) | Expr::Call { rule: r, .. } => *r = number[*r as usize],
        Expr::Seq(v) | Expr::Alt(v) => v.iter_mut().for_each(|e| renumber(e, number)),
        Expr::Repeat { body, .. } => renumber(body, number),
        _ => {}
    }
}
