//! The API over real sockets, on real databases.

mod actions;
mod ask;
mod contract;
mod document;
mod fuzzing;
mod malformed;
mod pages;
mod routes;
mod sending;
mod world;
