//! Checks of the project's shape, and runs that are too long for continuous integration.
//!
//! - [`tidy`]: checks by reading, such as dependencies, sizes, the glossary. `cargo test
//!   --workspace` runs them too.
//! - [`commits`]: subjects of new commits, where there is a history.
//! - [`assertions`]: cost of assertions, from profiles.
//! - [`prose`]: how plain the texts are, and random comments for a reader.
//! - [`soak`]: the long runs: fresh seeds, kill loops, many cases for decoders.
//! - [`source`], [`workspace`]: Rust code and files as text.

pub mod assertions;
pub mod commits;
pub mod prose;
pub mod soak;
pub mod source;
pub mod tidy;
pub mod workspace;
