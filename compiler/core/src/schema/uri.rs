//! References between documents: RFC 3986 resolution, percent decoding, JSON pointers.

/// `reference` (without fragment) resolved against `base`.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    let r = Parts::of(reference);
    if r.scheme.is_some() {
        return r.write(&remove_dots(r.path));
    }
    let b = Parts::of(base);
    if r.authority.is_some() {
        return Parts { scheme: b.scheme, ..r }.write(&remove_dots(r.path));
    }
    if r.path.is_empty() {
        return Parts { query: r.query.or(b.query), ..b }.write(b.path);
    }
    let path = if r.path.starts_with('/') {
        remove_dots(r.path)
    } else if b.authority.is_some() && b.path.is_empty() {
        remove_dots(&format!("/{}", r.path))
    } else {
        let keep = b.path.rfind('/').map_or(0, |i| i + 1);
        remove_dots(&format!("{}{}", &b.path[..keep], r.path))
    };
    Parts { query: r.query, ..b }.write(&path)
}

#[derive(Clone, Copy)]
struct Parts<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(uri: &'a str) -> Parts<'a> {
        let (rest, query) = match uri.split_once('?') {
            Some((r, q)) => (r, Some(q)),
            None => (uri, None),
        };
        let (scheme, rest) = match rest.split_once(':') {
            Some((s, r)) if is_scheme(s) => (Some(s), r),
            _ => (None, rest),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(r) => {
                let end = r.find('/').unwrap_or(r.len());
                (Some(&r[..end]), &r[end..])
            }
            None => (None, rest),
        };
        Parts { scheme, authority, path, query }
    }

    fn write(&self, path: &str) -> String {
        let mut out = String::new();
        if let Some(s) = self.scheme {
            out.push_str(s);
            out.push(':');
        }
        if let Some(a) = self.authority {
            out.push_str("//");
            out.push_str(a);
        }
        out.push_str(path);
        if let Some(q) = self.query {
            out.push('?');
            out.push_str(q);
        }
        out
    }
}

fn is_scheme(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic())
        && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn remove_dots(path: &str) -> String {
    if !path.contains("./") && !path.ends_with('.') {
        return path.to_owned();
    }
    let mut out: Vec<&str> = vec![];
    let parts: Vec<&str> = path.split('/').collect();
    for (i, part) in parts.iter().enumerate() {
        let last = i + 1 == parts.len();
        match *part {
            "." => {
                if last {
                    out.push("");
                }
            }
            ".." => {
                if out.len() > 1 || out.first().is_some_and(|p| !p.is_empty()) {
                    out.pop();
                }
                if last {
                    out.push("");
                }
            }
            p => out.push(p),
        }
    }
    out.join("/")
}

/// Percent decoding; text that is not UTF-8 afterwards stays as it was.
pub(super) fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    let hex = |b: u8| (b as char).to_digit(16);
    while i < bytes.len() {
        if bytes[i] == b'%' && i + 2 < bytes.len() {
            if let (Some(a), Some(b)) = (hex(bytes[i + 1]), hex(bytes[i + 2])) {
                out.push((a * 16 + b) as u8);
                i += 3;
                continue;
            }
        }
        out.push(bytes[i]);
        i += 1;
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// One reference token of a JSON pointer, unescaped.
pub(super) fn unescape(token: &str) -> std::borrow::Cow<'_, str> {
    if token.contains('~') {
        token.replace("~1", "/").replace("~0", "~").into()
    } else {
        token.into()
    }
}

/// Append a reference token to a JSON pointer.
pub(super) fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    for c in token.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_resolve_as_the_rfc_says() {
        let base = "http://a/b/c/d;p?q";
        for (r, want) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("urn:x:y", "urn:x:y"),
        ] {
            assert_eq!(resolve(base, r), want, "{r}");
        }
        assert_eq!(resolve("", "foo.json"), "foo.json");
        assert_eq!(decode("a%20b%"), "a b%");
    }
}
