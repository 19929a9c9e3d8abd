//! Running requests.
