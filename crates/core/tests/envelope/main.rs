//! Envelopes and their signatures, from the outside: round trips, hostile input, published vectors.

mod answers;
mod batches;
mod generate;
mod limits;
mod shape;
mod signing;
mod vectors;
mod wire;
