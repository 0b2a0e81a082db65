//! JSON in the tap: j59 to j72.

mod sizes;
mod unusual;
mod values;
