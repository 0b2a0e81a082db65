//! Stream framing: f01 to f30.

mod ends;
mod event_streams;
mod injection;
mod lines;
mod sizes;
