//! Tests of the player.
