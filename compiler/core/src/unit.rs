//! Units
