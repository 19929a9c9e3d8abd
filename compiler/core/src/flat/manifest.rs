//! Manifests: what a source was compiled to, by name.

use super::{Malformed, Read, Reader, Writer};
use crate::schema::Warning;
use crate::unit::Digest;

const MAGIC: &[u8; 8] = b"gramMANI";
/// More units than the default bound on FSM states can make.
const MOST_UNITS: usize = 1 << 20;
const MOST_NAME: usize = 256;

/// The digests that a source needs, and what its front end has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub root: Digest,
    /// The empty text is a word of the source.
    pub nullable: bool,
    /// Node digests of everything reachable from the root, callees before callers where they do not go in circles.
    pub units: Vec<Digest>,
    /// What each is called in this source, for people; as many as there are units, or none.
    pub names: Vec<String>,
    pub warnings: Vec<Warning>,
}

impl Manifest {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new(MAGIC);
        w.word(self.nullable as u32);
        w.digest(&self.root);
        w.len(self.units.len());
        self.units.iter().for_each(|d| w.digest(d));
        w.len(self.names.len());
        self.names.iter().for_each(|name| w.bytes(&name.as_bytes()[..floor_char(name, MOST_NAME)]));
        w.len(self.warnings.len());
        for warning in &self.warnings {
            w.bytes(warning.pointer.as_bytes());
            w.bytes(warning.keyword.as_bytes());
            w.bytes(warning.reason.as_bytes());
        }
        w.0
    }

    pub fn parse(bytes: &[u8]) -> Read<Manifest> {
        let mut r = Reader::new(bytes, MAGIC)?;
        let nullable = match r.word()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed("a flag is neither 0 nor 1")),
        };
        let root = r.digest()?;
        let n = r.len(32)?;
        if n > MOST_UNITS {
            return Err(Malformed("it names too many units"));
        }
        let units = (0..n).map(|_| r.digest()).collect::<Read<Vec<_>>>()?;
        if !units.contains(&root) {
            return Err(Malformed("its root is not among its units"));
        }
        let text = |r: &mut Reader<'_>| -> Read<String> {
            String::from_utf8(r.bytes()?.to_vec()).map_err(|_| Malformed("a text is not UTF-8"))
        };
        let names = (0..r.len(4)?).map(|_| text(&mut r)).collect::<Read<Vec<_>>>()?;
        if (!names.is_empty() && names.len() != units.len()) || names.iter().any(|n| n.len() > MOST_NAME) {
            return Err(Malformed("names are too long, or not as many as units"));
        }
        let mut warnings = vec![];
        for _ in 0..r.len(12)? {
            warnings.push(Warning { pointer: text(&mut r)?, keyword: text(&mut r)?, reason: text(&mut r)? });
        }
        r.end()?;
        Ok(Manifest { root, nullable, units, names, warnings })
    }
}

fn floor_char(s: &str, most: usize) -> usize {
    let mut n = s.len().min(most);
    while !s.is_char_boundary(n) {
        n -= 1;
    }
    n
}
