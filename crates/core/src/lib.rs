//! The domain of Twobox: messages, their lifecycle, their signature and the ports that stores and
//! transports implement.
//!
//! Nothing in this crate performs I/O, needs a runtime or reads a clock. Decisions are pure functions
//! ([`lifecycle`], [`retry`]); stores persist what they say, engines carry it out.
//!
//! | module | holds |
//! | --- | --- |
//! | [`name`] | validated names: message id, source, destination, endpoint, consumer, ordering key |
//! | [`message`] | messages as users write them and as the log keeps them |
//! | [`lifecycle`] | what becomes of a message after an attempt, as a pure function |
//! | [`retry`] | back-off with jitter |
//! | [`wire`] | the JSON envelope and its limits |
//! | [`signing`] | the canonical string, keys, signatures of requests and answers |
//! | [`meters`] | figures for operators: counters, gauges, histograms |
//! | [`panics`] | keeps the messages of handlers' panics out of the log |
//! | [`ports`] | what a store, a transport and a clock must do |
//! | [`at_once`] | a future whose parts wake each other |
//! | [`config`] | checks that need more than one setting to be wrong |

pub mod at_once;
pub mod clock;
pub mod config;
mod content_type;
pub mod crash;
mod digits;
mod error;
pub mod handler;
pub mod id;
pub mod lifecycle;
mod live;
pub mod message;
pub mod meters;
pub mod mutant;
pub mod name;
pub mod panics;
pub mod ports;
pub mod retry;
mod sha256;
pub mod signing;
pub mod stamp;
#[cfg(feature = "system")]
pub mod system;
pub mod time;
pub mod wire;

pub use crate::at_once::AtOnce;
pub use crate::clock::{Clock, Random};
pub use crate::content_type::ContentType;
pub use crate::error::{BoxError, Error, ErrorKind, Result, chain, one_line};
pub use crate::handler::{HandlerResult, OrRefuse, Refusal};
pub use crate::live::Live;
pub use crate::message::{Headers, Message, MessageType, NewMessage, Payload, Response};
pub use crate::name::{Consumer, CorrelationId, Destination, Endpoint, MessageId, OrderingKey, Source};
pub use crate::stamp::Stamp;
pub use crate::time::Timestamp;
