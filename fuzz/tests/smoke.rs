//! Every target for a short while. `FUZZ_SECONDS` says how long each, `FUZZ_SEED` where to start.

use std::time::Duration;

use gramary_fuzz::{mutate, TARGETS};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

#[test]
fn targets_survive_mutated_seeds() {
    for target in TARGETS {
        let time = Duration::from_secs(number("FUZZ_SECONDS", 1));
        if let Err(input) = mutate::run(target, vec![], time, number("FUZZ_SEED", 1), |_| ()) {
            panic!("{} fails on {:?} ({:?})", target.name, String::from_utf8_lossy(&input), input);
        }
    }
}

#[test]
fn targets_survive_every_prefix_of_their_seeds() {
    for target in TARGETS {
        for seed in (target.seeds)() {
            let step = 1 + seed.len() / 200;
            for end in (0..seed.len()).step_by(step) {
                (target.run)(&seed[..end]);
            }
        }
    }
}
