//! What a panic of somebody else's code says about the message it was handling: where it happened, and no more.
//!
//! The text of a panic is made by whoever panics, and `expect("…")` and `assert_eq!` like to quote what they were
//! given. What Twobox stores, answers and logs of a panic is therefore never its text. But before a panic is caught,
//! the process's panic hook prints it to standard error, and only a hook can keep it from doing so:
//! [`withhold_messages`] puts one in front of those that are there.

use std::cell::Cell;
use std::panic::{self, Location, PanicHookInfo};
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// From now on, a panic inside a handler is printed without its text, as a line with its place. All other panics go to
/// the hook that was there before. Call it once, after anything else that sets a hook; calling it again does nothing.
///
/// The `twobox` program does this. A library must not do it unasked: the hook belongs to the process, and while you are
/// writing a handler you may want to see its panics.
pub fn withhold_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if is_in_handler() {
                eprintln!("{}", line(info));
            } else {
                before(info);
            }
        }));
    });
}

fn line(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map_or_else(|| "an unknown place".into(), Location::to_string);
    format!("a handler panicked at {place}; its message is withheld, because it may quote the payload")
}

fn is_in_handler() -> bool {
    IN_HANDLER.try_with(Cell::get).unwrap_or(false)
}

/// Somebody else's code is running on this thread until this is dropped.
#[derive(Debug)]
#[must_use = "it counts until it is dropped"]
pub struct InHandler {
    before: bool,
}

impl InHandler {
    /// Begins.
    pub fn enter() -> Self {
        Self { before: IN_HANDLER.replace(true) }
    }
}

impl Drop for InHandler {
    fn drop(&mut self) {
        IN_HANDLER.set(self.before);
    }
}

/// Runs somebody else's future as a handler's.
pub fn handling<F: Future>(future: F) -> impl Future<Output = F::Output> {
    Handling(Box::pin(future))
}

struct Handling<F>(Pin<Box<F>>);

impl<F: Future> Future for Handling<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _inside = InHandler::enter();
        self.0.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_a_handler_is_a_handler_until_it_ends_also_by_a_panic() {
        assert!(!is_in_handler());
        let caught = panic::catch_unwind(|| {
            let _inside = InHandler::enter();
            let nested = InHandler::enter();
            drop(nested);
            assert!(is_in_handler());
            panic::resume_unwind(Box::new("over"));
        });
        assert!(caught.is_err() && !is_in_handler());
    }
}
