//! From an automaton over classes of code points to one over bytes.

use rustc_hash::FxHashMap;

use super::class::Ranges;
use super::Alphabet;
use crate::error::Result;
use crate::ir::{Dfa, DfaState, Expr};
use crate::limits::Budget;
use crate::lower;

/// No target.
pub const NONE: u32 = u32::MAX;

type Edges = Vec<(u8, u8, u32)>;

/// One automaton that reads any character and tells its class: the classes' spellings, merged. They are disjoint and no
/// spelling is a prefix of another.
struct Reader {
    nodes: Vec<Edges>,
}

/// Targets of [`Reader`] edges at and above this are classes.
const LEAF: u32 = 1 << 31;

impl Reader {
    fn new(classes: &[Ranges], alphabet: Alphabet, budget: &Budget) -> Result<Reader> {
        let mut spellings = Vec::with_capacity(classes.len());
        for ranges in classes {
            let ranges = ranges.clone();
            let e = match alphabet {
                Alphabet::Utf8 => Expr::Chars(ranges),
                Alphabet::Json => Expr::JsonChars { ranges, free: false },
            };
            spellings.push(lower::dfa(&e, budget)?);
        }
        let start: Vec<(u32, u32)> = (0..classes.len() as u32).map(|c| (c, 0)).collect();
        let mut ids: FxHashMap<Vec<(u32, u32)>, u32> = FxHashMap::default();
        ids.insert(start.clone(), 0);
        let mut todo = vec![start];
        let mut nodes = vec![];
        while nodes.len() < todo.len() {
            let at = todo[nodes.len()].clone();
            budget.states(1)?;
            let edges =
                |&(c, q): &(u32, u32)| spellings[c as usize].states[q as usize].edges.iter().map(move |e| (c, e));
            let mut cuts: Vec<u16> =
                at.iter().flat_map(edges).flat_map(|(_, e)| [e.0 as u16, e.1 as u16 + 1]).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let mut out: Edges = vec![];
            for w in cuts.windows(2) {
                let (lo, hi) = (w[0] as u8, (w[1] - 1) as u8);
                let to: Vec<(u32, u32)> =
                    at.iter().flat_map(edges).filter(|(_, e)| e.0 <= lo && hi <= e.1).map(|(c, e)| (c, e.2)).collect();
                let target = match to.first() {
                    None => continue,
                    Some(&(c, q)) if spellings[c as usize].states[q as usize].accept => LEAF + c,
                    Some(_) => *ids.entry(to.clone()).or_insert_with(|| {
                        todo.push(to);
                        todo.len() as u32 - 1
                    }),
                };
                push_edge(&mut out, lo, hi, target);
            }
            nodes.push(out);
        }
        Ok(Reader { nodes })
    }
}

fn push_edge(edges: &mut Edges, lo: u8, hi: u8, target: u32) {
    match edges.last_mut() {
        Some(last) if last.2 == target && last.1.checked_add(1) == Some(lo) => last.1 = hi,
        _ => edges.push((lo, hi, target)),
    }
}

/// Row `s` of `rows` holds the target of state `s` for each class. State 0 is the start.
pub fn spelled(
    classes: &[Ranges],
    rows: &[Vec<u32>],
    accepts: &[bool],
    alphabet: Alphabet,
    budget: &Budget,
) -> Result<Dfa> {
    let live = live(rows, accepts);
    let reader = Reader::new(classes, alphabet, budget)?;
    let mut dfa = Dfa { states: vec![DfaState::default(); rows.len()] };
    let mut shared: FxHashMap<Edges, u32> = FxHashMap::default();
    for (s, row) in rows.iter().enumerate() {
        if !live[s] && s != 0 {
            continue;
        }
        dfa.states[s].accept = accepts[s];
        let mut done: FxHashMap<u32, u32> = FxHashMap::default();
        let target = |class: u32| match row[class as usize] {
            NONE => NONE,
            t if live[t as usize] => t,
            _ => NONE,
        };
        // Reader nodes form an acyclic graph: children first, on an explicit stack.
        let mut stack = vec![0u32];
        while let Some(&node) = stack.last() {
            let edges = &reader.nodes[node as usize];
            let missing = edges.iter().find(|e| e.2 < LEAF && !done.contains_key(&e.2));
            if let Some(e) = missing {
                stack.push(e.2);
                continue;
            }
            stack.pop();
            let mut out: Edges = vec![];
            for &(lo, hi, to) in edges {
                let to = if to >= LEAF { target(to - LEAF) } else { done[&to] };
                if to != NONE {
                    push_edge(&mut out, lo, hi, to);
                }
            }
            if node == 0 {
                dfa.states[s].edges = out;
                break;
            }
            let id = if out.is_empty() {
                NONE
            } else if let Some(&id) = shared.get(&out) {
                id
            } else {
                budget.states(1)?;
                let id = dfa.states.len() as u32;
                dfa.states.push(DfaState { edges: out.clone(), accept: false });
                shared.insert(out, id);
                id
            };
            done.insert(node, id);
        }
    }
    Ok(dfa)
}

/// The states from which some string is accepted.
fn live(rows: &[Vec<u32>], accepts: &[bool]) -> Vec<bool> {
    let mut sources: Vec<Vec<u32>> = vec![vec![]; rows.len()];
    for (s, row) in rows.iter().enumerate() {
        let mut to = row.clone();
        to.sort_unstable();
        to.dedup();
        for t in to.into_iter().filter(|&t| t != NONE) {
            sources[t as usize].push(s as u32);
        }
    }
    let mut live = accepts.to_vec();
    let mut todo: Vec<usize> = (0..rows.len()).filter(|&s| accepts[s]).collect();
    while let Some(s) = todo.pop() {
        for &from in &sources[s] {
            if !std::mem::replace(&mut live[from as usize], true) {
                todo.push(from as usize);
            }
        }
    }
    live
}
