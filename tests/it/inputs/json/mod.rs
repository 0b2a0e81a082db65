//! JSON in the tap: j59 to j72.

mod odd;
mod sizes;
mod values;
