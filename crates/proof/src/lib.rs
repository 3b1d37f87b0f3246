//! Evidence for what Twobox promises.
//!
//! Nothing here is simulated that can be real: the store, the engines and SQLite are those that ship; what is ours is
//! the disk below them, which remembers every step and can lose power at each, and the network, clock and chance
//! around them, which come from a seed.
//!
//! | module | shows |
//! | --- | --- |
//! | [`campaign`] | all of the others, for as long as there is time |
//! | [`fuzz`] | that no input from outside breaks a promise: parsers, signatures, the whole way in |
//! | [`kills`] | what two services of the shipped program have in their databases after thousands of kills |
//! | [`model`] | every interleaving of the protocol within stated bounds, and that switching a rule off is noticed |
//! | [`powercut`] | what every crash image of a workload contains, on the sender's and on the receiver's side |
//! | `schedules` | with the feature `shuttle`: that no order in which threads and tasks take turns breaks the promise |
//! | [`world`] | that two nodes keep the promise through everything that can go wrong at once |

pub mod campaign;
pub mod fuzz;
pub mod kills;
pub mod model;
pub mod powercut;
#[cfg(feature = "shuttle")]
pub mod schedules;
pub mod world;
