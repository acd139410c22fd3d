//! Checks on the project's own shape, and runs that are too long for continuous integration.
//!
//! [`tidy`] holds what can be checked by reading: who depends on whom, how long a function is,
//! which words the glossary has. Every check also runs as a test, so `cargo test --workspace` keeps
//! the shape. [`commits`] looks at the subjects of new commits, where there is a history to look
//! at. [`assertions`] adds up what assertions cost, from profiles. [`prose`] measures how plain the
//! texts are, and draws comments for a reader. [`soak`] plans the long runs: fresh seeds, kill
//! loops, many cases for the decoders.

pub mod assertions;
pub mod commits;
pub mod prose;
pub mod soak;
pub mod source;
pub mod tidy;
pub mod workspace;
