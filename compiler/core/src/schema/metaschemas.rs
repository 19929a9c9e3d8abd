//! The schemas of JSON Schema itself, which other schemas refer to: OpenAPI's and every tool's that takes a schema for an
//! argument. They are at hand without a registry. `metaschemas.json` has them by URI, as published on json-schema.org (see
//! `NOTICE` beside it).

use std::sync::OnceLock;

use serde_json::{Map, Value};

/// The meta-schema, or the vocabulary of one, with this URI (without an empty fragment).
pub(super) fn find(uri: &str) -> Option<(&'static str, &'static Value)> {
    static ALL: OnceLock<Map<String, Value>> = OnceLock::new();
    let all = ALL.get_or_init(|| serde_json::from_str(include_str!("metaschemas.json")).unwrap_or_default());
    all.get_key_value(uri).map(|(uri, schema)| (uri.as_str(), schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_draft_is_at_hand() {
        for uri in [
            "http://json-schema.org/draft-04/schema",
            "http://json-schema.org/draft-06/schema",
            "http://json-schema.org/draft-07/schema",
            "https://json-schema.org/draft/2019-09/schema",
            "https://json-schema.org/draft/2020-12/schema",
            "https://json-schema.org/draft/2020-12/meta/unevaluated",
        ] {
            assert!(find(uri).is_some(), "{uri}");
        }
        assert!(find("https://json-schema.org/").is_none());
    }
}
