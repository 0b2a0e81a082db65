//! Clients and load: l50 to l58.

mod clients;
mod connection_limits;
mod overload;
mod process;
mod slow_clients;
