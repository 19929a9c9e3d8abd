//! Minimization and canonical numbering.
//!
//! States are equivalent if they accept alike and have the same edges to equivalent states, an edge being labelled by its
//! byte range and act, its reference, or its token; a fallback counts as one more labelled edge and is not expanded. Byte
//! ranges are compared after merging neighbours that lead to the same class, so it does not matter how they were split.
//! A state that is marked `distinct` equals none that is not.
//!
//! How the classes are found is in [`super::classes`]. Where registers make an automaton nondeterministic the same
//! procedure computes bisimilarity, which is sound.

use super::classes::{equivalent, merge, successors};
use super::order::Order;
use crate::fsm::{Edge, Fsm, State, TokenEdge, ANY_TOKEN, DEAD, NONE, PLAIN, REJECT};

/// Whether no string (and no sequence of references and tokens) is accepted.
pub fn is_empty(fsm: &Fsm) -> bool {
    !live(fsm, &Order::of(fsm)).first().copied().unwrap_or(false)
}

/// The same for an FSM that [`minimize`] made: one look.
pub fn minimal_is_empty(fsm: &Fsm) -> bool {
    fsm.states.first().is_none_or(|s| {
        s.accept == REJECT && s.edges.is_empty() && s.refs.is_empty() && s.tokens.is_empty() && s.fallback == NONE
    })
}

/// The canonical form of `fsm`: without states that are unreachable or cannot reach acceptance, minimal, numbered
/// breadth-first from the start (which stays 0), with the tables of acts, callees and arguments sorted and free of unused
/// entries. If nothing is accepted, one state without edges.
pub fn minimize(mut fsm: Fsm) -> Fsm {
    let order = Order::of(&fsm);
    let live = live(&fsm, &order);
    if !live.first().copied().unwrap_or(false) {
        let (counters, keys) = (fsm.counters, fsm.keys);
        return Fsm { states: vec![State::default()], acts: vec![vec![]], counters, keys, ..Fsm::default() };
    }
    let pruned = prune(&mut fsm, &live);
    sort_tables(&mut fsm);
    let order = if pruned { Order::of(&fsm) } else { order };
    let class = equivalent(&fsm, &order);
    renumber(fsm, &class)
}

/// Which states can reach acceptance. Those that cannot be reached themselves count as if they could.
fn live(fsm: &Fsm, order: &Order) -> Vec<bool> {
    let mut live = vec![true; fsm.states.len()];
    for &s in &order.post {
        live[s as usize] = false;
    }
    let lives = |s: u32, live: &[bool]| {
        let state = &fsm.states[s as usize];
        let alive = |t: u32| live.get(t as usize).copied().unwrap_or(false);
        state.accept != REJECT
            || state.edges.iter().any(|e| alive(e.target))
            || state.refs.iter().any(|e| alive(e.target))
            || state.tokens.iter().any(|e| alive(e.target))
            // A fallback is not a way out by itself, its byte edges are.
            || fsm.states.get(state.fallback as usize).is_some_and(|f| f.edges.iter().any(|e| alive(e.target)))
    };
    let mut open: Vec<u32> = vec![];
    for &s in &order.post {
        live[s as usize] = lives(s, &live);
        if !live[s as usize] {
            open.push(s);
        }
    }
    if order.heads.is_empty() || open.is_empty() {
        return live;
    }
    // Some may live by a head, which came after them: they are looked at once more whenever what they lead to lives.
    let mut waiting: Vec<Vec<u32>> = vec![vec![]; fsm.states.len()];
    for &s in &open {
        let state = &fsm.states[s as usize];
        let inherited =
            fsm.states.get(state.fallback as usize).into_iter().flat_map(|f| f.edges.iter().map(|e| e.target));
        for t in successors(state).chain(inherited.filter(|&t| t != NONE)) {
            if !live[t as usize] {
                waiting[t as usize].push(s);
            }
        }
    }
    while let Some(s) = open.pop() {
        if !live[s as usize] && lives(s, &live) {
            live[s as usize] = true;
            open.append(&mut waiting[s as usize]);
        }
    }
    live
}

/// Removes edges into dead states, or turns them into blocks where a fallback would take over, and sorts byte edges.
/// Returns whether any edge was changed.
fn prune(fsm: &mut Fsm, live: &[bool]) -> bool {
    let alive = |t: u32| live.get(t as usize).copied().unwrap_or(false);
    let all = live.iter().all(|&l| l);
    // A state whose byte edges are all dead has nothing to inherit.
    let inheritable: Vec<bool> = fsm.states.iter().map(|s| s.edges.iter().any(|e| alive(e.target))).collect();
    let mut changed = !all;
    for s in &mut fsm.states {
        if s.fallback != NONE && !inheritable.get(s.fallback as usize).copied().unwrap_or(false) {
            s.fallback = NONE;
            changed = true;
        }
        if s.fallback == NONE {
            s.edges.retain(|e| alive(e.target));
        } else {
            for e in &mut s.edges {
                if !alive(e.target) {
                    *e = Edge { act: PLAIN, target: DEAD, ..*e };
                }
            }
        }
        if !all {
            s.refs.retain(|e| alive(e.target));
        }
        if !s.tokens.is_empty() {
            prune_tokens(&mut s.tokens, alive);
        }
        if s.edges.windows(2).any(|w| w[0] > w[1]) {
            s.edges.sort_unstable();
        }
    }
    changed
}

/// Removes token edges into dead states, or turns them into blocks where "any token" would take over.
fn prune_tokens(tokens: &mut Vec<TokenEdge>, alive: impl Fn(u32) -> bool) {
    if !tokens.iter().any(|e| e.token == ANY_TOKEN && alive(e.target)) {
        tokens.retain(|e| alive(e.target));
        return;
    }
    tokens.sort_unstable_by_key(|e| (e.token, !alive(e.target)));
    let mut taken = NONE;
    tokens.retain_mut(|e| {
        if alive(e.target) {
            taken = e.token;
            return true;
        }
        (e.act, e.target) = (PLAIN, DEAD);
        // One block a token, and none beside an edge that leads somewhere.
        let first = e.token != taken && e.token != ANY_TOKEN;
        taken = e.token;
        first
    });
    tokens.sort_unstable();
}

/// Drops unused acts, callees and argument lists and sorts the rest, so that equal automata get equal tables.
fn sort_tables(fsm: &mut Fsm) {
    if fsm.acts.is_empty() {
        fsm.acts.push(vec![]);
    }
    if fsm.acts.len() > 1 {
        let mut used = vec![false; fsm.acts.len()];
        for s in &fsm.states {
            let acts = s.edges.iter().map(|e| e.act).chain(s.refs.iter().map(|e| e.act));
            for a in acts.chain(s.tokens.iter().map(|e| e.act)).chain([s.accept]) {
                if let Some(u) = used.get_mut(usize::from(a)) {
                    *u = true;
                }
            }
        }
        used[usize::from(PLAIN)] = true;
        let map = sort_table(&mut fsm.acts, &used);
        let new = |a: u16| map.get(usize::from(a)).map_or(a, |&m| m as u16);
        for s in &mut fsm.states {
            s.edges.iter_mut().for_each(|e| e.act = new(e.act));
            s.refs.iter_mut().for_each(|e| e.act = new(e.act));
            s.tokens.iter_mut().for_each(|e| e.act = new(e.act));
            s.accept = new(s.accept);
            s.edges.sort_unstable();
        }
    }
    if !fsm.callees.is_empty() || !fsm.args.is_empty() {
        let mut callees = vec![false; fsm.callees.len()];
        let mut args = vec![false; fsm.args.len()];
        for e in fsm.states.iter().flat_map(|s| &s.refs) {
            callees[e.callee as usize] = true;
            if e.args != NONE {
                args[e.args as usize] = true;
            }
        }
        let callee_map = sort_table(&mut fsm.callees, &callees);
        let args_map = sort_table(&mut fsm.args, &args);
        for e in fsm.states.iter_mut().flat_map(|s| &mut s.refs) {
            e.callee = callee_map[e.callee as usize];
            if e.args != NONE {
                e.args = args_map[e.args as usize];
            }
        }
    }
}

/// Keeps the used entries of a table in sorted order and returns where each old index went.
fn sort_table<T: Ord + Clone>(table: &mut Vec<T>, used: &[bool]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..table.len() as u32).filter(|&i| used[i as usize]).collect();
    order.sort_by(|&a, &b| table[a as usize].cmp(&table[b as usize]));
    let mut map = vec![0; table.len()];
    let mut out: Vec<T> = Vec::with_capacity(order.len());
    for i in order {
        if out.last() != Some(&table[i as usize]) {
            out.push(table[i as usize].clone());
        }
        map[i as usize] = out.len() as u32 - 1;
    }
    *table = out;
    map
}

/// One state for each class that is reachable from the start, breadth-first.
fn renumber(mut fsm: Fsm, class: &[u32]) -> Fsm {
    let known = || class.iter().enumerate().filter(|(_, &c)| c != NONE);
    let classes = known().map(|(_, &c)| c as usize + 1).max().unwrap_or(0);
    let mut number = vec![NONE; classes];
    // A state of each class.
    let mut some = vec![0; classes];
    known().for_each(|(s, &c)| some[c as usize] = s as u32);
    let mut order: Vec<u32> = vec![0];
    number[class[0] as usize] = 0;
    let mut states: Vec<State> = Vec::with_capacity(classes);
    while let Some(&s) = order.get(states.len()) {
        let mut state = std::mem::take(&mut fsm.states[s as usize]);
        let class_of = |t: u32| if t == NONE { NONE } else { class[t as usize] };
        let mut visit = |c: u32| {
            if c == NONE {
                return NONE;
            }
            let n = &mut number[c as usize];
            if *n == NONE {
                *n = order.len() as u32;
                order.push(some[c as usize]);
            }
            *n
        };
        // First merged, with classes for targets, then numbered: the order must not depend on how ranges were split.
        state.edges.iter_mut().for_each(|e| e.target = class_of(e.target));
        merge(&mut state.edges);
        state.edges.iter_mut().for_each(|e| e.target = visit(e.target));
        if state.edges.windows(2).any(|w| w[0] > w[1]) {
            state.edges.sort_unstable();
        }
        state.refs.sort_unstable();
        state.refs.iter_mut().for_each(|e| e.target = visit(class_of(e.target)));
        state.refs.sort_unstable();
        state.refs.dedup();
        state.tokens.sort_unstable();
        state.tokens.iter_mut().for_each(|e| e.target = visit(class_of(e.target)));
        state.tokens.sort_unstable();
        state.tokens.dedup();
        state.fallback = visit(class_of(state.fallback));
        states.push(state);
    }
    Fsm { states, ..fsm }
}
