//! The values of `format`, as patterns.
//!
//! What the formats mean is fixed, so each is compiled once in a process, on first use, and then handed out as a finished
//! automaton (a shared pointer). A caller makes a format a rule of its own; the rule is then the same unit wherever the
//! format is used.
//!
//! Where RFC, the JSON-Schema-Test-Suite and Python's checkers differ, the narrower reading is taken, with these notes:
//!
//! - `date-time`, `time`: leap seconds as the suite wants them, at 23:59:60 UTC, for offsets in whole and half hours.
//! - `email`, `idn-email`: dotted atoms or a quoted string, a host name or an address in brackets; no comments, no lengths.
//! - `hostname`: any A-label is taken for well-formed; Punycode is not decoded.
//! - `idn-hostname`: labels in lower-case ASCII, or of letters of one script out of [`IDN_LETTERS`], at most
//!   [`IDN_LABEL`] long. No contextual characters, no marks; whether the A-label stays within 63 is not checked.
//! - `relative-json-pointer`: as its draft says. (Python's checker refuses `100`.)
//! - `byte`, `binary`, `password` restrict nothing: what schemas in the wild call `byte` is often not Base64. Numbers'
//!   formats are bounds, in [`format_bounds`](super::numbers::format_bounds).
//! - `regex`: patterns are not a regular language. Where nothing else is asked of a string they are rules ([`patterns`]); as
//!   an automaton, which can be intersected with other constraints, they have groups at most [`GROUP_DEPTH`] deep and no names.

pub(super) mod patterns;

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use crate::error::Result;
use crate::ir::Expr;
use crate::limits::{Budget, Limits};
use crate::lower;
use crate::regex::{any_string, regex, Alphabet, Anchoring};

/// Groups inside groups of a `regex`.
const GROUP_DEPTH: usize = 2;

/// Letters that labels of internationalised host names are made of, script by script.
const IDN_LETTERS: [&str; 14] = [
    r"a-z0-9\u00DF-\u00F6\u00F8-\u00FF",
    r"\u0390\u03AC-\u03CE",
    r"\u0430-\u045F",
    r"\u0561-\u0586",
    r"\u05D0-\u05EA",
    r"\u0627-\u063A\u0641-\u064A",
    r"\u0905-\u0939",
    r"\u0E01-\u0E30\u0E32",
    r"\u10D0-\u10F0",
    r"\u3041-\u3096",
    r"\u30A1-\u30FA",
    r"\u1200-\u1248",
    r"\u4E00-\u9FA5",
    r"\uAC00-\uD7A3",
];
/// What separates labels of such names.
const DOTS: &str = r".\u3002\uFF0E\uFF61";
/// Most characters of such a label.
const IDN_LABEL: u32 = 60;

const KNOWN: [&str; 19] = [
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uuid",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];

/// Strings of a format, as they stand between quotes (in the JSON alphabet); `None` if it restricts no string.
pub fn format(name: &str, alphabet: Alphabet) -> Option<Result<Expr>> {
    static MADE: [[OnceLock<Result<Expr>>; 2]; KNOWN.len()] = [const { [const { OnceLock::new() }; 2] }; KNOWN.len()];
    let i = KNOWN.iter().position(|k| *k == name)?;
    Some(MADE[i][usize::from(alphabet == Alphabet::Json)].get_or_init(|| make(name, alphabet)).clone())
}

/// Whether a format means anything here: as an automaton, as bounds of numbers, or nothing on purpose.
pub fn is_known(name: &str) -> bool {
    matches!(name, "byte" | "binary" | "password")
        || super::numbers::format_bounds(name).is_some()
        || KNOWN.contains(&name)
}

/// Whether a format is taken in part only: a string that is not taken may have it all the same. So such a format can be asked
/// for, but where its negation is needed, nothing follows from it.
pub fn is_partial(name: &str) -> bool {
    matches!(name, "regex" | "idn-hostname")
}

fn make(name: &str, alphabet: Alphabet) -> Result<Expr> {
    let budget = Budget::new(Limits::default());
    let finished = |pattern: &str| -> Result<Expr> {
        let e = regex(pattern, alphabet, Anchoring::Full, &budget)?;
        Ok(Expr::Automaton(Arc::new(lower::dfa(&e, &budget)?)))
    };
    match name {
        "date-time" => finished(&format!("(?:{DATE})[Tt](?:{})", time())),
        "date" => finished(DATE),
        "time" => finished(&time()),
        "duration" => finished(DURATION),
        "email" => finished(&format!(r#"(?:{}|"(?:{})*")@(?:{}|{})"#, dotted(ATEXT), QUOTED, host(LDH, LD), literal())),
        "idn-email" => {
            let wide = |s: &str| format!(r"{s}\u{{80}}-\u{{10FFFF}}");
            let quoted = format!(r"{QUOTED}|[\u{{80}}-\u{{10FFFF}}]");
            let domain = host(&wide(LDH), &wide(LD));
            finished(&format!(r#"(?:{}|"(?:{quoted})*")@(?:{domain}|{})"#, dotted(&wide(ATEXT)), literal()))
        }
        "hostname" => {
            let shape = finished(&host(LDH, LD))?;
            let lengths =
                regex(&format!(r"(?:[{LDH}]{{1,63}}\.)*[{LDH}]{{1,63}}"), alphabet, Anchoring::Full, &budget)?;
            Ok(Expr::And(vec![shape, lengths, any_string(alphabet, 1, Some(253))]))
        }
        "idn-hostname" => {
            let label = format!("[^{DOTS}]{{1,{IDN_LABEL}}}");
            let lengths = regex(&format!("(?:{label}[{DOTS}])*{label}"), alphabet, Anchoring::Full, &budget)?;
            Ok(Expr::And(vec![finished(&idn_hostname())?, lengths]))
        }
        "ipv4" => finished(&ipv4()),
        "ipv6" => finished(&ipv6()),
        "uri" => finished(&uri(false, false)),
        "uri-reference" => finished(&uri(false, true)),
        "iri" => finished(&uri(true, false)),
        "iri-reference" => finished(&uri(true, true)),
        "uuid" => finished(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
        "uri-template" => finished(&uri_template()),
        "json-pointer" => finished(POINTER),
        "relative-json-pointer" => finished(&format!(r"(?:0|[1-9]\d*)(?:#|{POINTER})")),
        _ => finished(&patterns::pattern(GROUP_DEPTH)),
    }
}

/// Real days of the Gregorian calendar, years 0001 to 9999. Leap years are those divisible by 4, but by 400 for centuries.
const DATE: &str = concat!(
    r"(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-(?:",
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))",
    r"|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29",
);

const POINTER: &str = r"(?:/(?:[^/~]|~[01])*)*";

/// Appendix A of RFC 3339.
const DURATION: &str = concat!(
    r"P(?:(?:\d+D|\d+M(?:\d+D)?|\d+Y(?:\d+M(?:\d+D)?)?)(?:T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))?",
    r"|T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)|\d+W)",
);

/// Insides of classes: characters of atoms of an address, of labels, of labels' ends.
const ATEXT: &str = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-";
const LDH: &str = r"A-Za-z0-9\-";
const LD: &str = "A-Za-z0-9";
/// One character of a quoted local part.
const QUOTED: &str = r#"[ !#-\[\]-~]|\\[ -~]"#;

fn dotted(class: &str) -> String {
    format!(r"[{class}]+(?:\.[{class}]+)*")
}

fn host(inner: &str, ends: &str) -> String {
    let label = format!("[{ends}](?:[{inner}]*[{ends}])?");
    format!(r"{label}(?:\.{label})*")
}

/// An address in brackets as the domain of a mailbox.
fn literal() -> String {
    format!(r"\[(?:{}|IPv6:(?:{}))\]", ipv4(), ipv6())
}

fn ipv4() -> String {
    let octet = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)";
    format!(r"{octet}(?:\.{octet}){{3}}")
}

fn ipv6() -> String {
    let h = "[0-9A-Fa-f]{1,4}";
    let last = format!("(?:{h}:{h}|{})", ipv4());
    let mut alts = vec![format!("(?:{h}:){{6}}{last}")];
    // `::` with up to `before` groups to its left, and exactly `after` and the last two to its right.
    for before in 0..=5 {
        let left = if before == 0 { String::new() } else { format!("(?:(?:{h}:){{0,{}}}{h})?", before - 1) };
        alts.push(format!("{left}::(?:{h}:){{{}}}{last}", 5 - before));
    }
    alts.push(format!("(?:(?:{h}:){{0,5}}{h})?::{h}"));
    alts.push(format!("(?:(?:{h}:){{0,6}}{h})?::"));
    format!("(?:{})", alts.join("|"))
}

/// RFC 3339's full-time, with leap seconds at 23:59:60 UTC.
fn time() -> String {
    let mut s = String::from(
        r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)|23:59:60(?:\.\d+)?[Zz]",
    );
    for h in 0..24 {
        // Local time less the offset is 23:59.
        for (minute, plus, half) in [(59, (h + 1) % 24, "00"), (29, h, "30")] {
            let minus = 23 - h;
            // Writing to a string does not fail.
            let _ = write!(s, r"|{h:02}:{minute}:60(?:\.\d+)?(?:\+{plus:02}:{half}|-{minus:02}:{half})");
        }
    }
    s
}

/// RFC 3986 and, if `wide`, RFC 3987.
fn uri(wide: bool, reference: bool) -> String {
    let (ucs, private) = if wide {
        let mut ucs = String::from(r"\u{A0}-\u{D7FF}\u{F900}-\u{FDCF}\u{FDF0}-\u{FFEF}");
        for plane in 1..=14 {
            let first = if plane == 14 { 0x1000 } else { 0 };
            let _ = write!(ucs, r"\u{{{:X}}}-\u{{{:X}}}", (plane << 16) + first, (plane << 16) + 0xFFFD);
        }
        (ucs, r"\u{E000}-\u{F8FF}\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD}")
    } else {
        (String::new(), "")
    };
    let pct = "%[0-9A-Fa-f]{2}";
    let free = format!(r"A-Za-z0-9\-._~{ucs}");
    let sub = "!$&'()*+,;=";
    let pchar = format!("(?:[{free}{sub}:@]|{pct})");
    let future = r"v[0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+";
    let authority =
        format!(r"(?:(?:[{free}{sub}:]|{pct})*@)?(?:\[(?:{}|{future})\]|(?:[{free}{sub}]|{pct})*)(?::\d*)?", ipv6());
    let segments = format!("(?:/{pchar}*)*");
    let tail = format!(r"(?:\?(?:[{free}{sub}:@/?{private}]|{pct})*)?(?:#(?:[{free}{sub}:@/?]|{pct})*)?");
    let hier = |first: &str| format!("(?://{authority}{segments}|/(?:{pchar}+{segments})?|{first}{segments}|)");
    let absolute = format!(r"[A-Za-z][A-Za-z0-9+.\-]*:{}{tail}", hier(&format!("{pchar}+")));
    if !reference {
        return absolute;
    }
    let relative = format!("{}{tail}", hier(&format!("(?:[{free}{sub}@]|{pct})+")));
    format!("{absolute}|{relative}")
}

/// RFC 6570, prefixes of at most three digits, names that start with a letter, digit or `_`.
fn uri_template() -> String {
    let pct = "%[0-9A-Fa-f]{2}";
    let literal = format!(
        r"[!#$&(-;=?-\[\]_a-z~\u{{A0}}-\u{{D7FF}}\u{{F900}}-\u{{FDCF}}\u{{FDF0}}-\u{{FFEF}}\u{{10000}}-\u{{1FFFD}}]|{pct}"
    );
    let var = format!("(?:[A-Za-z0-9_]|{pct})");
    let spec = format!(r"[A-Za-z0-9_](?:\.?{var})*(?:\*|:[1-9]\d{{0,2}})?");
    format!(r"(?:{literal}|\{{[+#./;?&]?{spec}(?:,{spec})*\}})*")
}

/// Labels in ASCII as host names have them, but in lower case and without `--` in third place, or of one script.
fn idn_hostname() -> String {
    let (a, b) = ("[a-z0-9]", "[a-z0-9-]");
    let mut label = format!("(?:{a}{a}?|{a}{b}{a}|{a}{b}{b}{a}|{a}{b}(?:{a}{b}|-{a}){b}*{a}");
    for letters in IDN_LETTERS {
        let _ = write!(label, "|[{letters}]+");
    }
    label.push(')');
    format!("{label}(?:[{DOTS}]{label})*")
}

#[cfg(test)]
mod tests;
