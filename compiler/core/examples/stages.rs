//! Where compiling a schema spends its time: `cargo run --release --example stages -- FILE.json ...` prints, for each
//! file, the best of many runs of every stage in microseconds.

use std::sync::Arc;
use std::time::Instant;

use gramary_compiler::digest::digests;
use gramary_compiler::lower::grammar::lower_grammar;
use gramary_compiler::program::UnitStore;
use gramary_compiler::{schema, Budget, Limits};

fn main() {
    for path in std::env::args().skip(1) {
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) => {
                eprintln!("{path}: {e}");
                continue;
            }
        };
        let mut best = [f64::MAX; 5];
        let mut sizes = (0, 0);
        let began = Instant::now();
        let mut rounds = 0;
        while rounds < 5 || (began.elapsed().as_millis() < 300 && rounds < 1000) {
            rounds += 1;
            let budget = Budget::new(Limits::default());
            let mut at = [Instant::now(); 6];
            let Ok(value) = schema::parse(&text, &budget) else { break };
            at[1] = Instant::now();
            let options = schema::Options { order: schema::PropertyOrder::Any, ..Default::default() };
            let compiled = match schema::compile(&value, &options, &budget) {
                Ok(c) => c,
                Err(e) => {
                    println!("{path}: {e}");
                    break;
                }
            };
            at[2] = Instant::now();
            let Ok(lowered) = lower_grammar(&compiled.grammar, &budget) else { break };
            at[3] = Instant::now();
            // Again: lowering has computed them, too.
            let Ok(_) = digests(&lowered.rules, &budget) else { break };
            at[4] = Instant::now();
            sizes = (lowered.rules.len(), lowered.rules.iter().map(|r| r.fsm.states.len()).sum());
            let store = Arc::new(UnitStore::default());
            let begin_install = Instant::now();
            let _artifact = store.install(lowered);
            at[5] = at[4] + begin_install.elapsed();
            for i in 0..5 {
                best[i] = best[i].min((at[i + 1] - at[i]).as_secs_f64() * 1e6);
            }
        }
        println!(
            "{:>8} B {:>4} units {:>6} states | parse {:>7.1} front {:>8.1} lower {:>8.1} digest {:>7.1} install {:>6.1} | {:>8.1} us  {path}",
            text.len(), sizes.0, sizes.1, best[0], best[1], best[2], best[3], best[4], best.iter().sum::<f64>()
        );
    }
}
