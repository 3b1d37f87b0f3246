//! Options of the command line.

use std::str::FromStr;
use std::time::Duration;

use twobox_core::BoxError;

/// How long a harness runs if nobody says.
const DEFAULT: Duration = Duration::from_secs(10);

/// Names and values, each of which must be asked for before the end.
pub(super) struct Options(Vec<(String, String)>);

impl Options {
    pub(super) fn read(arguments: &[String]) -> Result<Self, BoxError> {
        let (pairs, rest) = arguments.as_chunks::<2>();
        if let Some(last) = rest.first() {
            return Err(format!("{last} has no value").into());
        }
        Ok(Self(pairs.iter().map(|[name, value]| (name.clone(), value.clone())).collect()))
    }

    /// The value of an option, which is then done with.
    pub(super) fn take<T: FromStr<Err: Into<BoxError>>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, BoxError> {
        let Some(at) = self.0.iter().position(|(of, _)| of == name) else { return Ok(None) };
        let (_, value) = self.0.remove(at);
        value.parse().map(Some).map_err(|error: T::Err| format!("{name} {value}: {}", error.into()).into())
    }

    /// How long, and for how many seeds: whoever says how many has all the time there is.
    pub(super) fn extent(&mut self) -> Result<(Duration, usize), BoxError> {
        match self.take("--seeds")? {
            Some(seeds) => Ok((Duration::MAX, seeds)),
            None => Ok((self.seconds()?, usize::MAX)),
        }
    }

    pub(super) fn seconds(&mut self) -> Result<Duration, BoxError> {
        Ok(self.take("--seconds")?.map_or(DEFAULT, Duration::from_secs))
    }

    /// Refuses what nobody has asked for.
    pub(super) fn end(self) -> Result<(), BoxError> {
        match self.0.first() {
            Some((name, _)) => Err(format!("there is no option {name}").into()),
            None => Ok(()),
        }
    }
}
