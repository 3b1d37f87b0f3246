//! Lists: page after page, until there is enough.

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::output::{Sheet, print, print_json};
use super::place::Place;
use super::text::visible;
use crate::Result;
use crate::api::Page;
use crate::exit::Exit;

/// The longest page the API gives.
const PAGE_MAX: usize = 1_000;

/// How much of a list is wanted.
#[derive(Clone, Debug, Args)]
pub(crate) struct Extent {
    /// Most rows.
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Goes on where the list before has ended.
    #[arg(long, value_name = "TOKEN")]
    next: Option<String>,
}

/// Lists what `ask` asks for, given the length of a page and where it begins.
pub(super) async fn run<T, Q>(
    place: &Place,
    path: &str,
    extent: &Extent,
    json: bool,
    ask: impl Fn(Option<usize>, Option<String>) -> Q,
    sheet: impl Fn(&[T]) -> Sheet,
) -> Result<Exit>
where
    T: Serialize + DeserializeOwned,
    Q: Serialize,
{
    let wanted = usize::try_from(extent.limit)?;
    let mut all: Page<T> = Page { items: Vec::new(), next: extent.next.clone() };
    loop {
        let limit = (wanted - all.items.len()).min(PAGE_MAX);
        let page: Page<T> = place.get(path, &ask(Some(limit), all.next.take())).await?;
        all.items.extend(page.items);
        all.next = page.next;
        // A page may be empty although there is more.
        if all.next.is_none() || all.items.len() >= wanted {
            break;
        }
    }
    if json {
        print_json(&all)?;
    } else if !all.items.is_empty() {
        print(&sheet(&all.items))?;
        if let Some(next) = &all.next {
            eprintln!("more: --next {}", visible(next));
        }
    }
    Ok(super::found(!all.items.is_empty()))
}
