//! Drafts, and the keywords that assert something in each of them.

use serde::{Deserialize, Serialize};

/// A version of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Draft {
    #[serde(rename = "4")]
    D4,
    #[serde(rename = "6")]
    D6,
    #[serde(rename = "7")]
    D7,
    #[serde(rename = "2019-09")]
    D2019,
    #[serde(rename = "2020-12")]
    D2020,
}

impl Draft {
    /// The draft that a `$schema` URI names.
    pub fn from_uri(uri: &str) -> Option<Draft> {
        let uri = uri.trim_end_matches('#').trim_end_matches('/');
        let uri = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://")).unwrap_or(uri);
        Some(match uri {
            "json-schema.org/draft-04/schema" => Draft::D4,
            "json-schema.org/draft-06/schema" => Draft::D6,
            "json-schema.org/draft-07/schema" => Draft::D7,
            "json-schema.org/draft/2019-09/schema" => Draft::D2019,
            "json-schema.org/draft/2020-12/schema" => Draft::D2020,
            _ => return None,
        })
    }

    pub fn from_name(name: &str) -> Option<Draft> {
        Some(match name {
            "4" | "draft4" | "draft-04" => Draft::D4,
            "6" | "draft6" | "draft-06" => Draft::D6,
            "7" | "draft7" | "draft-07" => Draft::D7,
            "2019-09" => Draft::D2019,
            "2020-12" => Draft::D2020,
            _ => return None,
        })
    }

    pub(super) fn id_keyword(self) -> &'static str {
        if self == Draft::D4 {
            "id"
        } else {
            "$id"
        }
    }
}

macro_rules! keywords {
    ($($name:ident = $text:literal, $from:ident ..= $to:ident, $on:ident;)*) => {
        /// An assertion keyword, or one that leads to assertions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(super) enum Kw { $($name),* }

        impl Kw {
            /// The keyword that a key is in a draft; `None` for annotations and unknown keys.
            pub(super) fn of(key: &str, draft: Draft) -> Option<Kw> {
                match key {
                    $($text => (Draft::$from..=Draft::$to).contains(&draft).then_some(Kw::$name),)*
                    _ => None,
                }
            }

            pub(super) fn text(self) -> &'static str {
                match self { $(Kw::$name => $text),* }
            }

            /// The JSON type that the keyword is about.
            pub(super) fn on(self) -> On {
                match self { $(Kw::$name => On::$on),* }
            }
        }
    };
}

/// What kind of instance a keyword constrains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Any,
    Number,
    String,
    Array,
    Object,
}

// `dependencies` went out with 2019-09 and stays understood there, as the specification advises; so do arrays in `items`.
keywords! {
    Ref = "$ref", D4..=D2020, Any;
    DynamicRef = "$dynamicRef", D2020..=D2020, Any;
    RecursiveRef = "$recursiveRef", D2019..=D2019, Any;
    Type = "type", D4..=D2020, Any;
    Enum = "enum", D4..=D2020, Any;
    Const = "const", D6..=D2020, Any;
    AllOf = "allOf", D4..=D2020, Any;
    AnyOf = "anyOf", D4..=D2020, Any;
    OneOf = "oneOf", D4..=D2020, Any;
    Not = "not", D4..=D2020, Any;
    If = "if", D7..=D2020, Any;
    Then = "then", D7..=D2020, Any;
    Else = "else", D7..=D2020, Any;
    Properties = "properties", D4..=D2020, Object;
    PatternProperties = "patternProperties", D4..=D2020, Object;
    AdditionalProperties = "additionalProperties", D4..=D2020, Object;
    PropertyNames = "propertyNames", D6..=D2020, Object;
    Required = "required", D4..=D2020, Object;
    MinProperties = "minProperties", D4..=D2020, Object;
    MaxProperties = "maxProperties", D4..=D2020, Object;
    DependentRequired = "dependentRequired", D2019..=D2020, Object;
    DependentSchemas = "dependentSchemas", D2019..=D2020, Object;
    Dependencies = "dependencies", D4..=D2020, Object;
    UnevaluatedProperties = "unevaluatedProperties", D2019..=D2020, Object;
    Items = "items", D4..=D2020, Array;
    PrefixItems = "prefixItems", D2020..=D2020, Array;
    AdditionalItems = "additionalItems", D4..=D2020, Array;
    Contains = "contains", D6..=D2020, Array;
    MinContains = "minContains", D2019..=D2020, Array;
    MaxContains = "maxContains", D2019..=D2020, Array;
    MinItems = "minItems", D4..=D2020, Array;
    MaxItems = "maxItems", D4..=D2020, Array;
    UniqueItems = "uniqueItems", D4..=D2020, Array;
    UnevaluatedItems = "unevaluatedItems", D2019..=D2020, Array;
    MinLength = "minLength", D4..=D2020, String;
    MaxLength = "maxLength", D4..=D2020, String;
    Pattern = "pattern", D4..=D2020, String;
    Format = "format", D4..=D2020, Any;
    ContentEncoding = "contentEncoding", D7..=D7, String;
    ContentMediaType = "contentMediaType", D7..=D7, String;
    Minimum = "minimum", D4..=D2020, Number;
    Maximum = "maximum", D4..=D2020, Number;
    ExclusiveMinimum = "exclusiveMinimum", D4..=D2020, Number;
    ExclusiveMaximum = "exclusiveMaximum", D4..=D2020, Number;
    MultipleOf = "multipleOf", D4..=D2020, Number;
}
