//! Strings that must differ: matcher and masks against an oracle that reads the text by itself.

use std::sync::Arc;

use gramary_compiler::digest::digests;
use gramary_compiler::fsm::{Callee, Fsm, PLAIN};
use gramary_compiler::ir::Expr;
use gramary_compiler::lower::grammar::{LoweredGrammar, LoweredRule};
use gramary_compiler::lower::{json_string_fsm, Builder};
use gramary_compiler::program::{Program, UnitStore};
use gramary_compiler::vocab::{TokenSpec, Vocabulary};
use gramary_compiler::{Budget, Limits};
use gramary_runtime::{Grammar, Matcher, Tokens};
use proptest::prelude::*;

fn grammar(rules: Vec<Fsm>, vocab: Vocabulary) -> Arc<Grammar> {
    let budget = Budget::new(Limits::default());
    let rules: Vec<LoweredRule> =
        rules.into_iter().map(|fsm| LoweredRule { name: "r".into(), fsm, holes: vec![] }).collect();
    let d = digests(&rules, &budget).unwrap();
    let store = Arc::new(UnitStore::default());
    let artifact = Arc::new(store.install(LoweredGrammar { rules, root: 0, root_nullable: false, digests: d }));
    let n = vocab.len();
    let program = Program::of(&store, artifact);
    Arc::new(Grammar::new(Arc::new(Tokens::new(vocab)), program, Limits::default(), None, Box::new([0]), n))
}

/// What a container's strings are: some of finitely many that begin with `a`, or `b` and anything.
#[derive(Clone, Debug)]
struct Strings {
    few: Vec<&'static str>,
    /// Whether any string that begins with `b` is one.
    open: bool,
}

impl Strings {
    fn has(&self, text: &str) -> bool {
        self.few.contains(&text) || self.open && text.starts_with('b')
    }

    fn expr(&self) -> Expr {
        let char = |c: char| Expr::JsonChars { ranges: vec![(c as u32, c as u32)], free: true };
        let word = |w: &str| Expr::seq(w.chars().map(char).collect::<Vec<_>>());
        let mut all: Vec<Expr> = self.few.iter().map(|w| word(w)).collect();
        if self.open {
            all.push(Expr::seq([char('b'), Expr::alt([char('a'), char('b')]).star()]));
        }
        Expr::seq([Expr::lit("\""), Expr::alt(all), Expr::lit("\"")])
    }
}

/// A kind of container: an array of strings and containers of the same kind, or an object with 1 and such containers for
/// values.
#[derive(Clone, Debug)]
struct Kind {
    strings: Strings,
    object: bool,
    distinct: bool,
}

/// Adds a container between two states; `me` is the rule of its kind, `one` that of the value 1.
fn container(b: &mut Builder<'_>, k: &Kind, start: u32, end: u32, me: u32, one: u32) {
    let mut state = || b.state().unwrap();
    let (first, string, next, done) = (state(), state(), state(), state());
    let [open, close] = if k.object { *b"{}" } else { *b"[]" };
    b.byte(start, open, open, PLAIN, first);
    if k.distinct {
        b.mark(first);
        b.mark(string);
    }
    for from in [first, next] {
        b.expr(&k.strings.expr(), from, string).unwrap();
        if !k.object {
            b.reference(from, Callee::Rule(me), None, PLAIN, done);
        }
    }
    if k.object {
        let value = b.state().unwrap();
        b.byte(string, b':', b':', PLAIN, value);
        b.reference(value, Callee::Rule(me), None, PLAIN, done);
        b.reference(value, Callee::Rule(one), None, PLAIN, done);
    } else {
        b.byte(string, b',', b',', PLAIN, next);
        b.byte(string, close, close, PLAIN, end);
    }
    b.byte(first, close, close, PLAIN, end);
    b.byte(done, b',', b',', PLAIN, next);
    b.byte(done, close, close, PLAIN, end);
}

/// Either of two kinds, by reference or in one automaton.
fn rules(kinds: &[Kind; 2], inlined: bool) -> Vec<Fsm> {
    let budget = Budget::new(Limits::default());
    let nullable = [false; 4];
    let build = |make: &dyn Fn(&mut Builder<'_>, u32, u32)| {
        let mut b = Builder::new(&nullable, &budget);
        let (start, end) = (b.state().unwrap(), b.state().unwrap());
        make(&mut b, start, end);
        b.accept(end, PLAIN);
        b.finish(start).unwrap().fsm
    };
    let root = build(&|b, start, end| {
        for (i, k) in (1u32..).zip(kinds) {
            if inlined {
                container(b, k, start, end, i, 3);
            } else {
                b.reference(start, Callee::Rule(i), None, PLAIN, end);
            }
        }
    });
    let kind = |i: usize| build(&|b, start, end| container(b, &kinds[i], start, end, i as u32 + 1, 3));
    let one = build(&|b, start, end| b.expr(&Expr::lit("1"), start, end).unwrap());
    vec![root, kind(0), kind(1), one]
}

/// Reads a text by itself: whether it is the beginning of a word, and whether it is one.
fn read(k: &Kind, text: &[u8]) -> (bool, bool) {
    #[derive(PartialEq)]
    enum At {
        Open,
        /// Behind the opening bracket.
        First,
        Item,
        String,
        Colon,
        Value,
        Done,
        End,
    }
    let [open, close] = if k.object { *b"{}" } else { *b"[]" };
    let mut earlier: Vec<Vec<String>> = vec![];
    let (mut at, mut spelled) = (At::Open, vec![]);
    for &b in text {
        at = match (&at, b) {
            (At::Open | At::Value, b) if b == open => {
                earlier.push(vec![]);
                At::First
            }
            (At::First | At::Item, b) if b == open && !k.object => {
                earlier.push(vec![]);
                At::First
            }
            (At::First | At::Item, b'"') => {
                spelled.clear();
                At::String
            }
            (At::Value, b'1') => At::Done,
            (At::String, b'"') => {
                let (word, partial) = decode(&spelled);
                let seen = earlier.last_mut().unwrap();
                if !partial.is_empty() || !k.strings.has(&word) || k.distinct && seen.contains(&word) {
                    return (false, false);
                }
                seen.push(word);
                if k.object {
                    At::Colon
                } else {
                    At::Done
                }
            }
            (At::String, b) if b.is_ascii() => {
                spelled.push(b);
                At::String
            }
            (At::Colon, b':') => At::Value,
            (At::Done, b',') => At::Item,
            (At::First | At::Done, b) if b == close => {
                earlier.pop();
                if earlier.is_empty() {
                    At::End
                } else {
                    At::Done
                }
            }
            _ => return (false, false),
        };
        if at == At::String && !possible(k, &spelled, earlier.last().unwrap()) {
            return (false, false);
        }
    }
    (true, at == At::End)
}

const SPELLINGS: [(char, [&str; 2]); 2] = [('a', ["a", "\\u0061"]), ('b', ["b", "\\u0062"])];

/// The characters spelled, and what is left of the last one.
fn decode(spelled: &[u8]) -> (String, String) {
    let mut rest = std::str::from_utf8(spelled).unwrap();
    let mut word = String::new();
    'next: while !rest.is_empty() {
        for (c, ways) in SPELLINGS {
            if let Some(after) = ways.iter().find_map(|w| rest.strip_prefix(w)) {
                word.push(c);
                rest = after;
                continue 'next;
            }
        }
        break;
    }
    (word, rest.to_owned())
}

/// Whether what is spelled can become a string that is not an earlier one.
fn possible(k: &Kind, spelled: &[u8], earlier: &[String]) -> bool {
    let (word, partial) = decode(spelled);
    let next = |c: char| SPELLINGS.iter().any(|s| s.0 == c && s.1.iter().any(|w| w.starts_with(&partial)));
    let begins =
        |w: &str| w.strip_prefix(&word).is_some_and(|rest| partial.is_empty() || rest.chars().next().is_some_and(next));
    let open =
        k.strings.open && if word.is_empty() { next('b') } else { word.starts_with('b') && (next('a') || next('b')) };
    open || k.strings.few.iter().any(|w| begins(w) && !(k.distinct && earlier.iter().any(|e| e == w)))
}

const WORDS: [&str; 34] = [
    "\",\"",
    "\",\"a",
    "\",\"a\",\"a\"",
    "[\"a\",\"a\"",
    "[\"a\",\"aa\"",
    "a\"",
    "\"]",
    "\\u0061\"",
    "ab",
    "aa",
    "bb",
    "\"],[\"",
    "\"],\"a\"",
    "],\"b\"",
    "[\"",
    "\"a",
    ",\"b\"",
    ",\"b\",\"b\"",
    "\"\"",
    "\"\",\"",
    "\\u006",
    "\\u",
    "1,\"a",
    "\":1,\"a\"",
    "\":1",
    "{\"",
    "{\"b\":1,\"b",
    "\"},\"",
    "},\"b\"",
    "\"b\"]",
    "[[\"b\",\"b",
    "b\",\"b\"",
    "0061",
    "\"ab\",\"ab\"",
];

fn vocabulary() -> Vocabulary {
    let mut tokens = vec![TokenSpec::special("</s>")];
    tokens.extend(WORDS.iter().map(|w| TokenSpec::text(*w)));
    tokens.extend((0..=255u8).map(|b| TokenSpec::text(vec![b])));
    Vocabulary::from_tokens(tokens, vec![("</s>".into(), 0)]).unwrap()
}

/// Walks along a text that `dice` picks among what may follow. At every place matcher, mask and oracle agree, about forks
/// and after going back, too.
fn walk(kinds: &[Kind; 2], inlined: bool, dice: &[u16]) {
    let g = grammar(rules(kinds, inlined), vocabulary());
    let m = Matcher::new(g.clone(), None, 8);
    let viable = |text: &[u8]| kinds.iter().any(|k| read(k, text).0);
    let n = g.tokens.vocab.len() as u32;
    let (mut text, mut row) = (vec![], vec![0u32; g.row_words]);
    let mut lengths = vec![0];
    for &die in dice {
        m.fill(&mut row).unwrap();
        let shown = String::from_utf8_lossy(&text).into_owned();
        let mut allowed = vec![];
        for t in 1..n {
            let bytes = g.tokens.vocab.bytes(t);
            let right = viable(&[&text, bytes].concat());
            let masked = row[t as usize / 32] >> (t % 32) & 1 == 1;
            let token = String::from_utf8_lossy(bytes);
            assert_eq!(masked, right, "mask: {token} after {shown} of {kinds:?}");
            assert_eq!(m.validate(&[t]).unwrap() == 1, right, "matcher: {token} after {shown} of {kinds:?}");
            if right {
                allowed.push(t);
            }
        }
        let complete = kinds.iter().any(|k| read(k, &text).1);
        assert_eq!(m.is_complete(), complete, "{shown}");
        let forced = m.jump_forward().unwrap();
        let more = (0..=255u8).filter(|&b| viable(&[&text, &[b][..]].concat())).count();
        assert_eq!(!forced.is_empty(), !complete && more == 1, "{forced:?} after {shown} of {kinds:?}");
        assert!(viable(&[&text[..], &forced].concat()), "{forced:?} after {shown}");
        if allowed.is_empty() {
            assert!(complete, "nothing may follow {shown} of {kinds:?}");
            break;
        }
        // Long words of the vocabulary are the rarer ones.
        let t = allowed[die as usize % allowed.len()];
        let back = (1 + die as usize / 7 % 3).min(lengths.len() - 1);
        match die % 7 {
            0 if back > 0 => {
                m.rollback(back).unwrap();
                lengths.truncate(lengths.len() - back);
                text.truncate(lengths[lengths.len() - 1]);
                continue;
            }
            1 => assert!(m.fork().accept(t).unwrap()),
            2 => g.flush(),
            _ => {}
        }
        assert!(m.accept(t).unwrap());
        text.extend_from_slice(g.tokens.vocab.bytes(t));
        lengths.push(text.len());
        while lengths.len() > 8 {
            lengths.remove(0);
        }
    }
}

fn strings() -> impl Strategy<Value = Strings> {
    let few = proptest::sample::subsequence(vec!["a", "aa", "ab", "aab", "aba"], 0..=5);
    few.prop_map(|few| Strings { few, open: true })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn matcher_and_masks_are_exact(
        a in strings(),
        b in strings(),
        object: bool,
        both: [bool; 2],
        inlined: bool,
        dice in prop::collection::vec(any::<u16>(), 30),
    ) {
        let mut few = b;
        // The other alternative sometimes has no strings that the first has not, and sometimes is finite.
        few.open = few.few.is_empty() || dice[0] % 2 == 0 || both[1];
        let kinds = [Kind { strings: a, object, distinct: true }, Kind { strings: few, object, distinct: both[1] && both[0] }];
        walk(&kinds, inlined, &dice);
    }
}

/// One array of distinct strings of any kind.
fn any_strings(vocab: Vocabulary) -> Arc<Grammar> {
    let budget = Budget::new(Limits::default());
    let nullable = [false; 2];
    let mut b = Builder::new(&nullable, &budget);
    let mut state = || b.state().unwrap();
    let (start, first, string, next, end) = (state(), state(), state(), state(), state());
    b.byte(start, b'[', b'[', PLAIN, first);
    b.byte(string, b',', b',', PLAIN, next);
    b.byte(string, b']', b']', PLAIN, end);
    for from in [first, next] {
        b.expr(&Expr::json_string(1, 0, None), from, string).unwrap();
    }
    for q in [first, string, next] {
        b.byte(q, b' ', b' ', PLAIN, q);
    }
    b.mark(first);
    b.mark(string);
    b.accept(end, PLAIN);
    grammar(vec![b.finish(start).unwrap().fsm, json_string_fsm()], vocab)
}

fn takes(g: &Arc<Grammar>, text: &str) -> bool {
    let m = Matcher::new(g.clone(), None, 0);
    text.bytes().all(|b| m.accept_bytes(&[b]).unwrap()) && m.is_complete()
}

#[test]
fn equal_however_they_are_spelled() {
    let g = any_strings(vocabulary());
    for yes in [
        r#"["a","b" , "ab","A"]"#,
        r#"["","a"]"#,
        r#"["\ud83d\ude00","\ud83d\ude01"]"#,
        r#"["\\u0061","a"]"#,
        r#"["\/","\\/"]"#,
        "[\"\u{e9}\",\"e\u{301}\"]",
        r#"["[","]","{"]"#,
    ] {
        assert!(takes(&g, yes), "{yes}");
    }
    for no in [
        r#"["a","b" , "a"]"#,
        r#"["",""]"#,
        r#"["a","\u0061"]"#,
        "[\"\\u00E9\",\"\u{e9}\"]",
        "[\"\\ud83d\\ude00\",\"\u{1f600}\"]",
        r#"["\/","/"]"#,
        r#"["\n","\u000A"]"#,
        r#"["\"","\u0022"]"#,
        r#"["[","["]"#,
    ] {
        assert!(!takes(&g, no), "{no}");
    }
}

/// A real vocabulary, where this machine has one.
fn llama() -> Option<Vocabulary> {
    let folder = std::env::var("GRAMARY_TOKENIZERS").unwrap_or_else(|_| "/work/shared/data/tokenizers".into());
    let json = std::fs::read(std::path::Path::new(&folder).join("llama3_1/tokenizer.json")).ok()?;
    Some(Vocabulary::from_huggingface(&json).unwrap())
}

#[test]
fn masks_of_a_real_vocabulary() {
    let Some(vocab) = llama() else { return };
    let g = any_strings(vocab);
    let m = Matcher::new(g.clone(), None, 0);
    let mut row = vec![0u32; g.row_words];
    let text = r#"["name", "names","na","", "\"x","[\"", "id","id2", "\u006ea", "n"#;
    for end in 0..=text.len() {
        if end > 0 {
            let took = m.accept_bytes(&text.as_bytes()[end - 1..end]).unwrap();
            if !took {
                assert_eq!(&text[..end], r#"["name", "names","na","", "\"x","[\"", "id","id2", "\u006ea""#);
                return;
            }
        }
        m.fill(&mut row).unwrap();
        for t in 0..g.tokens.vocab.len() as u32 {
            let masked = row[t as usize / 32] >> (t % 32) & 1 == 1;
            let token = String::from_utf8_lossy(g.tokens.vocab.bytes(t));
            assert_eq!(masked, m.validate(&[t]).unwrap() == 1, "{token:?} after {}", &text[..end]);
        }
    }
    panic!("the repeated name was taken");
}
