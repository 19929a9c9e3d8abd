//! How a Hugging Face tokenizer's pieces (the strings in its vocabulary) stand for bytes.
//!
//! A piece's bytes are what the tokenizer's *decoder* makes of it in the middle of a text. Decoders are small pipelines;
//! those of language models consist of the few [`Step`]s below, each of which looks at one piece at a time. A decoder that
//! looks at its neighbours (WordPiece's cleanup, `</w>` at the end of words) gives a token no bytes of its own, so it is
//! refused.

use std::borrow::Cow;

use serde_json::Value;

use super::error::VocabError;

const REMEDY: &str = "Give the tokens' bytes yourself with Tokenizer.from_bytes";

/// Most steps a decoder may have; those in use have up to four.
const MAX_STEPS: usize = 16;
/// How many times longer than itself a piece may become, so that a small hostile file does not become a large vocabulary.
const MAX_GROWTH: usize = 16;

/// One thing that a decoder does to a piece.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Replace {
        from: String,
        to: String,
    },
    /// Remove up to so many of the character at the start and the end.
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    /// The piece `<0xNN>` is a byte.
    ByteFallback,
    /// Each character is a byte; see [`alphabet_byte`].
    ByteLevel,
}

/// A decoder as far as it concerns single pieces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Decoding {
    steps: Vec<Step>,
}

impl Decoding {
    /// From the sections of a `tokenizer.json`. `pieces` are looked at only where the sections say nothing.
    pub fn detect<'a>(
        decoder: Option<&Value>,
        pre_tokenizer: Option<&Value>,
        normalizer: Option<&Value>,
        pieces: impl Iterator<Item = &'a str>,
    ) -> Result<Decoding, VocabError> {
        let mut decoding = Decoding::default();
        if let Some(decoder) = decoder.filter(|d| !d.is_null()) {
            decoding.add_decoder(decoder, "/decoder", &mut false)?;
            if decoding.steps.len() > MAX_STEPS {
                return Err(VocabError::Unsupported {
                    place: "/decoder".into(),
                    what: format!("a decoder of {} steps", decoding.steps.len()),
                    remedy: REMEDY,
                });
            }
            return Ok(decoding);
        }
        // No decoder: what encoding did to the text is undone.
        let uses = |section: Option<&Value>, kind: &str| find(section, &mut |c| kind_of(c) == kind).is_some();
        if uses(pre_tokenizer, "ByteLevel") || uses(normalizer, "ByteLevel") {
            decoding.steps.push(Step::ByteLevel);
            return Ok(decoding);
        }
        let statistics = Statistics::of(pieces);
        if let Some(metaspace) = find(pre_tokenizer, &mut |c| kind_of(c) == "Metaspace") {
            decoding.steps.push(metaspace_step(metaspace));
        } else if let Some(mark) = find(normalizer, &mut |c| replaced_space(c).is_some()).and_then(replaced_space) {
            decoding.steps.push(Step::Replace { from: mark.into(), to: " ".into() });
        } else if statistics.alphabet == 256 {
            decoding.steps.push(Step::ByteLevel);
            return Ok(decoding);
        } else if statistics.byte_pieces > 0 || statistics.marked > 0 {
            decoding.steps.push(Step::Replace { from: "▁".into(), to: " ".into() });
        } else {
            return Err(VocabError::Unsupported {
                place: "/decoder".into(),
                what: "a tokenizer that does not tell how its pieces become text".into(),
                remedy: REMEDY,
            });
        }
        if statistics.byte_pieces > 0 {
            decoding.steps.push(Step::ByteFallback);
        }
        Ok(decoding)
    }

    /// `fused`: whether the pieces are one text by now, so that stripping no longer concerns each of them.
    ///
    /// The depth of `decoder` is bounded by the JSON parser's limit.
    fn add_decoder(&mut self, decoder: &Value, place: &str, fused: &mut bool) -> Result<(), VocabError> {
        let unsupported = |what: String| VocabError::Unsupported { place: place.into(), what, remedy: REMEDY };
        match kind_of(decoder) {
            "Sequence" => {
                let parts = decoder.get("decoders").and_then(Value::as_array);
                let parts = parts.ok_or_else(|| invalid(place, "a Sequence without `decoders`"))?;
                for (i, part) in parts.iter().enumerate() {
                    self.add_decoder(part, &format!("{place}/decoders/{i}"), fused)?;
                }
            }
            "ByteLevel" => self.steps.push(Step::ByteLevel),
            "ByteFallback" => self.steps.push(Step::ByteFallback),
            "Metaspace" => self.steps.push(metaspace_step(decoder)),
            "Fuse" => *fused = true,
            "Replace" => {
                let from = decoder.pointer("/pattern/String").and_then(Value::as_str);
                let from = from.ok_or_else(|| unsupported("replacing a regular expression in a decoder".into()))?;
                let to = decoder.get("content").and_then(Value::as_str);
                let to = to.ok_or_else(|| invalid(place, "a Replace without `content`"))?;
                if from.is_empty() || (*fused && from.chars().nth(1).is_some()) {
                    return Err(unsupported("replacing text that may lie across tokens".into()));
                }
                self.steps.push(Step::Replace { from: from.into(), to: to.into() });
            }
            // After Fuse the ends of the piece are the ends of the whole text: nothing to a token in its middle.
            "Strip" if *fused => {}
            "Strip" => {
                let content = decoder.get("content").and_then(Value::as_str).and_then(|c| c.chars().next());
                let content = content.ok_or_else(|| invalid(place, "a Strip without `content`"))?;
                let count = |key| decoder.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
                self.steps.push(Step::Strip { content, start: count("start"), stop: count("stop") });
            }
            "" => return Err(invalid(place, "a decoder without `type`")),
            other => return Err(unsupported(format!("the decoder {other:?}"))),
        }
        Ok(())
    }

    /// Append the piece's bytes to `out`. False: they are far longer than the piece.
    pub fn decode(&self, piece: &str, out: &mut Vec<u8>) -> bool {
        let mut text = Cow::Borrowed(piece);
        for step in &self.steps {
            match step {
                Step::Replace { from, to } => {
                    let times = text.matches(from.as_str()).count();
                    if times * to.len() > MAX_GROWTH * piece.len() {
                        return false;
                    }
                    if times > 0 {
                        text = Cow::Owned(text.replace(from.as_str(), to));
                    }
                }
                Step::Strip { content, start, stop } => text = Cow::Owned(strip(&text, *content, *start, *stop).into()),
                Step::ByteFallback => {
                    if let Some(byte) = byte_piece(&text) {
                        out.push(byte);
                        return true;
                    }
                }
                Step::ByteLevel => {
                    let start = out.len();
                    let all = text.chars().all(|c| alphabet_byte(c).map(|b| out.push(b)).is_some());
                    if !all {
                        // The library leaves a piece that is not spelt in the alphabet as it is.
                        out.truncate(start);
                        out.extend_from_slice(text.as_bytes());
                    }
                    return true;
                }
            }
        }
        out.extend_from_slice(text.as_bytes());
        true
    }
}

/// The first component of a section, nested ones included, that `wanted` likes.
fn find<'a>(section: Option<&'a Value>, wanted: &mut dyn FnMut(&'a Value) -> bool) -> Option<&'a Value> {
    let section = section?;
    if wanted(section) {
        return Some(section);
    }
    let lists = ["pretokenizers", "normalizers"].into_iter().filter_map(|key| section.get(key)?.as_array());
    lists.flatten().find_map(|part| find(Some(part), wanted))
}

fn kind_of(component: &Value) -> &str {
    component.get("type").and_then(Value::as_str).unwrap_or("")
}

/// What a normalizer writes instead of a space, if that is what it does.
fn replaced_space(normalizer: &Value) -> Option<&str> {
    let space = kind_of(normalizer) == "Replace" && normalizer.pointer("/pattern/String")?.as_str()? == " ";
    normalizer.get("content")?.as_str().filter(|mark| space && !mark.is_empty())
}

fn metaspace_step(component: &Value) -> Step {
    let mark = component.get("replacement").or_else(|| component.get("str_rep")).and_then(Value::as_str);
    Step::Replace { from: mark.filter(|m| !m.is_empty()).unwrap_or("▁").into(), to: " ".into() }
}

fn strip(text: &str, content: char, start: usize, stop: usize) -> &str {
    let mut rest = text;
    for _ in 0..start {
        match rest.strip_prefix(content) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    for _ in 0..stop {
        match rest.strip_suffix(content) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    rest
}

/// The byte that a piece such as `<0x0A>` stands for.
fn byte_piece(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| hex)
}

/// The byte that a character of the GPT-2 byte alphabet stands for.
///
/// Bytes that are printable characters of Latin-1 stand for themselves; the others, in order, are U+0100 and up.
fn alphabet_byte(c: char) -> Option<u8> {
    match c as u32 {
        c @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(c as u8),
        c @ 0x100..=0x120 => Some((c - 0x100) as u8),
        c @ 0x121..=0x142 => Some((c - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// What the pieces themselves say about how they are spelt.
#[derive(Default)]
struct Statistics {
    /// Pieces that are one character of the byte alphabet.
    alphabet: usize,
    /// Pieces like `<0x0A>`.
    byte_pieces: usize,
    /// Pieces that begin with `▁`.
    marked: usize,
}

impl Statistics {
    fn of<'a>(pieces: impl Iterator<Item = &'a str>) -> Statistics {
        let mut statistics = Statistics::default();
        for piece in pieces {
            let mut chars = piece.chars();
            let single = chars.next().filter(|_| chars.next().is_none());
            statistics.alphabet += single.and_then(alphabet_byte).is_some() as usize;
            statistics.byte_pieces += byte_piece(piece).is_some() as usize;
            statistics.marked += piece.starts_with('▁') as usize;
        }
        statistics
    }
}

fn invalid(place: &str, message: &str) -> VocabError {
    VocabError::invalid("tokenizer.json", place, message)
}
