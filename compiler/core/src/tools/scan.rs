//! Splitting a JSON list of tools without parsing what is inside their schemas.
//!
//! Accepted forms of a tool: `{"name", "parameters"}`, the same inside `{"type": "function", "function": {...}}`
//! (OpenAI), and `inputSchema` / `input_schema` for `parameters` (MCP, Anthropic). Other members are skipped. Skipping
//! checks that strings end and brackets balance; a schema's own text is checked when it is compiled, which a text that
//! is found in the cache already was.

use std::borrow::Cow;

use crate::error::{CompileError, Result};

/// A tool of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool<'a> {
    pub name: Cow<'a, str>,
    /// The text of the argument schema; `None` if the tool has none.
    pub parameters: Option<&'a [u8]>,
    /// What is wrong with the tool: JSON, but not a tool. The list's other tools are none the worse for it.
    pub fault: Option<CompileError>,
}

/// Split `text`, a JSON array, into its tools.
///
/// # Errors
/// `Invalid`, with a pointer to the tool and line and column of the place.
pub fn split(text: &[u8]) -> Result<Vec<Tool<'_>>> {
    let mut c = Cursor { text, at: 0, tool: 0 };
    let mut tools = vec![];
    c.expect(b'[', "a JSON array of tools")?;
    if c.peek() == Some(b']') {
        c.at += 1;
    } else {
        loop {
            tools.push(c.tool()?);
            c.tool += 1;
            match c.next() {
                Some(b',') => {}
                Some(b']') => break,
                _ => return Err(c.error_back("`,` or `]` after a tool")),
            }
        }
    }
    match c.peek() {
        None => Ok(tools),
        Some(_) => Err(c.error("the end of the text after the list of tools")),
    }
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    tool: usize,
}

impl<'a> Cursor<'a> {
    /// The next byte that is not whitespace, not consumed.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        while let Some(&b) = self.text.get(self.at) {
            if !matches!(b, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(b);
            }
            self.at += 1;
        }
        None
    }

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let b = self.peek()?;
        self.at += 1;
        Some(b)
    }

    fn expect(&mut self, byte: u8, wanted: &str) -> Result<()> {
        match self.next() {
            Some(b) if b == byte => Ok(()),
            _ => Err(self.error_back(wanted)),
        }
    }

    fn error(&self, wanted: &str) -> CompileError {
        self.error_at(self.at, wanted)
    }

    fn error_back(&self, wanted: &str) -> CompileError {
        self.error_at(self.at.saturating_sub(1), wanted)
    }

    fn error_at(&self, at: usize, wanted: &str) -> CompileError {
        let before = &self.text[..at.min(self.text.len())];
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |i| i + 1) + 1;
        CompileError::invalid(
            format!("/{}", self.tool),
            format!("the list of tools is not well-formed at line {line}, column {column}: expected {wanted}"),
        )
    }

    fn tool(&mut self) -> Result<Tool<'a>> {
        let mut tool = Tool { name: Cow::Borrowed(""), parameters: None, fault: None };
        if self.peek() != Some(b'{') {
            self.skip()?;
            tool.fault = Some(self.fault("", "a tool is an object with a \"name\" and \"parameters\""));
            return Ok(tool);
        }
        let mut name = None;
        self.members(&mut name, &mut tool, true)?;
        match name {
            Some(name) => tool.name = name,
            None if tool.fault.is_none() => {
                tool.fault = Some(self.fault("/name", "a tool needs a name: give it a string member \"name\""));
            }
            None => {}
        }
        Ok(tool)
    }

    fn fault(&self, member: &str, message: impl Into<String>) -> CompileError {
        CompileError::invalid(format!("/{}{member}", self.tool), message)
    }

    fn members(&mut self, name: &mut Option<Cow<'a, str>>, tool: &mut Tool<'a>, outer: bool) -> Result<()> {
        self.expect(b'{', "`{`: a tool is an object")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "`:` after a member's name")?;
            let key = self.decode(key).unwrap_or_default();
            match &*key {
                "name" if self.peek() == Some(b'"') => {
                    let raw = self.string()?;
                    match self.decode(raw) {
                        Ok(text) => *name = Some(text),
                        Err(e) => tool.fault = Some(self.fault("/name", format!("the name is not a JSON string: {e}"))),
                    }
                }
                "name" => {
                    self.skip()?;
                    tool.fault = Some(self.fault("/name", "the name of a tool is a string"));
                }
                "parameters" | "inputSchema" | "input_schema" => {
                    self.peek();
                    let from = self.at;
                    self.skip()?;
                    let raw = &self.text[from..self.at];
                    tool.parameters = (raw != b"null").then_some(raw);
                }
                "function" if outer && self.peek() == Some(b'{') => self.members(name, tool, false)?,
                _ => self.skip()?,
            }
            match self.next() {
                Some(b',') => {}
                Some(b'}') => return Ok(()),
                _ => return Err(self.error_back("`,` or `}` in a tool")),
            }
        }
    }

    /// The text between the quotes, escapes as they are.
    fn string(&mut self) -> Result<&'a [u8]> {
        self.expect(b'"', "a string")?;
        let from = self.at;
        self.finish_string()?;
        Ok(&self.text[from..self.at - 1])
    }

    #[inline]
    fn finish_string(&mut self) -> Result<()> {
        loop {
            match memchr::memchr2(b'"', b'\\', &self.text[self.at..]) {
                None => return Err(self.error("the closing quote of a string")),
                Some(i) if self.text[self.at + i] == b'"' => {
                    self.at += i + 1;
                    return Ok(());
                }
                Some(i) if self.at + i + 2 <= self.text.len() => self.at += i + 2,
                Some(_) => return Err(self.error("the closing quote of a string")),
            }
        }
    }

    fn decode(&self, raw: &'a [u8]) -> std::result::Result<Cow<'a, str>, serde_json::Error> {
        if !raw.contains(&b'\\') {
            if let Ok(text) = std::str::from_utf8(raw) {
                if !text.bytes().any(|b| b < 0x20) {
                    return Ok(Cow::Borrowed(text));
                }
            }
        }
        let quoted = [b"\"", raw, b"\""].concat();
        serde_json::from_slice::<String>(&quoted).map(Cow::Owned)
    }

    /// Skip one value.
    fn skip(&mut self) -> Result<()> {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.finish_string()
            }
            Some(b'{' | b'[') => {
                let mut depth = 0usize;
                while let Some(&b) = self.text.get(self.at) {
                    self.at += 1;
                    match b {
                        b'"' => self.finish_string()?,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => {
                            depth -= 1;
                            if depth == 0 {
                                return Ok(());
                            }
                        }
                        _ => {}
                    }
                }
                Err(self.error("a closing bracket"))
            }
            Some(b) if b == b'-' || b.is_ascii_alphanumeric() => {
                while self
                    .text
                    .get(self.at)
                    .is_some_and(|b| matches!(b, b'-' | b'+' | b'.') || b.is_ascii_alphanumeric())
                {
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(self.error("a value")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_tools() {
        let text = br#" [ {"name":"a","description":"x{[\"","parameters":{"type":"object"}},
            {"type":"function","function":{"name":"b\u0041","parameters": {"a":["}"]} , "strict":true}},
            {"inputSchema":true,"name":"c"}, {"name":"d","parameters":null}, {"name":"e"} ] "#;
        let tools = split(text).unwrap();
        let names: Vec<_> = tools.iter().map(|t| t.name.as_ref()).collect();
        assert_eq!(names, ["a", "bA", "c", "d", "e"]);
        assert_eq!(tools[0].parameters, Some(&br#"{"type":"object"}"#[..]));
        assert_eq!(tools[1].parameters, Some(&br#"{"a":["}"]}"#[..]));
        assert_eq!(tools[2].parameters, Some(&b"true"[..]));
        assert_eq!((tools[3].parameters, tools[4].parameters), (None, None));
        assert_eq!(split(b"[]").unwrap(), []);
    }

    #[test]
    fn a_bad_tool_is_its_own_fault() {
        let text = br#"[{"name":"a"},null,{},{"name":5},{"name":"\ud800"},{"function":null},[1],{"n\u0061me":"b","p\u0061rameters":{"x":1}}]"#;
        let tools = split(text).unwrap();
        assert_eq!(tools.len(), 8);
        assert!(tools[1..7].iter().all(|t| t.fault.is_some()));
        assert_eq!((tools[0].fault.is_none(), tools[7].fault.is_none()), (true, true));
        assert_eq!((&*tools[7].name, tools[7].parameters), ("b", Some(&br#"{"x":1}"#[..])));
        let pointers: Vec<_> = tools[1..7]
            .iter()
            .filter_map(|t| match &t.fault {
                Some(CompileError::Invalid { pointer, .. }) => Some(pointer.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(pointers, ["/1", "/2/name", "/3/name", "/4/name", "/5/name", "/6"]);
    }

    #[test]
    fn errors_name_the_place() {
        let cases: [&[u8]; 7] =
            [b"", b"{}", b"[", b"[{\"name\":\"a\"}", b"[{\"name\":\"a}]", b"[{\"name\":\"a\"}]x", b"[{\"name\":\"\\"];
        for text in cases {
            assert!(matches!(split(text), Err(CompileError::Invalid { .. })), "{}", String::from_utf8_lossy(text));
        }
        let Err(CompileError::Invalid { pointer, message }) = split(b"[{\"name\":\"a\"},\n {\"name\" 5}]") else {
            panic!("an error")
        };
        assert_eq!(pointer, "/1");
        assert!(message.contains("line 2, column 10"), "{message}");
    }
}
