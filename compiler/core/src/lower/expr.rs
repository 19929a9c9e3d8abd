//! Expressions put between two states of a [`Builder`].
//!
//! The construction is driven by an explicit stack of tasks, so its depth costs no call stack.

use super::measure::{check_depth, nullable};
use super::{Builder, Lowered};
use crate::error::{CompileError, Result};
use crate::fsm::{Callee, ANY_TOKEN, DEAD, PLAIN, UNBOUNDED};
use crate::ir::Expr;
use crate::limits::Budget;

/// Lowers an expression. `rule_nullable[i]` says whether rule `i` matches the empty string (rules beyond its end do not).
pub fn lower_expr(e: &Expr, rule_nullable: &[bool], budget: &Budget) -> Result<Lowered> {
    Builder::new(rule_nullable, budget).lower(e)
}

/// One expression still to be put between two states.
pub(super) struct Task<'e> {
    pub e: &'e Expr,
    pub from: u32,
    pub to: u32,
    /// Only the non-empty strings of `e`.
    pub nonempty: bool,
    /// The next free counter.
    pub counter: u8,
}

impl Builder<'_> {
    /// Puts `e` between two states, which may be equal (a loop) and may have other edges. Afterwards every string of `e`
    /// leads from `from` to `to`; nothing else of it touches the two states' own meaning.
    pub fn expr(&mut self, e: &Expr, from: u32, to: u32) -> Result<()> {
        check_depth(e, self.budget)?;
        let mut tasks = vec![Task { e, from, to, nonempty: false, counter: self.first_counter }];
        while let Some(task) = tasks.pop() {
            self.step(task, &mut tasks)?;
        }
        Ok(())
    }

    /// Lowers `e` alone, in a builder that holds nothing else.
    pub(super) fn lower(mut self, e: &Expr) -> Result<Lowered> {
        let (start, end) = (self.state()?, self.state()?);
        self.expr(e, start, end)?;
        self.accept(end, PLAIN);
        self.finish(start)
    }

    fn step<'e>(&mut self, task: Task<'e>, tasks: &mut Vec<Task<'e>>) -> Result<()> {
        let Task { e, from, to, nonempty, counter } = task;
        match e {
            Expr::Never => {}
            Expr::Empty => {
                if !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
            }
            Expr::Distinct => {
                self.only_outside("a mark")?;
                if !nonempty {
                    let at = self.state()?;
                    self.mark(at);
                    self.epsilon(from, PLAIN, at);
                    self.epsilon(at, PLAIN, to);
                }
            }
            Expr::Bytes(bytes) => {
                if !bytes.is_empty() {
                    self.literal(from, bytes, PLAIN, to)?;
                } else if !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
            }
            Expr::Class(ranges) => {
                for &(lo, hi) in ranges {
                    self.byte(from, lo, hi, PLAIN, to);
                }
            }
            Expr::Chars(ranges) => self.chars(ranges, 0, from, to)?,
            Expr::JsonChars { ranges, free } => self.chars(ranges, 1 + u8::from(*free), from, to)?,
            Expr::Seq(items) => self.sequence(items, task, tasks)?,
            Expr::Alt(items) => {
                let others = self.texts(items, from, to)?;
                tasks.extend(others.into_iter().rev().map(|e| Task { e, from, to, nonempty, counter }));
            }
            Expr::Repeat { body, min, max } => self.repeat(body, *min, *max, task, tasks)?,
            Expr::Rule(rule) => self.rule(*rule, None, from, to, nonempty)?,
            Expr::Call { rule, args } => {
                let args: Vec<(u32, u32)> = args.iter().map(|&(a, b)| (a, b.unwrap_or(UNBOUNDED))).collect();
                self.rule(*rule, Some(&args), from, to, nonempty)?;
            }
            Expr::Token(id) => {
                self.only_outside("a special token")?;
                self.token(from, *id, PLAIN, to);
            }
            Expr::TokenExcept(except) => {
                self.only_outside("a set of tokens")?;
                // A state of its own: what is excluded here may be allowed beside it.
                let at = self.state()?;
                self.epsilon(from, PLAIN, at);
                except.iter().for_each(|&t| self.token(at, t, PLAIN, DEAD));
                self.token(at, ANY_TOKEN, PLAIN, to);
            }
            Expr::Hole(h) => {
                self.only_outside("a hole")?;
                self.reference(from, Callee::Hole(*h), None, PLAIN, to);
            }
            Expr::And(_) | Expr::Sub(..) => {
                let lowered = self.operator(e)?;
                if lowered.nullable && !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
                self.splice(&lowered.fsm, counter, from, to)?;
            }
            Expr::Automaton(dfa) => {
                let nullable = dfa.states.first().is_some_and(|s| s.accept);
                if nullable && !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
                self.splice_dfa(dfa, from, to)?;
            }
            Expr::Tokens(runs) => {
                self.only_outside("a set of tokens")?;
                if !nonempty {
                    self.epsilon(from, PLAIN, to);
                }
                self.token_runs(runs, from, to)?;
            }
        }
        Ok(())
    }

    /// A sequence. Its non-empty strings begin with a non-empty string of one item while those before it match nothing:
    /// each such item gets an edge of its own from `from` to where it ends in the ordinary chain.
    fn sequence<'e>(&mut self, items: &'e [Expr], task: Task<'e>, tasks: &mut Vec<Task<'e>>) -> Result<()> {
        let Task { from, to, nonempty, counter, .. } = task;
        if items.is_empty() {
            if !nonempty {
                self.epsilon(from, PLAIN, to);
            }
            return Ok(());
        }
        let mut skippable = nonempty;
        let mut at = from;
        let first = tasks.len();
        for (i, e) in items.iter().enumerate() {
            let next = if i + 1 == items.len() { to } else { self.state()? };
            if i > 0 || !skippable {
                tasks.push(Task { e, from: at, to: next, nonempty: false, counter });
            }
            if skippable {
                skippable = nullable(e, self.rule_nullable);
                tasks.push(Task { e, from, to: next, nonempty: true, counter });
            }
            at = next;
        }
        tasks[first..].reverse();
        Ok(())
    }

    fn rule(&mut self, rule: u32, args: Option<&[(u32, u32)]>, from: u32, to: u32, nonempty: bool) -> Result<()> {
        self.only_outside("a rule reference")?;
        if !nonempty && self.rule_nullable.get(rule as usize).copied().unwrap_or(false) {
            self.epsilon(from, PLAIN, to);
        }
        self.reference(from, Callee::Rule(rule), args, PLAIN, to);
        Ok(())
    }

    fn only_outside(&self, what: &str) -> Result<()> {
        if self.operators > 0 || self.exact {
            return Err(CompileError::invalid(
                "",
                format!(
                    "{what} is not possible inside an intersection or a difference, whose operands must be regular"
                ),
            ));
        }
        Ok(())
    }
}
