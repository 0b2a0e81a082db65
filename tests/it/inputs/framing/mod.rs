//! Stream framing: f01 to f30.

mod ends;
mod heads;
mod lines;
mod once;
mod sizes;
