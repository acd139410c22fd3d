//! The contract of the view register: one list of scenarios, over messages, for everything that
//! keeps it.
//!
//! A [`talk::Register`] takes questions and says answers. It is the embedded register in memory,
//! the same restarted from its journal after every question, or etcd. What only etcd can suffer,
//! being killed and being paused, and a whole cluster upon it, come after; and what a crowd of
//! clients costs that waits.

mod cluster;
mod embedded;
mod etcd;
mod news;
mod scenarios;
mod talk;
