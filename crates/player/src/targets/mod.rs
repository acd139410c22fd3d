//! The kinds of targets, one file and one feature each.
