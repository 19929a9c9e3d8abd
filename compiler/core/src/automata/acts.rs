//! The table of acts of an automaton: op lists, interned, composed and normalised.

use rustc_hash::FxHashMap;

use crate::error::{CompileError, Result};
use crate::fsm::{Op, PLAIN, REJECT, UNBOUNDED};

/// Interned op lists; id 0 is the empty one.
#[derive(Clone, Debug)]
pub struct Acts {
    list: Vec<Vec<Op>>,
    ids: FxHashMap<Vec<Op>, u16>,
    composed: FxHashMap<(u16, u16), u16>,
}

impl Default for Acts {
    fn default() -> Self {
        Acts { list: vec![vec![]], ids: FxHashMap::default(), composed: FxHashMap::default() }
    }
}

impl Acts {
    /// The id of an op list, which is normalised first (see [`normalise`]).
    pub fn intern(&mut self, ops: &[Op]) -> Result<u16> {
        if ops.is_empty() {
            return Ok(PLAIN);
        }
        let mut ops = ops.to_vec();
        normalise(&mut ops);
        if let Some(&id) = self.ids.get(&ops) {
            return Ok(id);
        }
        let id = u16::try_from(self.list.len()).ok().filter(|&id| id != REJECT).ok_or_else(|| {
            CompileError::limit("fsm_states", "the number of register programs of one rule", u64::from(REJECT))
        })?;
        self.list.push(ops.clone());
        self.ids.insert(ops, id);
        Ok(id)
    }

    /// The act that runs `a`, then `b`.
    #[inline]
    pub fn compose(&mut self, a: u16, b: u16) -> Result<u16> {
        if a == PLAIN {
            return Ok(b);
        }
        if b == PLAIN {
            return Ok(a);
        }
        if let Some(&id) = self.composed.get(&(a, b)) {
            return Ok(id);
        }
        let ops = [self.ops(a), self.ops(b)].concat();
        let id = self.intern(&ops)?;
        self.composed.insert((a, b), id);
        Ok(id)
    }

    pub fn ops(&self, act: u16) -> &[Op] {
        self.list.get(usize::from(act)).map_or(&[], Vec::as_slice)
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    /// All op lists, by id.
    pub fn into_list(self) -> Vec<Vec<Op>> {
        self.list
    }
}

/// The counter of an op that touches a counter and nothing else.
fn counter(op: &Op) -> Option<u8> {
    match *op {
        Op::Load { r, .. } | Op::Tick { r } | Op::Exit { r } | Op::Room { r } => Some(r),
        _ => None,
    }
}

/// Brings an op list to a normal form with the same effect, so that equal acts get equal ids.
///
/// An act succeeds as a whole or not at all, so operations on different counters commute: they are sorted by counter
/// (unless the act touches the key register, whose `Spare` reads a counter). Then neighbours on one counter fold, which
/// turns `Load, Tick` (entering a counted loop) into one `Load`.
fn normalise(ops: &mut Vec<Op>) {
    if ops.iter().all(|op| counter(op).is_some()) {
        ops.sort_by_key(|op| counter(op).unwrap_or(0));
    }
    let mut out: Vec<Op> = Vec::with_capacity(ops.len());
    for &op in ops.iter() {
        let folded = match (out.last(), op) {
            (Some(&Op::Load { r, min, max }), Op::Tick { r: s }) if r == s && max > 0 => {
                Some(Op::Load { r, min: min.saturating_sub(1), max: if max == UNBOUNDED { max } else { max - 1 } })
            }
            (Some(&Op::Load { r, min: 0, .. }), Op::Exit { r: s }) if r == s => Some(Op::Load { r, min: 0, max: 0 }),
            (Some(&Op::Load { r, .. }), Op::Load { r: s, min, max }) if r == s => Some(Op::Load { r, min, max }),
            (Some(&Op::Load { r, min, max }), Op::Room { r: s }) if r == s && max > 0 => Some(Op::Load { r, min, max }),
            (Some(&Op::Room { r }), Op::Tick { r: s }) if r == s => Some(Op::Tick { r }),
            (Some(&Op::Room { r }), Op::Room { r: s }) if r == s => Some(Op::Room { r }),
            _ => None,
        };
        match (folded, out.last_mut()) {
            (Some(f), Some(last)) => *last = f,
            _ => out.push(op),
        }
    }
    *ops = out;
}
