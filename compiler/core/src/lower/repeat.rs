//! Repeats.
//!
//! `x*` and `x+` are loops. A bounded repeat is unrolled when it is small (at most [`UNROLL_COPIES`] copies that make at
//! most [`UNROLL_STATES`] states together), for copies that merge with their neighbours are cheaper at run time than
//! counter values. Every other one is a loop with a counter:
//!
//! ```text
//! from --[Load r, Tick r]--> s --body--> e --[Tick r]--> s
//!                                        e --[Exit r]--> to
//! ```
//!
//! (and `from --> to` if `min` is 0). The body is never nullable: a nullable body is replaced by its non-empty strings
//! and `min` by 0. So acts never stand on a cycle of epsilon edges, and each tick is checked on the first byte of its
//! iteration. Counters are numbered by nesting: a counter is `(0, 0)` outside of its loop, so loops that do not nest
//! share one. Two paths with equal acts have entered and left the same loops with the same bounds, which is why members of
//! a subset that were reached through equal acts agree about all registers.

use super::expr::Task;
use super::measure::{estimate, nullable, UNROLL_COPIES, UNROLL_STATES};
use super::Builder;
use crate::error::Result;
use crate::fsm::{Op, PLAIN, UNBOUNDED};
use crate::ir::Expr;

impl Builder<'_> {
    pub(super) fn repeat<'e>(
        &mut self,
        body: &'e Expr,
        min: u32,
        max: Option<u32>,
        task: Task<'e>,
        tasks: &mut Vec<Task<'e>>,
    ) -> Result<()> {
        let Task { from, to, mut nonempty, counter, .. } = task;
        if max.is_some_and(|m| m < min) {
            return Ok(());
        }
        if max == Some(0) || matches!(body, Expr::Empty) {
            if !nonempty {
                self.epsilon(from, PLAIN, to);
            }
            return Ok(());
        }
        if max == Some(1) && min == 1 {
            tasks.push(Task { e: body, ..task });
            return Ok(());
        }
        // From here on bodies match no empty string.
        let mut min = min;
        let body_nullable = nullable(body, self.rule_nullable);
        if body_nullable {
            min = 0;
        } else if min > 0 {
            nonempty = false;
        }
        if min == 0 {
            if nonempty {
                min = 1;
            } else if max.is_some() {
                self.epsilon(from, PLAIN, to);
                min = 1;
            }
        }
        let copy = |from, to, counter| Task { e: body, from, to, nonempty: body_nullable, counter };
        // Here min is 0 only for `x*`.
        let copies = max.unwrap_or(min);
        let small = copies <= 1
            || self.exact
            || copies <= UNROLL_COPIES && estimate(body).saturating_mul(copies as usize) <= UNROLL_STATES;
        if !small {
            return self.counted(copy, min, max, task, tasks);
        }
        match max {
            None if min == 0 => {
                let hub = self.state()?;
                self.epsilon(from, PLAIN, hub);
                self.epsilon(hub, PLAIN, to);
                tasks.push(copy(hub, hub, counter));
            }
            None => {
                let mut at = from;
                for _ in 1..min {
                    let next = self.state()?;
                    tasks.push(copy(at, next, counter));
                    at = next;
                }
                let (enter, leave) = (self.state()?, self.state()?);
                self.epsilon(at, PLAIN, enter);
                self.epsilon(leave, PLAIN, enter);
                self.epsilon(leave, PLAIN, to);
                tasks.push(copy(enter, leave, counter));
            }
            Some(max) => {
                let mut at = from;
                for i in 1..=max {
                    let next = if i == max { to } else { self.state()? };
                    tasks.push(copy(at, next, counter));
                    if i >= min && i < max {
                        self.epsilon(next, PLAIN, to);
                    }
                    at = next;
                }
            }
        }
        Ok(())
    }

    /// A loop with a counter. The case of no iteration at all has been dealt with.
    fn counted<'e>(
        &mut self,
        copy: impl Fn(u32, u32, u8) -> Task<'e>,
        min: u32,
        max: Option<u32>,
        task: Task<'e>,
        tasks: &mut Vec<Task<'e>>,
    ) -> Result<()> {
        let Task { from, to, counter: r, .. } = task;
        let inner = r.saturating_add(1);
        self.use_counters(inner)?;
        let enter = self.act(&[Op::Load { r, min, max: max.unwrap_or(UNBOUNDED) }, Op::Tick { r }])?;
        let (again, leave) = (self.act(&[Op::Tick { r }])?, self.act(&[Op::Exit { r }])?);
        let (first, last) = (self.state()?, self.state()?);
        self.epsilon(from, enter, first);
        self.epsilon(last, again, first);
        self.epsilon(last, leave, to);
        tasks.push(copy(first, last, inner));
        Ok(())
    }
}
