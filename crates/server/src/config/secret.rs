//! Secrets: taken from the environment or from files, never shown.

use std::fmt;

use subtle::ConstantTimeEq as _;

/// Something that nobody may see. It cannot be printed, and comparing it takes as long for a wrong guess as for a
/// right one.
pub(crate) struct Secret(Box<[u8]>);

impl Secret {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Whether `given` is the secret.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
