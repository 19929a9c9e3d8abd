//! Bounds on the work that one compilation may do, and the budget that checks them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{CompileError, Result};

/// What one compilation may use. Every bound ends in a typed error that names the field to raise.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of source text.
    pub source_bytes: usize,
    /// Nesting of the source: JSON values, groups of a pattern.
    pub depth: usize,
    /// States of all automata built on the way, those thrown away included.
    pub fsm_states: usize,
    /// Items of one Earley set, at run time.
    pub items_per_set: usize,
    /// Bytes that the parse tables of one compiled grammar may hold before they are flushed.
    pub memory: usize,
    /// Wall-clock time of compiling.
    pub seconds: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            source_bytes: 16 << 20,
            depth: 2_000,
            fsm_states: 1_000_000,
            items_per_set: 1_000,
            memory: 256 << 20,
            seconds: 30.0,
        }
    }
}

/// The running account of one compilation. Cheap to ask; shared by reference through all of its stages.
#[derive(Debug)]
pub struct Budget {
    pub limits: Limits,
    started: Instant,
    states: std::cell::Cell<usize>,
    asked: AtomicU32,
    cancelled: Arc<AtomicBool>,
}

impl Budget {
    pub fn new(limits: Limits) -> Self {
        Self::cancellable(limits, Arc::new(AtomicBool::new(false)))
    }

    /// A budget that fails with [`CompileError::Cancelled`] once `flag` is set.
    pub fn cancellable(limits: Limits, flag: Arc<AtomicBool>) -> Self {
        Budget {
            limits,
            started: Instant::now(),
            states: std::cell::Cell::new(0),
            asked: AtomicU32::new(0),
            cancelled: flag,
        }
    }

    /// An account of its own for an attempt that may be given up: at most `states` states, and the same clock.
    pub fn part(&self, states: usize) -> Budget {
        let fsm_states = states.min(self.limits.fsm_states.saturating_sub(self.states.get()));
        Budget {
            limits: Limits { fsm_states, ..self.limits.clone() },
            started: self.started,
            states: std::cell::Cell::new(0),
            asked: AtomicU32::new(0),
            cancelled: self.cancelled.clone(),
        }
    }

    /// The states accounted for so far.
    pub fn spent(&self) -> usize {
        self.states.get()
    }

    /// Account for `n` new automaton states; also the place where time and cancellation are checked.
    #[inline]
    pub fn states(&self, n: usize) -> Result<()> {
        let total = self.states.get() + n;
        self.states.set(total);
        if total > self.limits.fsm_states {
            return Err(CompileError::limit("fsm_states", "the number of FSM states", self.limits.fsm_states as u64));
        }
        self.tick()
    }

    /// Check time and cancellation, at most every 256th call.
    #[inline]
    pub fn tick(&self) -> Result<()> {
        if self.asked.fetch_add(1, Ordering::Relaxed) & 0xff != 0 {
            return Ok(());
        }
        self.check()
    }

    /// Check time and cancellation now.
    pub fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(CompileError::Cancelled);
        }
        let limit = self.limits.seconds.clamp(0.0, 1e9);
        if self.started.elapsed() > Duration::from_secs_f64(limit) {
            return Err(CompileError::limit("seconds", "the time spent compiling", self.limits.seconds as u64));
        }
        Ok(())
    }

    pub fn depth(&self, depth: usize) -> Result<()> {
        if depth > self.limits.depth {
            return Err(CompileError::limit("depth", "the nesting of the source", self.limits.depth as u64));
        }
        Ok(())
    }

    pub fn source(&self, bytes: usize) -> Result<()> {
        if bytes > self.limits.source_bytes {
            return Err(CompileError::limit("source_bytes", "the size of the source", self.limits.source_bytes as u64));
        }
        Ok(())
    }
}
