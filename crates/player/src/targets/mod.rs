//! The kinds of targets, one file and one feature each.

#[cfg(feature = "grpc")]
pub mod grpc;
