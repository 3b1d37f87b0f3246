//! Lists in parts.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Part of a list. It may be short, even empty, and still have a next one: what is looked at is bounded, not only what
/// is found.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page<T> {
    /// What was found.
    pub(crate) items: Vec<T>,
    /// Give it as `next` to get the next part; `null` at the end. Opaque, and good only for the same list and filter.
    pub(crate) next: Option<String>,
}

/// A list that is short by nature.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Items<T> {
    /// What there is.
    pub(crate) items: Vec<T>,
    /// Whether there is more than was asked for.
    pub(crate) more: bool,
}

/// How much of a short list is wanted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LimitQuery {
    /// Most items of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<usize>,
}

impl<T, U: Into<T>> From<twobox_core::ports::ops::Page<U>> for Page<T> {
    fn from(page: twobox_core::ports::ops::Page<U>) -> Self {
        let items = page.items.into_iter().map(Into::into).collect();
        Self { items, next: page.next.map(|next| next.to_string()) }
    }
}

impl<T> Items<T> {
    /// At most `limit` of them. Whoever has asked for one more than that knows whether there are more.
    pub(crate) fn of(found: Vec<impl Into<T>>, limit: usize) -> Self {
        let more = found.len() > limit;
        Self { items: found.into_iter().take(limit).map(Into::into).collect(), more }
    }
}
