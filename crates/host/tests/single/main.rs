//! Single hosts. The test plays the register and the other nodes.

mod aside;
mod checkpoint;
mod common;
mod restart;
mod serving;
mod set_back;
