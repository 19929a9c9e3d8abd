//! Runs an FSM without references directly: slow, obvious, for tests and as an oracle.

use crate::fsm::{Fsm, Op, DEAD, NONE, NO_COUNTER, REJECT, UNBOUNDED};
use crate::ir::PropertyOrder;

/// The registers of a run: counters, and the keys seen (`Any`) or the position (`Declared`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Registers {
    pub counters: Vec<(u32, u32)>,
    pub seen: Vec<u32>,
    pub position: u32,
}

impl Registers {
    /// At the start of a unit that is called with `args`.
    pub fn initial(fsm: &Fsm, args: &[(u32, u32)]) -> Self {
        let mut counters = args.to_vec();
        counters.resize(usize::from(fsm.counters).max(args.len()), (0, 0));
        Registers { counters, seen: vec![], position: 0 }
    }

    /// Runs an act; `None` if one of its ops fails.
    pub fn run(&self, fsm: &Fsm, act: u16) -> Option<Registers> {
        let mut r = self.clone();
        for op in fsm.acts.get(usize::from(act))? {
            r.step(fsm, op)?;
        }
        Some(r)
    }

    fn step(&mut self, fsm: &Fsm, op: &Op) -> Option<()> {
        let check = |ok: bool| ok.then_some(());
        match *op {
            Op::Load { r, min, max } => self.counters[usize::from(r)] = (min, max),
            Op::Tick { r } => {
                let (need, room) = &mut self.counters[usize::from(r)];
                check(*room > 0)?;
                if *room != UNBOUNDED {
                    *room -= 1;
                }
                *need = need.saturating_sub(1);
            }
            Op::Exit { r } => {
                check(self.counters[usize::from(r)].0 == 0)?;
                self.counters[usize::from(r)] = (0, 0);
            }
            Op::Room { r } => check(self.counters[usize::from(r)].1 > 0)?,
            Op::Spare { r } => {
                check(self.counters[usize::from(r)].1 as usize > self.missing(fsm).count())?;
            }
            Op::Take { key } => {
                check(self.available(fsm, key))?;
                match fsm.keys.as_ref()?.order {
                    PropertyOrder::Any => {
                        self.seen.push(key);
                        self.seen.sort_unstable();
                    }
                    PropertyOrder::Declared => self.position = key + 1,
                }
            }
            Op::Avail { mask } => {
                let mask = fsm.keys.as_ref()?.masks.get(mask as usize)?;
                check(mask.iter().any(|&k| self.available(fsm, k)))?;
            }
            Op::Viable { r, mask, other } => {
                let keys = fsm.keys.as_ref()?;
                let counter = (r != NO_COUNTER).then(|| self.counters[usize::from(r)]);
                let missing = self.missing(fsm).count();
                let startable = |key: Option<u32>| {
                    let Some((need, room)) = counter else { return true };
                    let besides = missing - usize::from(key.is_some_and(|k| self.missing(fsm).any(|m| m == k)));
                    let declared_only = !keys.open && keys.order == PropertyOrder::Declared;
                    room as usize > besides && (!declared_only || key.is_none_or(|k| keys.keys - k >= need))
                };
                let declared = keys.masks.get(mask as usize)?;
                let undeclared = other && (keys.order == PropertyOrder::Any || missing == 0);
                check(
                    declared.iter().any(|&k| self.available(fsm, k) && startable(Some(k)))
                        || undeclared && startable(None),
                )?;
            }
            Op::Other => {
                let keys = fsm.keys.as_ref()?;
                if keys.order == PropertyOrder::Declared {
                    check(self.missing(fsm).next().is_none())?;
                    self.position = keys.keys;
                }
            }
            Op::More => {
                let keys = fsm.keys.as_ref()?;
                check(keys.open || (0..keys.keys).any(|k| self.available(fsm, k)))?;
            }
            Op::Close => {
                check(self.missing(fsm).next().is_none())?;
                self.seen.clear();
                self.position = 0;
            }
        }
        Some(())
    }

    /// Required keys not yet seen.
    fn missing<'a>(&'a self, fsm: &'a Fsm) -> impl Iterator<Item = u32> + 'a {
        fsm.keys.iter().flat_map(move |keys| {
            keys.required.iter().copied().filter(move |k| match keys.order {
                PropertyOrder::Any => !self.seen.contains(k),
                PropertyOrder::Declared => *k >= self.position,
            })
        })
    }

    fn available(&self, fsm: &Fsm, key: u32) -> bool {
        match fsm.keys.as_ref().map(|k| k.order) {
            None => false,
            Some(PropertyOrder::Any) => !self.seen.contains(&key),
            Some(PropertyOrder::Declared) => key >= self.position && self.missing(fsm).all(|k| k >= key),
        }
    }
}

/// All configurations after one byte.
pub fn step(fsm: &Fsm, configurations: &[(u32, Registers)], byte: u8) -> Vec<(u32, Registers)> {
    let mut next = vec![];
    for (s, registers) in configurations {
        let state = &fsm.states[*s as usize];
        let matching = |s: &crate::fsm::State| -> Vec<crate::fsm::Edge> {
            s.edges.iter().filter(|e| e.lo <= byte && byte <= e.hi).copied().collect()
        };
        let mut edges = matching(state);
        if edges.is_empty() && state.fallback != NONE {
            edges = matching(&fsm.states[state.fallback as usize]);
        }
        for e in edges {
            if e.target != DEAD {
                next.extend(registers.run(fsm, e.act).map(|r| (e.target, r)));
            }
        }
    }
    next.sort_unstable();
    next.dedup();
    next
}

/// Whether an FSM without references accepts a string, starting with `args` in its first counters.
pub fn accepts_with(fsm: &Fsm, args: &[(u32, u32)], bytes: &[u8]) -> bool {
    if fsm.states.is_empty() {
        return false;
    }
    let mut now = vec![(0, Registers::initial(fsm, args))];
    for &b in bytes {
        now = step(fsm, &now, b);
    }
    now.iter().any(|(s, r)| {
        let accept = fsm.states[*s as usize].accept;
        accept != REJECT && r.run(fsm, accept).is_some()
    })
}

/// Whether an FSM without references accepts a string.
pub fn accepts(fsm: &Fsm, bytes: &[u8]) -> bool {
    accepts_with(fsm, &[], bytes)
}
