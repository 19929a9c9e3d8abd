//! Base64 (RFC 4648, standard alphabet, padded), as rank files hold their tokens.

/// Append what `text` encodes to `out`; `None` if it is not base64. `out` may have grown even then.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if text.len() % 4 != 0 {
        return None;
    }
    let padding = text.iter().rev().take(2).take_while(|&&c| c == b'=').count();
    let digits = &text[..text.len() - padding];
    let mut chunks = digits.chunks_exact(4);
    for chunk in &mut chunks {
        let bits = bits(chunk)?;
        out.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    match *chunks.remainder() {
        [] => Some(()),
        // The bits beyond the last whole byte must be zero, so that a token has one spelling.
        [a, b] => {
            let bits = bits(&[a, b])?;
            out.push((bits >> 4) as u8);
            (bits & 0xf == 0).then_some(())
        }
        [a, b, c] => {
            let bits = bits(&[a, b, c])?;
            out.extend_from_slice(&(bits >> 2).to_be_bytes()[2..]);
            (bits & 0x3 == 0).then_some(())
        }
        _ => None,
    }
}

/// The digits as one number, six bits each.
fn bits(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |bits, &c| {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        Some(bits << 6 | digit as u32)
    })
}
