//! Clients and load: l50 to l58.

mod clients;
mod crowds;
mod overload;
mod process;
mod slow;
