//! Fuzz targets: plain functions over bytes. See `README.md`.
//!
//! A target fails by panicking. Errors are the expected outcome of most inputs; what compiles is walked a few tokens far,
//! with the mask compared to stepping at each.

pub mod mutate;

use std::sync::{Arc, OnceLock};

use gramary_compiler::schema::Whitespace;
use gramary_compiler::vocab::{TokenSpec, Vocabulary};
use gramary_compiler::Limits;
use gramary_runtime::structural::StructuralOptions;
use gramary_runtime::tagging::{Frame, NameTemplate, OnError, ToolOptions};
use gramary_runtime::{Bounds, Engine, Grammar, Matcher, SchemaOptions, Source, Tokens};

/// A target and what its mutations start from.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub const TARGETS: &[Target] = &[
    Target { name: "json_schema", run: json_schema, seeds: || texts(SCHEMAS) },
    Target { name: "regex", run: regex, seeds: || texts(PATTERNS) },
    Target { name: "grammar", run: grammar, seeds: || texts(GRAMMARS) },
    Target { name: "ebnf", run: ebnf, seeds: || texts(EBNF) },
    Target { name: "structural_tag", run: structural_tag, seeds: || texts(STRUCTURAL_TAGS) },
    Target { name: "tools", run: tools, seeds: || texts(TOOLS) },
    Target { name: "tokenizer", run: tokenizer, seeds: || texts(TOKENIZERS) },
    Target { name: "vocabulary", run: vocabulary, seeds: || vec![engine().tokens.vocab.as_bytes().to_vec()] },
    Target { name: "entries", run: entries, seeds: || vec![entries_seed()] },
    Target { name: "artifacts", run: artifacts, seeds: artifacts_seeds },
    Target { name: "offers", run: offers, seeds: || vec![offers_seed()] },
];

fn texts(seeds: &[&str]) -> Vec<Vec<u8>> {
    seeds.iter().map(|s| s.as_bytes().to_vec()).collect()
}

/// Tight: a fuzzer wants many inputs a second, and a bound that does not hold shows sooner.
fn limits() -> Limits {
    Limits { source_bytes: 1 << 16, depth: 200, fsm_states: 20_000, items_per_set: 100, memory: 4 << 20, seconds: 2.0 }
}

/// Tokens with many common prefixes, ends inside characters, and a special one.
fn tokens() -> Vec<TokenSpec> {
    let words: &[&[u8]] = &[
        b"{\"",
        b"\":",
        b"\", \"",
        b"true",
        b"tru",
        b"null",
        b"10",
        b"0.",
        b"\\u00",
        b"[]",
        b"\"}",
        b"ab",
        b"aba",
        b"  ",
        b"\xe2\x82",
        b"\x82\xac",
        b"\xed\xa0\x80",
        b"<f",
        b"<f>\"\xc3\xa9",
        b"\"</f>\xc3\xa9",
        b"",
    ];
    let mut all: Vec<TokenSpec> = (0..=255u8).map(|b| TokenSpec::text(vec![b])).collect();
    all.extend(words.iter().map(|w| TokenSpec::text(w.to_vec())));
    all.push(TokenSpec::special(b"</s>".to_vec()));
    all
}

fn new_engine() -> Arc<Engine> {
    let all = tokens();
    let stop = all.len() as u32 - 1;
    let vocab = Vocabulary::from_tokens(all, vec![("</s>".into(), stop)]).expect("a good vocabulary");
    Arc::new(Engine::new(Arc::new(Tokens::new(vocab)), stop as usize + 1, Box::new([stop]), 1 << 22))
}

fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Arc<Engine>> = OnceLock::new();
    ENGINE.get_or_init(new_engine)
}

/// Walk a few tokens, chosen by `choices`; at each, the mask must be what stepping says.
fn walk(grammar: &Arc<Grammar>, choices: &[u8]) {
    let matcher = Matcher::new(grammar.clone(), None, 4);
    let mut row = vec![0u32; grammar.row_words];
    for i in 0..3 {
        if matcher.fill(&mut row).is_err() {
            return; // too ambiguous: an error, too
        }
        let allowed: Vec<u32> =
            (0..row.len() as u32 * 32).filter(|&t| row[t as usize / 32] >> (t % 32) & 1 == 1).collect();
        for token in (0..row.len() as u32 * 32).filter(|t| t % 7 == i || *t >= 256) {
            match matcher.fork().accept(token) {
                Ok(taken) => assert_eq!(taken, allowed.contains(&token), "token {token} at step {i}"),
                Err(_) => return,
            }
        }
        let Some(&token) = allowed.get(choices.get(i as usize).map_or(0, |&c| c as usize) % allowed.len().max(1))
        else {
            return;
        };
        let Ok(taken) = matcher.accept(token) else { return };
        assert!(taken, "token {token} of the mask is refused");
        let _ = matcher.jump_forward();
    }
    let _ = matcher.rollback(1);
    grammar.flush();
    let _ = matcher.fill(&mut row);
}

fn compile(source: &Source, data: &[u8]) {
    let bounds = match data.len() % 4 {
        0 => Bounds::NONE,
        1 => Bounds { whitespace: 1, digits: 2, ascii: true },
        _ => Bounds::default(),
    };
    if let Ok((grammar, _)) = engine().grammar_within(source, data, limits(), bounds) {
        let choices: Vec<u8> = data.iter().rev().take(3).copied().collect();
        walk(&grammar, &choices);
    }
}

/// JSON Schema text, with both orders and both kinds of whitespace.
pub fn json_schema(data: &[u8]) {
    let sum = data.iter().fold(0u8, |a, &b| a.wrapping_add(b));
    let space = match sum >> 3 & 3 {
        0 | 1 => Whitespace::Flexible,
        2 => Whitespace::Compact,
        _ => Whitespace::Indent(sum as u32 >> 5, ",".into(), ": ".into()),
    };
    let options = SchemaOptions { any_order: sum & 1 == 1, space, lenient: sum & 4 == 4, ..SchemaOptions::default() };
    compile(&Source::Schema(options), data);
}

/// A pattern.
pub fn regex(data: &[u8]) {
    compile(&Source::Regex, data);
}

/// The JSON form of the grammar IR.
pub fn grammar(data: &[u8]) {
    compile(&Source::Ir, data);
}

/// The text of a grammar.
pub fn ebnf(data: &[u8]) {
    // Bounds are for JSON, which names no tokens.
    if let Ok((grammar, _)) = engine().grammar(&Source::Ebnf { root: "root".into() }, data, limits()) {
        walk(&grammar, b"ab<");
    }
}

/// The JSON text of a structural tag.
pub fn structural_tag(data: &[u8]) {
    let mut options = StructuralOptions::default();
    options.bounds.ascii = data.len() % 3 == 0;
    if let Ok(compiled) = engine().structural_tag(data, &options, limits()) {
        walk(&compiled.grammar, b"<f>");
    }
}

/// A list of tools.
pub fn tools(data: &[u8]) {
    for on_error in [OnError::Raise, OnError::Drop, OnError::AnyJson] {
        let Ok(begin) = NameTemplate::parse("<f={name}>") else { return };
        let frame = Frame { triggers: vec![b"<f=".to_vec()], ..Frame::default() };
        let schema = SchemaOptions::default();
        let bounds = Bounds::default();
        let options = ToolOptions { begin, end: "</f>", frame, on_error, schema, bounds, limits: limits() };
        if let Ok(compiled) = engine().tools(data, &options) {
            walk(&compiled.grammar, b"<fa");
        }
    }
}

/// Each reader of tokenizer files.
pub fn tokenizer(data: &[u8]) {
    let special = vec![("<s>".to_string(), 3), ("</s>".to_string(), 70_000)];
    for vocab in
        [Vocabulary::from_huggingface(data), Vocabulary::from_tekken(data), Vocabulary::from_tiktoken(data, special)]
            .into_iter()
            .flatten()
    {
        use_vocabulary(vocab);
    }
}

/// A prepared vocabulary; its checksum is made right, so that what lies behind it is reached.
pub fn vocabulary(data: &[u8]) {
    /// Where the header of a prepared vocabulary holds its checksum.
    const CHECKSUM: std::ops::Range<usize> = 64..72;
    let _ = Vocabulary::from_stranger(data).is_ok();
    let mut data = data.to_vec();
    if data.len() >= CHECKSUM.end {
        let before = xxhash_rust::xxh3::xxh3_64(&data[..CHECKSUM.start]);
        let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&data[CHECKSUM.end..], before);
        data[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    }
    if let Ok(vocab) = Vocabulary::from_bytes(&data) {
        use_vocabulary(vocab);
    }
}

fn use_vocabulary(vocab: Vocabulary) {
    for id in 0..vocab.len() as u32 + 2 {
        let _ = (vocab.bytes(id), vocab.kind(id), vocab.text(id));
    }
    let _ = vocab.special_tokens().count();
    // A vocabulary that claims a huge model would only test the allocator.
    if vocab.len() > 100_000 {
        return;
    }
    let size = vocab.len();
    let engine = Engine::new(Arc::new(Tokens::new(vocab)), size, Box::default(), 1 << 20);
    let Ok((grammar, _)) = engine.grammar(&Source::Schema(SchemaOptions::default()), b"{}", limits()) else { return };
    let matcher = Matcher::new(grammar.clone(), None, 1);
    let mut row = vec![0u32; grammar.row_words];
    for text in ["", "{", "\"a", "\": 1"] {
        let _ = matcher.accept_bytes(text.as_bytes());
        let _ = matcher.fill(&mut row);
    }
}

const ENTRIES_SCHEMA: &[u8] = br#"{"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{}}}"#;
/// What precedes the records of an entries file: magic, version, fingerprint, BLAKE3 of the records.
const ENTRIES_SUM: std::ops::Range<usize> = 44..76;

/// An entries file; its checksum is made right. Its entries are then used: they may be wrong, as whoever writes them
/// vouches for them, and must not break anything.
pub fn entries(data: &[u8]) {
    static FINGERPRINT: OnceLock<[u8; 32]> = OnceLock::new();
    let fingerprint = FINGERPRINT.get_or_init(|| engine().tokens.vocab.fingerprint());
    let _ = engine().parse_entries(data).is_ok();
    let mut data = data.to_vec();
    if data.len() < ENTRIES_SUM.end {
        return;
    }
    data[12..44].copy_from_slice(fingerprint);
    let sum = blake3::hash(&data[ENTRIES_SUM.end..]);
    data[ENTRIES_SUM].copy_from_slice(sum.as_bytes());
    let Ok(loaded) = engine().parse_entries(&data) else { return };
    let fresh = new_engine();
    *fresh.tokens.loaded.write() = loaded;
    let source = Source::Schema(SchemaOptions::default());
    let Ok((grammar, _)) = fresh.grammar(&source, ENTRIES_SCHEMA, limits()) else { return };
    let matcher = Matcher::new(grammar.clone(), None, 1);
    let mut row = vec![0u32; grammar.row_words];
    for text in ["", "{", "\"a\"", ":", "\"x", "y\"", ",", "\"b\":[1"] {
        let _ = matcher.accept_bytes(text.as_bytes());
        let _ = matcher.fill(&mut row);
    }
}

/// The entries of [`ENTRIES_SCHEMA`], as saved.
fn entries_seed() -> Vec<u8> {
    let engine = new_engine();
    let source = Source::Schema(SchemaOptions::default());
    let (grammar, _) = engine.grammar(&source, ENTRIES_SCHEMA, limits()).expect("a good schema");
    let matcher = Matcher::new(grammar.clone(), None, 1);
    let mut row = vec![0u32; grammar.row_words];
    for text in ["", "{", "\"a\"", ":", "\"x", "y\"", ",", "\"b\":[1"] {
        matcher.accept_bytes(text.as_bytes()).expect("unambiguous");
        matcher.fill(&mut row).expect("unambiguous");
    }
    let path = std::env::temp_dir().join(format!("gramary-fuzz-{}", std::process::id()));
    engine.save_entries(&path).expect("a writable temporary folder");
    let seed = std::fs::read(&path).expect("just written");
    let _ = std::fs::remove_file(path);
    seed
}

/// A length and as many bytes, cut off a frame.
fn piece<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let n = u32::from_le_bytes(data.get(..4)?.try_into().ok()?) as usize;
    let piece = data.get(4..)?.get(..n)?;
    *data = &data[4 + n..];
    Some(piece)
}

fn frame(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.iter().flat_map(|p| (p.len() as u32).to_le_bytes().into_iter().chain(p.iter().copied())).collect()
}

/// A manifest and units (digest, bytes), framed. Units are taken over without regard to their digests, as by a node whose
/// store is damaged: whatever passes the checks of structure must be safe to run, and masks must equal stepping.
pub fn artifacts(data: &[u8]) {
    let mut rest = data;
    let Some(manifest) = piece(&mut rest) else { return };
    let mut units = vec![];
    while let (Some(digest), Some(bytes)) = (piece(&mut rest), piece(&mut rest)) {
        let Ok(digest) = digest.try_into() else { return };
        units.push((digest, bytes));
    }
    let _ = gramary_compiler::flat::verify(&units).len();
    let Ok(manifest) = gramary_compiler::flat::Manifest::parse(manifest) else { return };
    let fresh = new_engine();
    let source = Source::Schema(SchemaOptions::default());
    if fresh.install(&source, b"x", &manifest, &units.into_iter().collect()).is_ok() {
        if let Ok((grammar, _)) = fresh.grammar(&source, b"x", limits()) {
            walk(&grammar, data);
        }
    }
}

fn artifacts_seeds() -> Vec<Vec<u8>> {
    let sources = SCHEMAS.iter().map(|s| (Source::Schema(SchemaOptions::default()), *s));
    let sources = sources.chain(GRAMMARS.iter().map(|g| (Source::Ir, *g)));
    let seed = |(source, text): (Source, &str)| {
        let compiled = engine().artifact(&source, text.as_bytes(), &limits()).ok()?;
        let (manifest, units) = engine().export(&compiled);
        let manifest = manifest.to_bytes();
        let pieces: Vec<&[u8]> = units.iter().flat_map(|(d, bytes)| [&d[..], bytes]).collect();
        Some(frame(&[&[&manifest[..]], &pieces[..]].concat()))
    };
    sources.filter_map(seed).collect()
}

/// Entries offered for [`ENTRIES_SCHEMA`]: slot and bytes by turns, for every unit.
pub fn offers(data: &[u8]) {
    let fresh = new_engine();
    let source = Source::Schema(SchemaOptions::default());
    let Ok((grammar, _)) = fresh.grammar(&source, ENTRIES_SCHEMA, limits()) else { return };
    let mut rest = data;
    while let (Some(slot), Some(entry)) = (piece(&mut rest), piece(&mut rest)) {
        for (_, node) in grammar.nodes() {
            fresh.tokens.offered.put(node.unit.digest, slot, entry);
            let _ = fresh.verify_entry(&node.unit.digest, slot, entry);
        }
    }
    let matcher = Matcher::new(grammar.clone(), None, 1);
    let mut row = vec![0u32; grammar.row_words];
    for text in ["", "{", "\"a\"", ":", "\"x", "y\"", ",", "\"b\":[1"] {
        let _ = matcher.accept_bytes(text.as_bytes());
        let _ = matcher.fill(&mut row);
    }
}

fn offers_seed() -> Vec<u8> {
    let engine = new_engine();
    let source = Source::Schema(SchemaOptions::default());
    let (grammar, _) = engine.grammar(&source, ENTRIES_SCHEMA, limits()).expect("a good schema");
    let matcher = Matcher::new(grammar.clone(), None, 1);
    let mut row = vec![0u32; grammar.row_words];
    for text in ["", "{", "\"a\"", ":", "\"x", "y\"", ",", "\"b\":[1"] {
        matcher.accept_bytes(text.as_bytes()).expect("unambiguous");
        matcher.fill(&mut row).expect("unambiguous");
    }
    let digests: Vec<_> = grammar.nodes().into_iter().map(|(_, n)| n.digest).collect();
    let entries = engine.export_entries(&digests);
    frame(&entries.iter().flat_map(|e| [&e.slot[..], &e.data]).collect::<Vec<_>>())
}

const SCHEMAS: &[&str] = &[
    r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{2,9}$","maxLength":5},"b":{"$ref":"#/$defs/n"}},"required":["a"],"additionalProperties":false,"$defs":{"n":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/n"},"minItems":1,"maxItems":3}]}}}"##,
    r#"{"type":["integer","string"],"minimum":-3,"exclusiveMaximum":1e2,"multipleOf":0.5,"format":"date-time"}"#,
    r#"{"oneOf":[{"const":{"a":[1,"é"]}},{"enum":["x",null,1.0,true]}],"not":{"type":"boolean"}}"#,
    r#"{"if":{"required":["k"]},"then":{"properties":{"k":{"maxLength":2}}},"else":{"minProperties":1},"patternProperties":{"^x-":{"type":"number"}},"propertyNames":{"pattern":"^.{1,3}$"},"dependentRequired":{"a":["b"]}}"#,
    r#"{"type":"array","prefixItems":[{"type":"boolean"},{"type":"string","minLength":2}],"items":false,"contains":{"const":1},"uniqueItems":true,"unevaluatedItems":false}"#,
    r##"{"$id":"http://x/y","$anchor":"z","allOf":[{"$ref":"#z"},{"type":"object","unevaluatedProperties":false}],"$dynamicRef":"#z"}"##,
    r##"{"patternProperties":{"^[a-z]":{"$ref":"#/$defs/v"}},"$defs":{"v":{"oneOf":[{"type":"object","properties":{"xa":{"$ref":"#/$defs/v"}},"required":["xa"]},{"required":["k"],"properties":{"k":{"enum":[]}},"additionalProperties":false},{"patternProperties":{"^x":{"$ref":"#/$defs/v"}},"additionalProperties":false,"minProperties":1,"not":{"required":["xa"]}}]}}}"##,
];

const PATTERNS: &[&str] = &[
    r"^(?:[a-z0-9]+\.)*[\w.-]{2,5}$",
    r"(?<year>\d{4})-(?=0|1)\d\d(?!x)\b",
    r"\p{Lu}\P{L}[^\u{1F600}-\u{1F64F}]|(a|b)*?c{3,}",
    r"[\s\S]{0,100}\x41\u0042\cJ\0\/",
    r"(?i:Ab[c-f])(?s:.)[\b&&--]",
];

const GRAMMARS: &[&str] = &[
    r#"{"rules":[{"name":"s","body":{"expr":{"alt":[{"seq":[{"rule":0},{"bytes":"a"}]},{"bytes":[98,255]},"empty"]}}}],"root":0}"#,
    r#"{"rules":[{"name":"o","body":{"object":{"properties":[{"name":"k","value":{"call":{"rule":1,"args":[[0,5]]}},"required":true},{"name":"f","value":null,"required":false}],"others":[{"keys":{"json_chars":{"ranges":[[97,122]],"free":true}},"value":{"rule":0}}],"order":"any","min_properties":1,"max_properties":3,"space":{"pad":"empty","comma":{"bytes":","},"colon":{"bytes":":"}}}}},{"name":"t","body":"json_string"}],"root":0}"#,
    r#"{"rules":[{"name":"d","body":{"dispatch":{"triggers":[[98,99],[97,98,99,100]],"handlers":[{"bytes":"Z"},{"rule":1}],"stops":[[46]],"excludes":[[33]],"min_tags":0,"max_tags":2,"stop_after_last":false,"open_end":true}}},{"name":"x","body":{"expr":{"seq":[{"token":275},{"chars":[[97,233]]}]}}}],"root":0}"#,
    r#"{"rules":[{"name":"r","body":{"expr":{"and":[{"repeat":{"body":{"class":[[97,98]]},"min":2,"max":30}},{"sub":[{"repeat":{"body":{"chars":[[0,1114111]]},"min":0,"max":null}},{"bytes":"ab"}]}]}}},{"name":"a","body":{"expr":{"automaton":{"states":[{"edges":[[97,99,0],[100,100,1]],"accept":false},{"edges":[],"accept":true}]}}}},{"name":"h","body":{"expr":{"hole":0}}}],"root":0}"#,
];

const TOOLS: &[&str] = &[
    r#"[{"name":"a","parameters":{"type":"object","properties":{"x":{"type":"integer"}}}},{"type":"function","function":{"name":"ab","description":"…","parameters":{"enum":[1]}}}]"#,
    r#"[{"name":"n"},{"name":"bad","parameters":{"$ref":"nowhere"}},{"name":"x\u0041","parameters":true}]"#,
];

const TOKENIZERS: &[&str] = &[
    r#"{"added_tokens":[{"id":3,"content":"<s>","special":true},{"id":4,"content":"hi","special":false}],"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"b":1,"Ġab":2},"merges":["a b",["Ġ","ab"]]}}"#,
    r#"{"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}]},"model":{"type":"BPE","byte_fallback":true,"vocab":{"<0x0A>":0,"▁a":1,"<unk>":2},"merges":[]}}"#,
    r#"{"model":{"type":"Unigram","vocab":[["<unk>",0.0],["▁x",-1.5]]},"decoder":{"type":"Metaspace","replacement":"▁"}}"#,
    r#"{"config":{"pattern":"x","num_vocab_tokens":10,"default_vocab_size":12,"default_num_special_tokens":2,"version":"v3"},"vocab":[{"rank":0,"token_bytes":"AA==","token_str":null},{"rank":1,"token_bytes":"YQ==","token_str":"a"}],"special_tokens":[{"rank":0,"token_str":"<unk>","is_control":true}]}"#,
    "IQ== 0\nYQ== 1\nYWI= 2\n",
];

const EBNF: &[&str] = &[
    "root ::= \"a\" | [b-d^\\]]{2,5} x*\n# c\nx ::= \"\\u00e9\" root? | \"\"",
    "root[capture=\"x\"] ::= Regex(\"a+|b\", flags=\"i\") Substring(\"ab\", \"c\") (= \"x\" [a])",
    "root ::= TagDispatch((\"<f\", x), (\"f<\", y), loop_after_dispatch=false, excludes=(\"ab\"))\nx ::= \"1\"?\ny ::= root",
    "root ::= Token(270, 3) | ExcludeToken(65) TokenTagDispatch((97, x), excludes=(98))\nx ::= . [^a]",
];

const STRUCTURAL_TAGS: &[&str] = &[
    r#"{"format":{"type":"star","content":{"type":"tag","begin":"<","content":{"type":"any_text","max_tokens":1,"excludes":["b<"]},"end":["<f","a</s>",""]}}}"#,
    r#"{"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f","f>"],"tags":[{"type":"tag","begin":"<f>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":["</f>",""]}],"excludes":["ab"]}}"#,
    r#"{"format":{"type":"sequence","elements":[{"type":"tag","begin":"a","content":{"type":"any_text","max_chars":3},"end":"ab"},{"type":"or","elements":[{"type":"token","token":"</s>"},{"type":"any_tokens","exclude_tokens":[97]}]}]}}"#,
    r#"{"format":{"type":"repeat","min":1,"max":-1,"content":{"type":"dispatch","rules":[["<",{"type":"regex","pattern":"a*"}],["</s>",{"type":"grammar","grammar":"root ::= \"a\""}]],"loop":false}}}"#,
    r#"{"structures":[{"begin":"<f>","schema":{"type":"boolean"},"end":"</f>"}],"triggers":["<f"]}"#,
    r#"{"format":{"type":"tags_with_separator","separator":",","tags":[{"begin":"</s>x","content":{"type":"any_text"},"end":{"type":"token","token":97}}]}}"#,
    r##"{"format":{"type":"json_schema","style":"cohere_xml","json_schema":{"properties":{"a":{"type":"array","items":{"$ref":"#"}},"b":{"enum":["x",1,{"c":[null]}]}},"additionalProperties":{"type":"string"}}}}"##,
    r#"{"format":{"type":"json_schema","style":"gemma","any_order":true,"excludes":["ab"],"json_schema":{"anyOf":[{"properties":{"a":{"type":"string","minLength":1}},"required":["a"]},{"type":"array"}]}}}"#,
    r#"{"format":{"type":"json_schema","style":"minimax_m3_xml","max_whitespace_cnt":1,"json_schema":{"properties":{"a":{"type":["string","integer"]},"b":{"const":["x"]}},"additionalProperties":false}}}"#,
    r#"{"format":{"type":"json_schema","style":"kimi_k3_xml","json_schema":{"properties":{"a\"":{}},"patternProperties":{"^x":{"type":"object"}},"required":["a\""]}}}"#,
];
