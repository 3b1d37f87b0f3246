//! Configuration: a file, environment variables and flags, checked as a whole.

mod secret;

pub(crate) use self::secret::Secret;
