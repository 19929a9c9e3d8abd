//! A small mutator: enough to walk away from seeds where no coverage-guided fuzzer is at hand. Deterministic by its seed.

use std::time::{Duration, Instant};

use crate::Target;

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % n.max(1)
    }
}

/// Pieces that mean something to one of the readers.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"4294967295",
    b"1e999",
    b"0.1",
    b"\\u0000",
    b"\\ud800",
    b"\"$ref\":\"#\"",
    b"\"type\":\"object\"",
    b"\"anyOf\":[",
    b"\"maxLength\":",
    b"\"pattern\":\"",
    b"(",
    b")",
    b"(?:",
    b"(?=",
    b"(?!",
    b"{2,}",
    b"{0,70000}",
    b"*",
    b"|",
    b"^",
    b"$",
    b"[^",
    b"\\p{L}",
    b"\\1",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"{\"rule\":0}",
    b"{\"repeat\":{\"body\":",
    b"\"empty\"",
    b"{\"sub\":[",
    b"{\"and\":[",
    b"{\"call\":{\"rule\":1,\"args\":[]}}",
    b"AA==",
];

/// One to four changes to `data`; `other` is another seed to take from.
pub fn mutate(data: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(data.len() + 1);
        let len = random.below(16).min(data.len() - at);
        match random.below(9) {
            0 if at < data.len() => data[at] ^= 1 << random.below(8),
            1 if at < data.len() => data[at] = random.below(256) as u8,
            2 => drop(data.drain(at..at + len)),
            3 => {
                let copy = data[at..at + len].to_vec();
                let to = random.below(data.len() + 1);
                data.splice(to..to, copy);
            }
            4 => {
                // Nesting: the same piece many times.
                let copy = data[at..at + len].to_vec().repeat(1 + random.below(40));
                data.splice(at..at, copy);
            }
            5 if !other.is_empty() => {
                let from = random.below(other.len());
                let take = random.below(64).min(other.len() - from);
                data.splice(at..at + len, other[from..from + take].iter().copied());
            }
            6 if at + 4 <= data.len() => {
                let number = [0u32, 1, 255, 256, 65_535, u32::MAX, u32::MAX - 1][random.below(7)];
                data[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            _ => {
                let piece = PIECES[random.below(PIECES.len())];
                data.splice(at..at, piece.iter().copied());
            }
        }
    }
    data.truncate(1 << 15);
}

/// Run a target for some time; returns how many inputs it took. `before` sees each input first, so that one that ends
/// the process is not lost.
pub fn run(
    target: &Target,
    extra: Vec<Vec<u8>>,
    time: Duration,
    seed: u64,
    mut before: impl FnMut(&[u8]),
) -> Result<u64, Vec<u8>> {
    let mut seeds = (target.seeds)();
    seeds.extend(extra);
    let room = seeds.len() + 300;
    let mut random = Random::new(seed);
    let begin = Instant::now();
    let mut count = 0;
    while count < seeds.len() as u64 || begin.elapsed() < time {
        let mut input = seeds[count as usize % seeds.len()].clone();
        if count >= seeds.len() as u64 {
            let other = random.below(seeds.len());
            mutate(&mut input, &seeds[other], &mut random);
        }
        before(&input);
        let started = Instant::now();
        let ended = std::panic::catch_unwind(|| (target.run)(&input));
        if ended.is_err() || started.elapsed() > Duration::from_secs(60) {
            return Err(input);
        }
        // What still compiles is a better place to go on from than the seeds alone; kept at random, within bounds.
        if random.below(50) == 0 && seeds.len() < room {
            seeds.push(input);
        }
        count += 1;
    }
    Ok(count)
}
