//! The contract of the view register: one list of scenarios over messages, which each
//! implementation must pass.
//!
//! A [`talk::Register`] takes questions and returns answers. It is the register of a node in
//! memory, the same restarted from its journal after every question, or etcd. Further tests kill
//! and pause etcd, run a cluster on it, and measure the cost of waiting clients.

mod cluster;
mod embedded;
mod etcd;
mod news;
mod scenarios;
mod talk;
