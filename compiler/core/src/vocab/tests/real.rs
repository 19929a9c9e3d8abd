//! Real tokenizers, where this machine has them (`GRAMARY_TOKENIZERS`: a folder of folders with a `tokenizer.json`).

use std::time::Instant;

use super::*;

fn json(name: &str) -> Option<Vec<u8>> {
    let folder = std::env::var("GRAMARY_TOKENIZERS").unwrap_or_else(|_| "/work/shared/data/tokenizers".into());
    std::fs::read(Path::new(&folder).join(name).join("tokenizer.json")).ok()
}

#[test]
fn llama_3() {
    let Some(json) = json("llama3_1") else { return };
    let vocabulary = Vocabulary::from_huggingface(&json).unwrap();
    assert_eq!((vocabulary.len(), vocabulary.max_token_len()), (128_256, 128));
    assert_eq!(vocabulary.trie().len(), 274_521);
    assert_eq!(vocabulary.special_token("<|eot_id|>"), Some(128_009));
    assert_eq!(vocabulary.kind(128_009), TokenKind::Special);
    assert_eq!(vocabulary.bytes(220), b" ");
    assert_eq!(vocabulary.bytes(198), b"\n");
    assert_eq!(vocabulary.trie().order.len(), 128_000);
}

#[test]
fn qwen_3() {
    let Some(json) = json("qwen3") else { return };
    let vocabulary = Vocabulary::from_huggingface(&json).unwrap();
    assert_eq!(vocabulary.len(), 151_669);
    assert_eq!(vocabulary.kind(vocabulary.special_token("<|im_end|>").unwrap()), TokenKind::Special);
    assert_eq!(vocabulary.kind(vocabulary.special_token("<tool_call>").unwrap()), TokenKind::Added);
}

/// `cargo test --release -p gramary-compiler vocab -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn times() {
    for name in ["llama3_1", "qwen3"] {
        let Some(json) = json(name) else { continue };
        let path = std::env::temp_dir().join(format!("gramary-{}-{name}.vocab", std::process::id()));
        let milliseconds = |what: &str, run: &mut dyn FnMut()| {
            let times = (0..7).map(|_| {
                let start = Instant::now();
                run();
                start.elapsed().as_secs_f64() * 1e3
            });
            println!("{name} {what}: {:.2} ms", times.fold(f64::MAX, f64::min));
        };
        let vocabulary = Vocabulary::from_huggingface(&json).unwrap();
        milliseconds("from tokenizer.json", &mut || drop(Vocabulary::from_huggingface(&json).unwrap()));
        let tokens = || (0..vocabulary.len() as u32).filter_map(|t| Some((vocabulary.text(t)?, t))).collect::<Vec<_>>();
        milliseconds("trie", &mut || drop(TrieArrays::build(&tokens()).unwrap()));
        milliseconds("save", &mut || vocabulary.save(&path).unwrap());
        milliseconds("open", &mut || drop(Vocabulary::open(&path).unwrap()));
        let bytes = vocabulary.as_bytes();
        milliseconds("checksum alone", &mut || layout::seal(&mut bytes.to_vec()));
        println!(
            "{name}: {} bytes, {} sets, {} nodes",
            bytes.len(),
            vocabulary.trie().sets.len(),
            vocabulary.trie().len()
        );
        std::fs::remove_file(path).unwrap();
    }
}
