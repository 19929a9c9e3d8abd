//! The machine's memory: generations, and tables that are handed on.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::intern::Interner;
use super::{Item, Machine, Set, SetLoop, Wait, DEAD_SET, OUTSIDE, TAG, TOP};
use crate::program::Program;

/// The memory of a machine that is no more, for the next one: fresh memory costs a page fault for every 4 KiB, which is
/// more than what most requests do with it.
#[derive(Debug, Default)]
pub struct Spare {
    kernels: Interner<Item>,
    sets: Vec<Set>,
    regs: Interner<u32>,
    scans: Vec<Item>,
    waits: Vec<Wait>,
    rows: Vec<u32>,
    loops: Vec<SetLoop>,
}

impl Machine {
    /// The same, in the memory of another machine.
    pub fn reusing(spare: Spare, program: Arc<Program>, items_per_set: usize, reach: u32) -> Machine {
        let Spare { kernels, sets, regs, scans, waits, rows, loops } = spare;
        let mut m = Machine {
            program,
            nodes: vec![],
            by_link: FxHashMap::default(),
            kernels,
            sets,
            regs,
            scans,
            waits,
            rows,
            loops,
            items_per_set,
            reach,
            overflow: false,
            fresh: vec![],
            visited: vec![],
            watch: None,
        };
        m.seed();
        m
    }

    /// Take the memory out; the machine must not be used any more.
    pub fn take_spare(&mut self) -> Spare {
        let mut spare = Spare {
            kernels: std::mem::take(&mut self.kernels),
            sets: std::mem::take(&mut self.sets),
            regs: std::mem::take(&mut self.regs),
            scans: std::mem::take(&mut self.scans),
            waits: std::mem::take(&mut self.waits),
            rows: std::mem::take(&mut self.rows),
            loops: std::mem::take(&mut self.loops),
        };
        spare.kernels.clear();
        spare.regs.clear();
        spare.sets.clear();
        spare.scans.clear();
        spare.waits.clear();
        spare.rows.clear();
        spare.loops.clear();
        spare
    }

    /// Forget all sets; nodes stay bound.
    pub fn clear(&mut self) {
        let spare = self.take_spare();
        Spare {
            kernels: self.kernels,
            sets: self.sets,
            regs: self.regs,
            scans: self.scans,
            waits: self.waits,
            rows: self.rows,
            loops: self.loops,
        } = spare;
        self.overflow = false;
        self.seed();
    }

    /// Bytes held.
    pub fn size(&self) -> usize {
        self.kernels.size()
            + self.regs.size()
            + self.sets.len() * std::mem::size_of::<Set>()
            + self.scans.len() * std::mem::size_of::<Item>()
            + self.waits.len() * std::mem::size_of::<Wait>()
            + self.rows.len() * 4
    }

    /// Start a new generation that holds only the sets in `live` and their return chains (R12). Every number in `live`
    /// is replaced by its new one; all other numbers are void.
    pub fn flush<'a>(&mut self, live: impl IntoIterator<Item = &'a mut u32>) {
        let live: Vec<&mut u32> = live.into_iter().collect();
        let n = self.sets.len();
        let mut keep = vec![false; n];
        live.iter().for_each(|s| keep[**s as usize] = true);
        // A set's return sets have smaller numbers, so one pass down marks and one pass up rebuilds.
        for s in (OUTSIDE as usize + 1..n).rev() {
            if keep[s] {
                for item in self.kernels.get(s as u32).iter().filter(|i| !i.is_mark()) {
                    keep[(item.ret & !TAG) as usize] = true;
                }
            }
        }
        let kernels = std::mem::take(&mut self.kernels);
        let regs = std::mem::take(&mut self.regs);
        self.sets = vec![];
        self.scans = vec![];
        self.waits = vec![];
        self.rows = vec![];
        self.loops = vec![];
        self.seed();
        let mut map = vec![DEAD_SET; n];
        map[TOP as usize] = TOP;
        map[OUTSIDE as usize] = OUTSIDE;
        for s in OUTSIDE as usize + 1..n {
            if !keep[s] {
                continue;
            }
            let mut fresh: Vec<Item> = vec![];
            for &(mut item) in kernels.get(s as u32) {
                if !item.is_mark() {
                    item.ret = map[(item.ret & !TAG) as usize] | (item.ret & TAG);
                    item.regs = self.intern_regs(regs.get(item.regs));
                }
                fresh.push(item);
            }
            self.fresh = fresh;
            map[s] = self.intern_fresh();
        }
        for s in live {
            *s = map[*s as usize];
        }
    }
}
