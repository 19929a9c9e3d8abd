//! Locations that say the same.

use serde_json::Value;

use super::{Documents, Kw, Loc, LocId, CLOSED};

/// JSON values in a schema that is compared with others by what it says.
const MOST_COMPARED: usize = 512;

fn mixed(a: u64, b: u64) -> u64 {
    (a.rotate_left(5) ^ b).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// A number that equal values share, whatever the order of their members; `None` if there are more than `left` values in it,
/// or what may be a resource of its own.
fn sign(value: &Value, left: &mut usize) -> Option<u64> {
    *left = left.checked_sub(1)?;
    let text = |s: &str| s.bytes().fold(7, |h, b| mixed(h, u64::from(b)));
    Some(match value {
        Value::Null => 1,
        Value::Bool(b) => 2 + u64::from(*b),
        Value::Number(n) => mixed(4, text(n.as_str())),
        Value::String(s) => mixed(5, text(s)),
        Value::Array(list) => {
            let mut all = 6;
            for v in list {
                all = mixed(all, sign(v, left)?);
            }
            all
        }
        Value::Object(map) => {
            let mut all: u64 = 7;
            for (key, v) in map {
                if matches!(key.as_str(), "$id" | "id" | "$schema") && v.is_string() {
                    return None;
                }
                all = all.wrapping_add(mixed(text(key), sign(v, left)?));
            }
            all
        }
    })
}

impl Documents<'_> {
    /// The first location met that says the same: equal keywords with equal values, read in the same resource and scope.
    /// Schemas in the wild repeat themselves, and what is told of one of them is told of all.
    pub(in crate::schema) fn alike(&mut self, id: LocId) -> LocId {
        let range = self.open(id);
        let Loc { resource, scope, alike, .. } = self.locs[id as usize];
        if alike != CLOSED {
            return alike;
        }
        let pool = &self.pool[range.start as usize..range.end as usize];
        let mut left = MOST_COMPARED;
        let mut key = Some(u64::from(resource) << 32 | u64::from(scope));
        for (kw, v) in pool {
            key = key.zip(sign(v, &mut left)).map(|(key, sign)| key.wrapping_add(mixed(*kw as u64, sign)));
        }
        let mut found = id;
        if let Some(key) = key {
            let known = self.by_content.entry(key).or_default();
            let same = |other: &LocId| {
                let Loc { first, count, resource: r, scope: s, .. } = self.locs[*other as usize];
                let theirs = &self.pool[first as usize..(first + count) as usize];
                let equal = |(kw, v): &(Kw, &Value)| theirs.iter().any(|(k, w)| k == kw && v == w);
                (r, s) == (resource, scope) && theirs.len() == pool.len() && pool.iter().all(equal)
            };
            match known.iter().find(|other| same(other)) {
                Some(other) => found = *other,
                None => known.push(id),
            }
        }
        self.locs[id as usize].alike = found;
        found
    }
}
