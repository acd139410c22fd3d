//! Measurements in a cluster where each message and each sync takes a fixed time, and everything
//! else none.

mod append;
mod costs;
mod crashes;
mod lab;
mod picture;
mod programs;
mod room;
mod spent;
mod steady;
mod table;
mod trace;
mod words;
