//! Masks where tokens go through a quote and on, of which there are so many that what strings and keys allow behind it is
//! worked out once for all who refer to them: they equal brute force, whoever comes first.

use std::sync::Arc;

use gramary_compiler::vocab::{TokenSpec, Vocabulary};
use gramary_compiler::Limits;
use gramary_runtime::{Engine, Grammar, Matcher, SchemaOptions, Source, Tokens};

const WORDS: [&str; 13] = ["a", "ab", "abc", "b", "ba", "cd", "x", "xy", "1", "é", "\u{2028}a", "\\", "\\u00"];
const BEFORE: [&str; 5] = ["\"", " \"", ",\"", ":\"", "{\""];
const BEHIND: [&str; 12] =
    ["", "\"", "\":", "\": ", "\":1", "\":\"", "\":{\"", "\",", "\",\"", "\"}", "\"],", "\":[]}"];

fn vocabulary() -> Vocabulary {
    let mut tokens = vec![TokenSpec::special("</s>")];
    tokens.extend((0..=255u8).map(|b| TokenSpec::text(vec![b])));
    for word in WORDS {
        tokens.extend(BEHIND.map(|behind| TokenSpec::text(format!("{word}{behind}"))).into_iter().skip(1));
        for before in BEFORE {
            tokens.extend(BEHIND.map(|behind| TokenSpec::text(format!("{before}{word}{behind}"))));
        }
    }
    Vocabulary::from_tokens(tokens, vec![("</s>".into(), 0)]).unwrap()
}

/// Follow `text` byte by byte; at each position compare the mask with brute force.
fn check(g: &Arc<Grammar>, text: &str) {
    let m = Matcher::new(g.clone(), None, 16);
    let mut row = vec![0u32; g.row_words];
    for (i, &b) in text.as_bytes().iter().enumerate() {
        m.fill(&mut row).unwrap();
        for t in 0..g.tokens.vocab.len() as u32 {
            let masked = row[t as usize / 32] >> (t % 32) & 1 == 1;
            let token = String::from_utf8_lossy(g.tokens.vocab.bytes(t)).into_owned();
            assert_eq!(masked, m.fork().accept(t).unwrap(), "token {token:?} after {:?}", &text[..i]);
        }
        assert!(m.accept_bytes(&[b]).unwrap(), "{:?}", &text[..=i]);
    }
    assert!(m.is_complete());
}

const SCHEMAS: [(&str, &str); 9] = [
    (r#"{"type":"array","items":{"type":"string"}}"#, r#"["ab", "cd"]"#),
    (
        r#"{"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"string"},"x":{}},"required":["ab"]}"#,
        r#"{"a": 1, "ab":"x","cd":[1], "b": {"a":"b"}}"#,
    ),
    (
        r#"{"type":"object","properties":{"abc":{"type":"object","additionalProperties":{"type":"string"}}},
            "additionalProperties":{"type":"string"}}"#,
        r#"{"abc":{"ab":"é"}, "x": "1"}"#,
    ),
    (
        r#"{"type":"object","properties":{"a":{"enum":["ab","abc"]},"ab":{"anyOf":[{"type":"null"},{"type":"string"}]}},
            "additionalProperties":false}"#,
        r#"{"a":"ab","ab": "xy"}"#,
    ),
    (
        r##"{"type":"object","properties":{"a":{"$ref":"#"},"b":{"type":"string","maxLength":2}},"maxProperties":3}"##,
        r#"{"a": {"a":{"b":"x"}}, "b":"ab","cd":1}"#,
    ),
    (
        r#"{"type":"object","patternProperties":{"^a":{"type":"string"}},"additionalProperties":{"type":"integer"}}"#,
        r#"{"ab":"cd", "b": 1}"#,
    ),
    (
        r#"{"type":"object","properties":{"a":{"type":["string","null"],"maxLength":2},"ab":{"type":"string","minLength":2},
            "b":{"type":["null","string"],"minLength":1,"maxLength":500},"x":{"type":"string","maxLength":300}}}"#,
        r#"{"a":"ab","ab":"cd", "b": "x", "x":""}"#,
    ),
    (
        r#"{"type":"object","properties":{"a":{"type":["boolean","null"]},"ab":{"const":"x"},"b":{"enum":[1,12,"a,b"]},
            "x":{"enum":["a","ab"]},"y":{"enum":[true,{"a":1},[]]}},"required":["b"],"additionalProperties":{"const":"cd"}}"#,
        r#"{"a":null,"ab": "x","b":"a,b","x":"ab","y":{"a":1}, "c": "cd"}"#,
    ),
    // What may come before a match, and behind it, is a region of several states.
    (
        r#"{"type":"object","properties":{"a":{"pattern":"b"},"ab":{"pattern":"^.+x.+$"},"b":{"pattern":"ab|x1$"},
            "x":{"pattern":"^[a-y]*b[a-y]*$"},"xy":{"pattern":"^.{2,4}$"}}}"#,
        r#"{"a":"aéba","ab":"1xa", "b": "éx1","x":"aabba","xy":"é1"}"#,
    ),
];

#[test]
fn masks_equal_brute_force() {
    let quoted = BEHIND.len() * WORDS.len();
    assert!(quoted > 128, "{quoted} tokens begin with a quote: fewer are walked");
    for any_order in [false, true] {
        for backwards in [false, true] {
            // What one schema leaves behind serves the others.
            let tokens = Arc::new(Tokens::new(vocabulary()));
            let n = tokens.vocab.len();
            let engine = Engine::new(tokens, n, Box::new([0]), 1 << 30);
            let mut schemas = SCHEMAS;
            if backwards {
                schemas.reverse();
            }
            for (schema, text) in schemas {
                let source = Source::Schema(SchemaOptions { any_order, ..SchemaOptions::default() });
                let grammar = engine.grammar(&source, schema.as_bytes(), Limits::default()).unwrap().0;
                check(&grammar, text);
            }
        }
    }
}
