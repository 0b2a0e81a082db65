//! The console's files and endpoints.

mod files;
mod routes;
mod status;
