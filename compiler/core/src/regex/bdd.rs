//! Reduced ordered binary decision diagrams: Boolean functions in canonical form, so that equal functions are equal
//! numbers.

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::limits::Budget;

/// A Boolean function.
pub type Bdd = u32;

pub const FALSE: Bdd = 0;
pub const TRUE: Bdd = 1;

/// Variable of the two constants, after all others.
const LEAF: u32 = u32::MAX;

pub struct Diagrams<'a> {
    /// (variable, function if false, function if true).
    nodes: Vec<(u32, Bdd, Bdd)>,
    unique: FxHashMap<(u32, Bdd, Bdd), Bdd>,
    choices: FxHashMap<(Bdd, Bdd, Bdd), Bdd>,
    budget: &'a Budget,
}

impl<'a> Diagrams<'a> {
    pub fn new(budget: &'a Budget) -> Self {
        Diagrams {
            nodes: vec![(LEAF, FALSE, FALSE), (LEAF, TRUE, TRUE)],
            unique: FxHashMap::default(),
            choices: FxHashMap::default(),
            budget,
        }
    }

    /// (variable, function if false, function if true) of a function that is no constant.
    pub fn node(&self, f: Bdd) -> (u32, Bdd, Bdd) {
        self.nodes[f as usize]
    }

    fn make(&mut self, var: u32, lo: Bdd, hi: Bdd) -> Result<Bdd> {
        if lo == hi {
            return Ok(lo);
        }
        if let Some(&f) = self.unique.get(&(var, lo, hi)) {
            return Ok(f);
        }
        self.budget.states(1)?;
        let f = self.nodes.len() as Bdd;
        self.nodes.push((var, lo, hi));
        self.unique.insert((var, lo, hi), f);
        Ok(f)
    }

    pub fn variable(&mut self, var: u32) -> Result<Bdd> {
        self.make(var, FALSE, TRUE)
    }

    /// `g` where `f`, else `h`. Recursion is as deep as there are variables.
    pub fn choose(&mut self, f: Bdd, g: Bdd, h: Bdd) -> Result<Bdd> {
        match (f, g, h) {
            (TRUE, _, _) => return Ok(g),
            (FALSE, _, _) => return Ok(h),
            (_, TRUE, FALSE) => return Ok(f),
            _ if g == h => return Ok(g),
            _ => {}
        }
        if let Some(&r) = self.choices.get(&(f, g, h)) {
            return Ok(r);
        }
        self.budget.tick()?;
        let (a, b, c) = (self.node(f), self.node(g), self.node(h));
        let var = a.0.min(b.0).min(c.0);
        let split = |n: (u32, Bdd, Bdd), whole: Bdd| if n.0 == var { (n.1, n.2) } else { (whole, whole) };
        let ((f0, f1), (g0, g1), (h0, h1)) = (split(a, f), split(b, g), split(c, h));
        let lo = self.choose(f0, g0, h0)?;
        let hi = self.choose(f1, g1, h1)?;
        let r = self.make(var, lo, hi)?;
        self.choices.insert((f, g, h), r);
        Ok(r)
    }

    pub fn and(&mut self, f: Bdd, g: Bdd) -> Result<Bdd> {
        self.choose(f, g, FALSE)
    }

    pub fn or(&mut self, f: Bdd, g: Bdd) -> Result<Bdd> {
        self.choose(f, TRUE, g)
    }

    pub fn not(&mut self, f: Bdd) -> Result<Bdd> {
        self.choose(f, FALSE, TRUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn equal_functions_are_equal_numbers() {
        let budget = Budget::new(Limits::default());
        let mut d = Diagrams::new(&budget);
        let (x, y, z) = (d.variable(0).unwrap(), d.variable(1).unwrap(), d.variable(2).unwrap());
        let yz = d.and(y, z).unwrap();
        let a = d.or(x, yz).unwrap();
        let (xy, xz) = (d.or(y, x).unwrap(), d.or(z, x).unwrap());
        assert_eq!(d.and(xz, xy).unwrap(), a);
        let n = d.not(a).unwrap();
        assert_eq!(d.or(a, n).unwrap(), TRUE);
        assert_eq!(d.and(a, n).unwrap(), FALSE);
        assert_eq!(d.not(n).unwrap(), a);
    }
}
