//! The server, called by a player.

mod key_value;
mod player;
mod server;
