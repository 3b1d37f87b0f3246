//! Dead letters: what the commands of both boxes have in common.

use clap::Args;
use serde::Serialize;

use super::Common;
use super::bulk::{self, PURGE, REPLAY, Step, Terms};
use super::list::Extent;
use crate::Result;
use crate::exit::Exit;

/// Which dead letters of a box, in words of the command line.
pub(crate) trait Which: Args {
    /// The same in words of the API.
    type Filter: Clone + Default + PartialEq;

    /// Those that match, or one by its id.
    fn read(&self, id: Option<&str>) -> Result<Self::Filter>;

    /// The same for a command that changes something: nobody means all by accident.
    fn checked(&self, id: Option<&str>, terms: &Terms) -> Result<Self::Filter> {
        let filter = self.read(id)?;
        bulk::check(filter == Self::Filter::default(), terms.all)?;
        Ok(filter)
    }
}

// No documentation on these: clap would show it instead of that of the commands.

#[derive(Debug, Args)]
pub(crate) struct Dead<W: Which> {
    #[command(flatten)]
    pub(super) which: W,
    #[command(flatten)]
    pub(super) extent: Extent,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Purge<W: Which> {
    /// The id of one message.
    id: Option<String>,
    #[command(flatten)]
    which: W,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    common: Common,
}

impl<W: Which> Purge<W> {
    /// Removes them from the box whose routes begin with `of`.
    pub(super) async fn run<R: Serialize>(
        &self,
        of: &str,
        request: impl Fn(W::Filter, Step) -> R,
    ) -> Result<Exit> {
        let filter = self.which.checked(self.id.as_deref(), &self.terms)?;
        let request = |step| request(filter.clone(), step);
        bulk::run(&self.common, &format!("{of}/purge"), PURGE, &self.terms, request).await
    }
}

/// Replays those that match in the box whose routes begin with `of`.
pub(super) async fn replay<W: Which, R: Serialize>(
    of: &str,
    common: &Common,
    which: &W,
    terms: &Terms,
    request: impl Fn(W::Filter, Step) -> R,
) -> Result<Exit> {
    let filter = which.checked(None, terms)?;
    let request = |step| request(filter.clone(), step);
    bulk::run(common, &format!("{of}/replay"), REPLAY, terms, request).await
}

/// The ordering key of a dead letter, and whether others wait for it.
pub(super) fn key(key: Option<&str>, blocks: bool) -> Option<String> {
    key.map(|key| if blocks { format!("{key} (waits)") } else { key.to_owned() })
}
