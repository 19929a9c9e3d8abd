//! Deriving digests again.

use rustc_hash::FxHashMap;

use super::unit::is_plain;
use super::{FlatUnit, What};
use crate::digest::digests_beside;
use crate::fsm::{Callee, Fsm};
use crate::limits::{Budget, Limits};
use crate::lower::grammar::LoweredRule;
use crate::tails;
use crate::unit::Digest;

/// Those of `units` whose digest does not follow from their content, by number, and why.
///
/// Digests of units that are not among them are taken as they stand: a unit is what it is whatever those turn out to be.
/// Units that refer to each other in a circle must all be there.
pub fn verify(units: &[(Digest, &[u8])]) -> Vec<(usize, String)> {
    let mut faults: Vec<(usize, String)> = vec![];
    let mut rules: Vec<LoweredRule> = vec![];
    // What each rule claims to be: node digest, unit digest, its number among `units`.
    let mut claims: Vec<(Digest, Digest, usize)> = vec![];
    let mut read: Vec<FlatUnit> = vec![];
    for (i, (digest, bytes)) in units.iter().enumerate() {
        match FlatUnit::parse(bytes) {
            Err(e) => faults.push((i, e.to_string())),
            Ok(flat) if flat.what == What::Tail => {
                if !is_plain(&flat.fsm)
                    || tails::digest(&flat.fsm, flat.callees.first()) != *digest
                    || flat.unit != *digest
                {
                    faults.push((i, DIFFERENT.to_owned()));
                }
            }
            Ok(flat) => {
                claims.push((*digest, flat.unit, i));
                read.push(flat);
            }
        }
    }
    let mut number: FxHashMap<Digest, u32> = FxHashMap::default();
    let mut known: Vec<Option<Digest>> = vec![];
    for (rule, claim) in claims.iter().enumerate() {
        if number.insert(claim.0, rule as u32).is_some() {
            faults.push((claim.2, "it is given twice".to_owned()));
        }
        known.push(None);
    }
    let mut outside: Vec<Digest> = vec![];
    let mut rule_of = |d: &Digest| -> u32 {
        *number.entry(*d).or_insert_with(|| {
            outside.push(*d);
            (claims.len() + outside.len() - 1) as u32
        })
    };
    for flat in read {
        let FlatUnit { mut fsm, callees, holes, .. } = flat;
        for c in &mut fsm.callees {
            if let Callee::Rule(r) = c {
                *r = rule_of(&callees[*r as usize]);
            }
        }
        let holes = holes.iter().map(&mut rule_of).collect();
        rules.push(LoweredRule { name: String::new(), fsm, holes });
    }
    for d in outside {
        rules.push(LoweredRule { name: String::new(), fsm: Fsm::default(), holes: vec![] });
        known.push(Some(d));
    }
    let budget = Budget::new(Limits::default());
    match digests_beside(&rules, &known, &budget) {
        Err(e) => faults.extend(claims.iter().map(|c| (c.2, e.to_string()))),
        Ok(derived) => {
            for (rule, (node, unit, i)) in claims.iter().enumerate() {
                if derived.node[rule] != *node || derived.unit[rule] != *unit {
                    faults.push((*i, DIFFERENT.to_owned()));
                }
            }
        }
    }
    faults.sort();
    faults.dedup_by_key(|f| f.0);
    faults
}

const DIFFERENT: &str = "its content has another digest";
