//! Single hosts, between a register and nodes that the test speaks for.

mod aside;
mod checkpoint;
mod common;
mod restart;
mod serving;
mod set_back;
