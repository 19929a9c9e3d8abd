//! The readers, on small files of each style.

use proptest::prelude::*;
use serde_json::{json, Value};

use super::*;

fn file(decoder: Value, vocab: Value, added: Value) -> Vec<u8> {
    json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": null,
        "decoder": decoder,
        "model": {"type": "BPE", "merges": [["a", "b"], ["c", "d"]], "vocab": vocab},
    })
    .to_string()
    .into_bytes()
}

fn all(vocabulary: &Vocabulary) -> Vec<(TokenKind, &[u8])> {
    (0..vocabulary.len() as u32).map(|t| (vocabulary.kind(t), vocabulary.bytes(t))).collect()
}

fn bytes_of(json: &[u8]) -> Vec<Vec<u8>> {
    let vocabulary = Vocabulary::from_huggingface(json).unwrap();
    all(&vocabulary).into_iter().map(|(_, bytes)| bytes.to_vec()).collect()
}

/// The alphabet as it is usually told: the printable bytes of Latin-1, then the others from U+0100 on.
fn alphabet() -> Vec<char> {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut others = (0x100u32..).filter_map(char::from_u32);
    (0..=255u8).map(|b| if printable(b) { b as char } else { others.next().unwrap() }).collect()
}

fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
}

fn byte_fallback() -> Value {
    json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]})
}

#[test]
fn byte_level_pieces_are_bytes() {
    let vocab: serde_json::Map<_, _> = alphabet().iter().enumerate().map(|(b, c)| (c.to_string(), json!(b))).collect();
    let bytes = bytes_of(&file(byte_level(), Value::Object(vocab), json!([])));
    assert_eq!(bytes, (0..=255u8).map(|b| vec![b]).collect::<Vec<_>>());
    let bytes = bytes_of(&file(byte_level(), json!({"Ġthe": 0, "æĹ": 1, "Ċ\\\"": 2, "日": 3, "": 4}), json!([])));
    assert_eq!(bytes, [b" the".as_slice(), b"\xe6\x97", b"\n\\\"", "日".as_bytes(), b""]);
}

#[test]
fn byte_level_is_found_anywhere() {
    let vocab = json!({"Ġa": 0});
    let nested = json!({"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": [byte_level()]}]});
    assert_eq!(bytes_of(&file(nested, vocab.clone(), json!([]))), [b" a"]);
    let mut parts: Value = serde_json::from_slice(&file(Value::Null, vocab, json!([]))).unwrap();
    parts["pre_tokenizer"] =
        json!({"type": "Sequence", "pretokenizers": [{"type": "Split"}, {"type": "ByteLevel", "use_regex": false}]});
    assert_eq!(bytes_of(parts.to_string().as_bytes()), [b" a"]);
}

#[test]
fn byte_fallback_pieces_are_bytes_and_marks_are_spaces() {
    let vocab =
        json!({"<unk>": 0, "<0x0A>": 1, "<0xfF>": 2, "▁the": 3, "▁▁": 4, "<0x0A": 5, "<0x+A>": 6, "a▁": 7, "é": 8});
    let added = json!([
        {"id": 0, "content": "<unk>", "special": true},
        {"id": 9, "content": "▁▁▁", "special": false},
        {"id": 10, "content": "<▁eos>", "special": true},
    ]);
    let vocabulary = Vocabulary::from_huggingface(&file(byte_fallback(), vocab, added)).unwrap();
    use TokenKind::*;
    let want: [(_, &[u8]); 11] = [
        (Special, b"<unk>"),
        (Text, b"\n"),
        (Text, b"\xff"),
        (Text, b" the"),
        (Text, b"  "),
        (Text, b"<0x0A"),
        (Text, b"<0x+A>"),
        (Text, b"a "),
        (Text, "é".as_bytes()),
        (Added, b"   "),
        (Special, "<▁eos>".as_bytes()),
    ];
    assert_eq!(all(&vocabulary), want);
    assert_eq!(vocabulary.special_token("▁▁▁"), Some(9));
}

#[test]
fn metaspace_and_unigram() {
    let mut parts: Value = serde_json::from_slice(&file(
        json!({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}),
        json!([["<s>", 0.0], ["_a", -1.5], ["b", -2]]),
        json!([{"id": 0, "content": "<s>", "special": true}]),
    ))
    .unwrap();
    parts["model"]["type"] = "Unigram".into();
    assert_eq!(bytes_of(parts.to_string().as_bytes()), [b"<s>".as_slice(), b" a", b"b"]);
    // Without a decoder, the pre-tokenizer or the normalizer tells.
    parts["decoder"] = Value::Null;
    parts["pre_tokenizer"] = json!({"type": "Metaspace", "replacement": "_"});
    assert_eq!(bytes_of(parts.to_string().as_bytes())[1], b" a");
    parts["pre_tokenizer"] = Value::Null;
    parts["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "_"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
    ]});
    assert_eq!(bytes_of(parts.to_string().as_bytes())[1], b" a");
}

#[test]
fn pieces_tell_where_nothing_else_does() {
    let mut vocab: serde_json::Map<_, _> =
        alphabet().iter().enumerate().map(|(b, c)| (c.to_string(), json!(b))).collect();
    vocab.insert("Ġa".into(), json!(256));
    assert_eq!(bytes_of(&file(Value::Null, Value::Object(vocab), json!([])))[256], b" a");
    let marked = bytes_of(&file(Value::Null, json!({"▁a": 0, "<0x0A>": 1}), json!([])));
    assert_eq!(marked, [b" a".as_slice(), b"\n"]);
    let mute = Vocabulary::from_huggingface(&file(Value::Null, json!({"a": 0}), json!([])));
    assert!(matches!(mute, Err(VocabError::Unsupported { .. })));
}

#[test]
fn strip_concerns_pieces_before_fuse_only() {
    let strip = json!({"type": "Strip", "content": "_", "start": 2, "stop": 1});
    let before = json!({"type": "Sequence", "decoders": [strip, {"type": "Fuse"}]});
    let after = json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, strip]});
    let vocab = json!({"___a__": 0, "_": 1});
    assert_eq!(bytes_of(&file(before, vocab.clone(), json!([]))), [b"_a_".as_slice(), b""]);
    assert_eq!(bytes_of(&file(after, vocab, json!([]))), [b"___a__".as_slice(), b"_"]);
}

#[test]
fn decoders_that_look_at_neighbours_are_refused_by_place() {
    let refused = [
        (json!({"type": "WordPiece", "prefix": "##", "cleanup": true}), "/decoder"),
        (json!({"type": "BPEDecoder", "suffix": "</w>"}), "/decoder"),
        (json!({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "CTC"}]}), "/decoder/decoders/1"),
        (json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}), "/decoder"),
    ];
    for (decoder, place) in refused {
        match Vocabulary::from_huggingface(&file(decoder, json!({"a": 0}), json!([]))) {
            Err(VocabError::Unsupported { place: at, .. }) => assert_eq!(at, place),
            other => panic!("{other:?}"),
        }
    }
    let invalid =
        [json!({}), json!({"type": "Sequence"}), json!({"type": "Replace", "pattern": {"String": "a"}}), json!(7)];
    for decoder in invalid {
        let result = Vocabulary::from_huggingface(&file(decoder, json!({"a": 0}), json!([])));
        assert!(matches!(result, Err(VocabError::Invalid { .. })));
    }
}

#[test]
fn holes_and_added_tokens_beyond_the_vocabulary() {
    let added = json!([{"id": 5, "content": "<x>", "special": false}, {"id": 5, "content": "<x>", "special": false}]);
    let vocabulary = Vocabulary::from_huggingface(&file(byte_level(), json!({"b": 3, "a": 1}), added)).unwrap();
    use TokenKind::*;
    let kinds: Vec<_> = all(&vocabulary).iter().map(|t| t.0).collect();
    assert_eq!(kinds, [Unused, Text, Unused, Text, Unused, Added]);
}

#[test]
fn ids_used_twice_or_out_of_reach_are_errors() {
    let read = |vocab, added| Vocabulary::from_huggingface(&file(byte_level(), vocab, added)).unwrap_err();
    let two = json!([{"id": 1, "content": "<x>"}, {"id": 1, "content": "<y>"}]);
    assert!(matches!(read(json!({"a": 0}), two), VocabError::TokenId { token: 1, .. }));
    assert!(matches!(read(json!({"a": 0, "b": 0}), json!([])), VocabError::TokenId { token: 0, .. }));
    assert!(matches!(read(json!({"a": 4_000_000_000u32}), json!([])), VocabError::TooLarge { .. }));
    assert!(matches!(read(json!({"a": -1}), json!([])), VocabError::Invalid { .. }));
}

#[test]
fn decoders_that_blow_up_are_refused() {
    let grow = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"});
    let read = |steps: usize| {
        let decoder = json!({"type": "Sequence", "decoders": vec![grow.clone(); steps]});
        Vocabulary::from_huggingface(&file(decoder, json!({"a": 0}), json!([])))
    };
    assert_eq!(read(2).unwrap().bytes(0), [b'a'; 16]);
    assert!(matches!(read(3), Err(VocabError::TokenId { token: 0, .. })));
    assert!(matches!(read(17), Err(VocabError::Unsupported { .. })));
}

#[test]
fn what_is_not_a_tokenizer_is_an_error_with_a_place() {
    for text in
        ["", "{", "[]", "{\"model\": 3}", "{\"model\": {\"vocab\": 3}}", "{\"model\": {\"vocab\": {\"a\": 0", "\u{1}"]
    {
        let error = Vocabulary::from_huggingface(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("(at line "), "{error}");
    }
    assert!(Vocabulary::from_huggingface(b"\xff\xfe").is_err());
    let deep = format!("{{\"decoder\": {}", "[".repeat(100_000));
    assert!(matches!(Vocabulary::from_huggingface(deep.as_bytes()), Err(VocabError::Invalid { .. })));
}

#[test]
fn tiktoken_ranks() {
    let ranks = b"YQ== 0\n5pc= 2\r\n\nIHRoZQ== 1\n";
    let vocabulary = Vocabulary::from_tiktoken(ranks, [("<|end|>".to_string(), 4)]).unwrap();
    use TokenKind::*;
    let want: [(_, &[u8]); 5] =
        [(Text, b"a"), (Text, b" the"), (Text, b"\xe6\x97"), (Unused, b""), (Special, b"<|end|>")];
    assert_eq!(all(&vocabulary), want);
    assert_eq!(vocabulary.special_token("<|end|>"), Some(4));
    for (bad, line) in [("YQ==", 1), ("YQ== x", 1), ("YQ== 0\nYQ= 1", 2), ("YQ== -1", 1), ("\x0a\x05<unk>", 2)] {
        let error = Vocabulary::from_tiktoken(bad.as_bytes(), []).unwrap_err().to_string();
        assert!(error.contains(&format!("line {line}")), "{error}");
    }
    let twice = Vocabulary::from_tiktoken(b"YQ== 0\nYg== 0", []);
    assert!(matches!(twice, Err(VocabError::TokenId { token: 0, .. })));
    let clash = Vocabulary::from_tiktoken(b"YQ== 0", [("<s>".to_string(), 0)]);
    assert!(matches!(clash, Err(VocabError::TokenId { token: 0, .. })));
    let far = Vocabulary::from_tiktoken(b"YQ== 18446744073709551615", []);
    assert!(matches!(far, Err(VocabError::TooLarge { .. })));
}

fn tekken(special: Value) -> Value {
    json!({
        "config": {"pattern": "", "num_vocab_tokens": 9, "default_vocab_size": 6, "default_num_special_tokens": 4, "version": "v3"},
        "vocab": [
            {"rank": 1, "token_bytes": "5pc=", "token_str": null},
            {"rank": 0, "token_bytes": "YQ==", "token_str": "a"},
            {"rank": 2, "token_bytes": "Yg==", "token_str": "b"},
        ],
        "special_tokens": special,
    })
}

#[test]
fn tekken_ranks_follow_special_tokens() {
    let special = json!([{"rank": 1, "token_str": "<s>", "is_control": true}, {"rank": 0, "token_str": "<unk>"}]);
    let vocabulary = Vocabulary::from_tekken(tekken(special).to_string().as_bytes()).unwrap();
    use TokenKind::*;
    let want: [(_, &[u8]); 6] = [
        (Special, b"<unk>"),
        (Special, b"<s>"),
        (Special, b"<SPECIAL_2>"),
        (Special, b"<SPECIAL_3>"),
        (Text, b"a"),
        (Text, b"\xe6\x97"),
    ];
    assert_eq!(all(&vocabulary), want);
    let unlisted = Vocabulary::from_tekken(tekken(Value::Null).to_string().as_bytes()).unwrap();
    assert_eq!(unlisted.special_token("[INST]"), Some(3));
}

#[test]
fn bad_tekken_files() {
    let read = |change: &dyn Fn(&mut Value)| {
        let mut file = tekken(Value::Null);
        change(&mut file);
        Vocabulary::from_tekken(file.to_string().as_bytes()).unwrap_err().to_string()
    };
    assert!(read(&|f| f["vocab"][1]["token_bytes"] = "Y".into()).contains("/vocab/1/token_bytes"));
    assert!(read(&|f| f["vocab"][1]["rank"] = 1.into()).contains("used twice"));
    assert!(read(&|f| f["config"]["default_num_special_tokens"] = 7.into()).contains("/config"));
    assert!(read(&|f| f["config"]["default_vocab_size"] = u64::MAX.into()).contains("too large"));
    assert!(read(&|f| f["special_tokens"] = json!([{"rank": 4, "token_str": "x"}])).contains("/special_tokens/0/rank"));
    assert!(read(&|f| f["vocab"] = 3.into()).contains("line"));
}

#[test]
fn base64_against_its_definition() {
    let decode = |text: &str| {
        let mut out = vec![];
        base64::decode(text.as_bytes(), &mut out).map(|()| out)
    };
    let good: [(&str, &[u8]); 8] = [
        ("", b""),
        ("Zg==", b"f"),
        ("Zm8=", b"fo"),
        ("Zm9v", b"foo"),
        ("Zm9vYg==", b"foob"),
        ("Zm9vYmE=", b"fooba"),
        ("Zm9vYmFy", b"foobar"),
        ("+/+/", b"\xfb\xff\xbf"),
    ];
    for (text, bytes) in good {
        assert_eq!(decode(text).as_deref(), Some(bytes));
    }
    for text in ["Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm 9", "Zm9v\n", "-_-_", "Zm8=="] {
        assert_eq!(decode(text), None, "{text}");
    }
}

proptest! {
    /// Whatever a file of a known format is turned into by accident or on purpose, a reader answers.
    #[test]
    fn mutated_files_never_panic(
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..3u8), 1..6)
    ) {
        let added = json!([{"id": 3, "content": "<x>", "special": true}, {"id": 4, "content": "▁▁"}]);
        let sources = [
            file(byte_fallback(), json!({"▁a": 0, "<0x0A>": 1, "é\n": 2}), added),
            file(byte_level(), json!({"Ġa": 0, "b": 7}), json!([])),
            tekken(json!([{"rank": 1, "token_str": "<s>"}])).to_string().into_bytes(),
            b"YQ== 0\n5pc= 2\nIHRoZQ== 1\n".to_vec(),
        ];
        for mut source in sources {
            for (at, byte, edit) in &edits {
                let at = at.index(source.len());
                match edit {
                    0 => source[at] = *byte,
                    1 => source.insert(at, *byte),
                    _ => drop(source.remove(at)),
                }
            }
            let readings = [
                Vocabulary::from_huggingface(&source),
                Vocabulary::from_tekken(&source),
                Vocabulary::from_tiktoken(&source, [("<s>".to_string(), 9)]),
            ];
            for vocabulary in readings.into_iter().flatten() {
                let again = Vocabulary::from_bytes(vocabulary.as_bytes()).unwrap();
                prop_assert_eq!(again.as_bytes(), vocabulary.as_bytes());
            }
        }
    }
}
