//! A cluster whose every message takes one unit of time, and nothing else takes any.

mod delays;
mod lab;
mod room;
