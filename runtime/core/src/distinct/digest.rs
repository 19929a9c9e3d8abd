//! Values as JSON Schema compares them: by what they are, not by how they are written.
//!
//! Numbers are equal if their mathematical values are, strings if their characters are, objects if they have equal members in
//! whatever order. A [`Reading`] gives each value a digest with that property, and says of a value that is only begun which
//! members it has for certain.

use smallvec::SmallVec;

use super::spelling::Spelling;

/// What is found in the text of a value, or of the beginning of one.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The value's, if it is complete.
    pub digest: Option<u128>,
    /// The members and items at any depth: digests of the names (or places) that lead there and of the value, cut short.
    pub members: Vec<(u64, u64)>,
    /// The significant digits of all numbers inside, without zeros at their ends, each followed by a point.
    pub digits: Vec<u8>,
}

/// A container that is open.
struct Frame {
    object: bool,
    /// The names and places that lead here.
    path: u64,
    parts: Vec<(u128, u128)>,
    name: Option<u128>,
}

impl Reading {
    /// Read JSON text, which may end anywhere.
    pub fn of(text: &[u8]) -> Reading {
        let mut reading = Reading::default();
        reading.read(text);
        reading
    }

    /// Read on. Returns what is still open, and the string, number or literal at the end that may go on. Nesting costs no
    /// call stack.
    fn read<'t>(&mut self, text: &'t [u8]) -> (Vec<Frame>, &'t [u8]) {
        let mut open: Vec<Frame> = vec![];
        let mut at = 0;
        while let Some(&b) = text.get(at) {
            let from = at;
            at += 1;
            let value = match b {
                b'"' => {
                    let Some((end, string)) = string(text, at) else { return (open, &text[from..]) };
                    at = end;
                    match open.last_mut() {
                        Some(frame) if frame.object && frame.name.is_none() => {
                            frame.name = Some(string);
                            continue;
                        }
                        _ => string,
                    }
                }
                b'[' | b'{' => {
                    let path = open.last().map_or(0, |frame| mix(frame.path, frame.key()));
                    open.push(Frame { object: b == b'{', path, parts: vec![], name: None });
                    continue;
                }
                b']' | b'}' => match open.pop() {
                    Some(frame) => frame.digest(),
                    None => return (open, &[]),
                },
                b if is_scalar(b) => {
                    let scalar = scalar(text, from);
                    at = from + scalar.len();
                    if at == text.len() && !open.is_empty() {
                        return (open, scalar);
                    }
                    if b.is_ascii_alphabetic() {
                        hash(b'l', scalar)
                    } else {
                        let number = Number::of(scalar);
                        self.digits.extend_from_slice(&number.digits);
                        self.digits.push(b'.');
                        number.digest()
                    }
                }
                _ => continue,
            };
            match open.last_mut() {
                None => self.digest = Some(value),
                Some(frame) => {
                    let key = frame.key();
                    frame.name = None;
                    frame.parts.push((key, value));
                    self.members.push((mix(frame.path, key), value as u64));
                }
            }
        }
        (open, &[])
    }
}

/// What is certain of the beginning of a value: the members and items that are complete, of the containers that are open.
pub(super) fn certain(text: &[u8]) -> Vec<(u64, u64)> {
    let (open, _) = Reading::default().read(text);
    let parts = open.iter().flat_map(|f| f.parts.iter().map(|(key, value)| (mix(f.path, *key), *value as u64)));
    parts.collect()
}

/// A path one step longer. That two are taken for one is harmless: values are compared as a whole in the end.
fn mix(path: u64, key: u128) -> u64 {
    (path.rotate_left(25) ^ key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A digest of the beginning of a value: equal beginnings, however they are written, go on alike from one set.
pub(super) fn begun(text: &[u8]) -> u128 {
    if open_number(text) {
        return Number::of(text).digest();
    }
    let (open, tail) = Reading::default().read(text);
    let mut bytes: Vec<u8> = vec![];
    for frame in open {
        let name = frame.name;
        bytes.extend_from_slice(&frame.digest().to_le_bytes());
        bytes.extend_from_slice(&name.unwrap_or(0).to_le_bytes());
    }
    let tail = if open_number(tail) { Number::of(tail).digest() } else { hash(b't', tail) };
    bytes.extend_from_slice(&tail.to_le_bytes());
    hash(b'b', &bytes)
}

fn open_number(tail: &[u8]) -> bool {
    tail.first().is_some_and(|b| b.is_ascii_digit() || *b == b'-')
}

/// The number or literal that begins here.
fn scalar(text: &[u8], from: usize) -> &[u8] {
    let len = text[from..].iter().take_while(|b| is_scalar(**b)).count();
    &text[from..from + len]
}

impl Frame {
    /// The name, or the place, of the value at hand.
    fn key(&self) -> u128 {
        self.name.unwrap_or(self.parts.len() as u128)
    }

    fn digest(mut self) -> u128 {
        if self.object {
            // Of members with one name the last counts, as it does for those who read the text.
            self.parts.reverse();
            self.parts.sort_by_key(|part| part.0);
            self.parts.dedup_by_key(|part| part.0);
        }
        let bytes: Vec<u8> = match self.object {
            true => self.parts.iter().flat_map(|(k, v)| [k.to_le_bytes(), v.to_le_bytes()]).flatten().collect(),
            false => self.parts.iter().flat_map(|(_, v)| v.to_le_bytes()).collect(),
        };
        hash(if self.object { b'o' } else { b'a' }, &bytes)
    }
}

/// Bytes of numbers and literals.
#[inline]
pub(super) fn is_scalar(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.')
}

/// The digest of the string whose text begins at `at`, and where it ends; `None` if it does not.
fn string(text: &[u8], at: usize) -> Option<(usize, u128)> {
    let (mut spelling, mut characters) = (Spelling::START, vec![]);
    for (i, &b) in text.iter().enumerate().skip(at) {
        if spelling.closes(b) {
            characters.extend(spelling.close());
            return Some((i + 1, hash(b's', &characters)));
        }
        characters.extend(spelling.take(b));
    }
    None
}

fn hash(kind: u8, bytes: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[kind]);
    hasher.update(bytes);
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(first)
}

/// A number: its digits, which neither begin nor end with 0, and the power of ten of the last.
struct Number {
    negative: bool,
    digits: SmallVec<[u8; 24]>,
    power: i64,
}

impl Number {
    fn of(text: &[u8]) -> Number {
        let split = text.iter().position(|b| matches!(b, b'e' | b'E')).unwrap_or(text.len());
        let (mantissa, exponent) = text.split_at(split);
        let fraction = mantissa.iter().position(|&b| b == b'.').map_or(0, |point| mantissa.len() - point - 1);
        let mut digits = significant(mantissa);
        let mut power = exponent.iter().filter(|b| b.is_ascii_digit()).fold(0i64, |power, b| {
            // Beyond all bounds there is no telling numbers apart; no grammar of ours gets there.
            power.saturating_mul(10).saturating_add(i64::from(b - b'0'))
        });
        if exponent.get(1) == Some(&b'-') {
            power = -power;
        }
        power = power.saturating_sub(fraction as i64);
        while digits.last() == Some(&b'0') {
            digits.pop();
            power = power.saturating_add(1);
        }
        if digits.is_empty() {
            return Number { negative: false, digits, power: 0 };
        }
        Number { negative: text.first() == Some(&b'-'), digits, power }
    }

    fn digest(&self) -> u128 {
        let mut bytes = vec![u8::from(self.negative)];
        bytes.extend_from_slice(&self.power.to_le_bytes());
        bytes.extend_from_slice(&self.digits);
        hash(b'n', &bytes)
    }
}

/// The digits of a number, or of the beginning of one, from the first that is not 0 up to the exponent.
pub(super) fn significant(text: &[u8]) -> SmallVec<[u8; 24]> {
    let mantissa = text.iter().take_while(|b| !matches!(b, b'e' | b'E'));
    mantissa.filter(|b| b.is_ascii_digit()).skip_while(|b| **b == b'0').copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> u128 {
        Reading::of(text.as_bytes()).digest.unwrap_or_else(|| panic!("{text} is complete"))
    }

    #[test]
    fn equal_values_have_equal_digests() {
        let values: [&[&str]; 14] = [
            &["1", "1.0", "1e0", "10E-1", "0.1e+1", "100e-2"],
            &["0", "-0", "0.00", "0e5", "-0.0E-3"],
            &["-1", "-1.0"],
            &["10", "1e1", "10.0"],
            &["12.5", "125e-1", "1.250E1"],
            &["\"1\"", "\"\\u0031\""],
            &["[]", " [ ] "],
            &["[1, 2]", "[1.0,2e0]"],
            &["[2,1]"],
            &["{}", "{ }"],
            &[r#"{"a": 1, "b": [true]}"#, r#"{"b":[true],"\u0061":1.0}"#, r#"{"b":[true],"a":2,"a":1}"#],
            &[r#"{"a": {"b": null}}"#, r#"{"a":{"\u0062":null}}"#],
            &[r#"{"a": ["b", null]}"#],
            &["true"],
        ];
        for (i, group) in values.iter().enumerate() {
            for text in group.iter() {
                assert_eq!(digest(text), digest(group[0]), "{text}");
                for other in values[..i].iter() {
                    assert_ne!(digest(text), digest(other[0]), "{text} {}", other[0]);
                }
            }
        }
    }

    #[test]
    fn members_count_once_they_are_complete() {
        let members = |text: &str| certain(text.as_bytes()).len();
        assert_eq!(members(r#"{"a": 1"#), 0);
        assert_eq!(members(r#"{"a": 1,"#), 1);
        assert_eq!(members(r#"{"a": [1, 2], "b": "x""#), 2);
        assert_eq!(members(r#"{"a": [1, 2], "b": tru"#), 1);
        assert_eq!(members(r#"[1, "a", {"a": 1}"#), 3);
        assert_eq!(members(r#"{"a": [{"b": 1, "c": [2, 3"#), 2);
        let whole = Reading::of(br#"{"x": null, "a": [{"c": [2, 3], "b": 1.0}]}"#).members;
        assert!(certain(br#"{"a": [{"b": 1, "c": [2, 3"#).iter().all(|m| whole.contains(m)));
        assert!(!certain(br#"{"a": [{"b": 1, "c": [3, 3"#).iter().all(|m| whole.contains(m)));
        assert_eq!(Reading::of(br#"[10, {"a": -0.250e7},"#).digits, b"1.25.");
    }
}
