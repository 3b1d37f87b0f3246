//! Keys, and exchanging them while requests are on their way.

use std::sync::{Arc, Mutex};

use twobox_core::signing::{Keyring, Keyrings};
use twobox_core::{Result, Source};

use super::stage::lock;

/// The keys of one direction: what its sender signs with, and what its receiver accepts.
#[derive(Debug)]
pub(super) struct Keys {
    source: Source,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    newest: u8,
    sender: Arc<Keyring>,
    receiver: Arc<Keyrings>,
}

/// A step of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The receiver accepts the next key as well.
    ReceiverLearns,
    /// The sender signs with the next key.
    SenderSwitches,
    /// The receiver forgets all but the newest key.
    ReceiverForgets,
}

impl Step {
    /// In the right order, and in the order of somebody who is careless: then requests are refused for a while.
    pub(super) const ORDERS: [[Self; 3]; 2] = [
        [Self::ReceiverLearns, Self::SenderSwitches, Self::ReceiverForgets],
        [Self::SenderSwitches, Self::ReceiverLearns, Self::ReceiverForgets],
    ];
}

impl Keys {
    pub(super) fn new(source: &str) -> Result<Self> {
        let source = Source::new(source)?;
        let (sender, receiver) = (Arc::new(ring(&source, 0)?), Arc::new(rings(&source, &[0])?));
        Ok(Self { source, state: Mutex::new(State { newest: 0, sender, receiver }) })
    }

    pub(super) fn sender(&self) -> Arc<Keyring> {
        Arc::clone(&lock(&self.state).sender)
    }

    pub(super) fn receiver(&self) -> Arc<Keyrings> {
        Arc::clone(&lock(&self.state).receiver)
    }

    /// Steps of one exchange, whichever comes first begins it.
    pub(super) fn step(&self, step: Step) -> Result<()> {
        let mut state = lock(&self.state);
        let (old, new) = (state.newest, state.newest.wrapping_add(1));
        match step {
            Step::ReceiverLearns => state.receiver = Arc::new(rings(&self.source, &[old, new])?),
            Step::SenderSwitches => state.sender = Arc::new(ring(&self.source, new)?),
            Step::ReceiverForgets => {
                state.receiver = Arc::new(rings(&self.source, &[new])?);
                state.newest = new;
            }
        }
        Ok(())
    }
}

fn ring(source: &Source, generation: u8) -> Result<Keyring> {
    Keyring::of(&format!("{source}-{generation}"), &[generation; 32])
}

fn rings(source: &Source, generations: &[u8]) -> Result<Keyrings> {
    let mut rings = Keyrings::new();
    for generation in generations {
        rings.insert(source, ring(source, *generation)?)?;
    }
    Ok(rings)
}
