//! Names of the headers an envelope itself carries, and of those in the head of a request or an answer.

/// Version of the envelope: [`VERSION_2`].
pub const VERSION: &str = "rf-version";
/// The version written. Any `2.…` is read: minor versions only add.
pub const VERSION_2: &str = "2.0";
/// When this attempt was sent: RFC 3339 in UTC with microseconds.
pub const TIMESTAMP: &str = "rf-timestamp";
/// The signature of this attempt, in base64.
pub const HMAC: &str = "rf-hmac";
/// The key the signature was made with.
pub const KEY_ID: &str = "rf-key-id";
/// The service the message goes to.
pub const DESTINATION: &str = "rf-destination";
/// When the message was enqueued, in decimal microseconds since 1970.
pub const CREATED: &str = "rf-created";
/// When the message became deliverable, in decimal microseconds since 1970.
pub const AVAILABLE: &str = "rf-available";
/// When the message stops being worth delivering, in decimal microseconds since 1970.
pub const EXPIRES: &str = "rf-expires";
/// How often an operator sent it again; zero if absent.
pub const REPLAY: &str = "rf-replay";
/// The outbox it was sent from.
pub const OUTBOX: &str = "rf-outbox";
/// Media type of the payload; `application/json` if absent.
pub const CONTENT_TYPE: &str = "rf-content-type";
/// The ordering key, if the message has one.
pub const ORDERING_KEY: &str = "rf-ordering-key";
/// `base64` if the payload is a string in base64; absent if it stands as it is.
pub const ENCODING: &str = "rf-encoding";

/// In the head of a probe: the service that asks.
pub const SOURCE: &str = "rf-source";
/// In the head of a request: how many milliseconds the sender waits for the answer.
pub const TIMEOUT: &str = "rf-timeout-ms";
