//! Deriving digests again.

use super::unit::is_plain;
use super::{FlatUnit, What};
use crate::digest::derive;
use crate::tails;
use crate::unit::Digest;

/// Those of `units` whose digest does not follow from their content, by number, and why.
///
/// Each is checked by itself: the digests that it refers to are part of what it is, whatever they turn out to be, and one of
/// a circle brings the shapes of the others with it.
pub fn verify(units: &[(Digest, &[u8])]) -> Vec<(usize, String)> {
    let fault = |(digest, bytes): &(Digest, &[u8])| match FlatUnit::parse(bytes) {
        Err(e) => Some(e.to_string()),
        Ok(flat) if derived(&flat) == Some((flat.unit, *digest)) => None,
        Ok(_) => Some("its content has another digest".to_owned()),
    };
    units.iter().enumerate().filter_map(|(i, unit)| Some((i, fault(unit)?))).collect()
}

/// Unit and node digest.
fn derived(flat: &FlatUnit) -> Option<(Digest, Digest)> {
    match flat.what {
        What::Rule => derive(&flat.fsm, &flat.callees, &flat.holes, flat.circle.as_ref()),
        What::Tail if is_plain(&flat.fsm) && flat.circle.is_none() => {
            let digest = tails::digest(&flat.fsm, flat.callees.first());
            Some((digest, digest))
        }
        What::Tail => None,
    }
}
