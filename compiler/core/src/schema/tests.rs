//! Tests of the schema front end.
