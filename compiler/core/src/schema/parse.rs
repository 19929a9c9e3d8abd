//! JSON text to a value: errors with line and column, nesting checked before serde recurses.

use serde_json::Value;

use crate::error::{CompileError, Result};
use crate::limits::Budget;

/// Read one JSON value. A key that occurs twice in an object keeps its last value, as everywhere in JSON.
///
/// serde_json reads nested values by recursion, so the depth is measured first, by a scan that needs no stack.
pub fn parse(text: &[u8], budget: &Budget) -> Result<Value> {
    budget.source(text.len())?;
    budget.depth(nesting(text))?;
    let mut reader = serde_json::Deserializer::from_slice(text);
    reader.disable_recursion_limit();
    let value = serde::Deserialize::deserialize(&mut reader).and_then(|v: Value| reader.end().map(|()| v));
    value.map_err(|e| CompileError::invalid("", format!("the source is not JSON: {e}")))
}

/// Deepest nesting of brackets outside strings; right for well-formed text and never too small for any prefix that
/// serde would get through before it finds an error.
fn nesting(text: &[u8]) -> usize {
    let (mut depth, mut most, mut i) = (0usize, 0usize, 0usize);
    while i < text.len() {
        match text[i] {
            b'{' | b'[' => {
                depth += 1;
                most = most.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                i += 1;
                while i < text.len() && text[i] != b'"' {
                    i += if text[i] == b'\\' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        i += 1;
    }
    most
}

/// Check the nesting of a value that did not come through [`parse`], without recursion.
pub(super) fn check_depth(value: &Value, budget: &Budget) -> Result<()> {
    let mut work: Vec<(&Value, usize)> = vec![(value, 0)];
    while let Some((v, depth)) = work.pop() {
        let children = matches!(v, Value::Array(_) | Value::Object(_));
        if children {
            budget.depth(depth + 1)?;
        }
        match v {
            Value::Array(items) => work.extend(items.iter().filter(|v| nested(v)).map(|v| (v, depth + 1))),
            Value::Object(map) => work.extend(map.values().filter(|v| nested(v)).map(|v| (v, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

fn nested(v: &Value) -> bool {
    matches!(v, Value::Array(_) | Value::Object(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn budget() -> Budget {
        Budget::new(Limits::default())
    }

    #[test]
    fn errors_name_line_and_column() {
        let e = parse(b"{\n  \"a\": tru\n}", &budget()).unwrap_err();
        assert!(e.to_string().contains("line ") && e.to_string().contains("column "), "{e}");
        assert!(parse(b"1 2", &budget()).is_err());
        assert!(parse(b"", &budget()).is_err());
    }

    #[test]
    fn the_last_of_two_keys_wins() {
        assert_eq!(parse(br#"{"a":1,"a":2}"#, &budget()).unwrap(), serde_json::json!({"a": 2}));
    }

    #[test]
    fn nesting_is_limited() {
        let deep = |n: usize| [vec![b'['; n], vec![b']'; n]].concat();
        assert!(parse(&deep(2_000), &budget()).is_ok());
        assert!(matches!(parse(&deep(2_001), &budget()), Err(CompileError::Limit { name: "depth", .. })));
        assert!(parse(&vec![b'['; 1_000_000], &budget()).is_err());
        assert!(parse(br#"["[[[[\"[[["]"#, &budget()).is_ok());
    }
}
