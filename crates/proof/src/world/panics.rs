//! Panics in a world. Tasks catch them, and senders try again, so that nobody would notice.

use std::cell::RefCell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// The first of the world under way. All of it runs on one thread.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on panics of this thread are noted. Handlers that are to panic do it without being noticed.
pub(super) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            FIRST.with_borrow_mut(|first| _ = first.get_or_insert_with(|| info.to_string()));
            before(info);
        }));
    });
    FIRST.take();
}

/// The first panic, if there was one.
pub(super) fn seen() -> Option<String> {
    FIRST.take()
}
