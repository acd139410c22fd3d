//! A cluster whose every message takes one unit of time, and nothing else takes any.

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
