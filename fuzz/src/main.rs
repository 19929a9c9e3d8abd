//! `gramary-fuzz TARGET SECONDS [FOLDER]`: run a target (`all`: each of them), from the seeds and the files of a folder.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use gramary_fuzz::{mutate, TARGETS};

const FAILURE: &str = "fuzz-failure.bin";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let known = |name: &&String| *name == "all" || TARGETS.iter().any(|t| t.name == *name);
    let (Some(name), Some(seconds)) = (args.first().filter(known), args.get(1).and_then(|s| s.parse().ok())) else {
        let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
        eprintln!("usage: gramary-fuzz all|{} SECONDS [FOLDER]", names.join("|"));
        return ExitCode::from(2);
    };
    let files = args.get(2).map(std::fs::read_dir).and_then(Result::ok).into_iter().flatten().flatten();
    let extra: Vec<Vec<u8>> = files.filter_map(|f| std::fs::read(f.path()).ok()).collect();
    let seed = SystemTime::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64);
    for target in TARGETS.iter().filter(|t| name == "all" || t.name == name) {
        let current = std::env::temp_dir().join(format!("gramary-fuzz-input-{}", std::process::id()));
        let keep = |input: &[u8]| {
            // A crash that is no panic leaves this file behind.
            let _ = std::fs::write(&current, input);
        };
        let result = mutate::run(target, extra.clone(), Duration::from_secs(seconds), seed, keep);
        match result {
            Ok(count) => println!("{}: {count} inputs", target.name),
            Err(input) => {
                let written = std::fs::write(FAILURE, &input);
                eprintln!("{}: failed (seed {seed}) on {:?}", target.name, String::from_utf8_lossy(&input));
                eprintln!("the input is in {FAILURE}{}", if written.is_ok() { "" } else { " (not written)" });
                return ExitCode::FAILURE;
            }
        }
        let _ = std::fs::remove_file(current);
        let _ = std::io::stdout().flush();
    }
    ExitCode::SUCCESS
}
