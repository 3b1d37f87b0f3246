//! Showing the configuration as it is in effect.

use std::fmt::Write as _;

use super::keys::entries;
use super::load::Loaded;

/// TOML, with where each value comes from behind it. Secrets are not in it: only the names of what holds them.
pub(super) fn print(loaded: &Loaded) -> String {
    let mut text = String::new();
    let mut last = String::new();
    for entry in entries() {
        let (table, name) = entry.place();
        if table != last {
            let gap = if last.is_empty() { "" } else { "\n" };
            let _: Result<(), _> = writeln!(text, "{gap}[{table}]");
            last = table.into();
        }
        let value = entry.show(&loaded.config);
        let mut line = |name: &str, value: &toml::Value, path: &str| {
            let name = toml_key(name);
            let _: Result<(), _> = writeln!(text, "{name} = {value} # {}", loaded.origin(path));
        };
        match (name, value.as_table()) {
            (Some(name), _) => line(name, &value, &entry.path),
            (None, Some(names)) => {
                for (name, value) in names {
                    line(name, value, &format!("{}.{name}", entry.path));
                }
            }
            (None, None) => {}
        }
    }
    text
}

/// Names that are not plain stand in quotes.
fn toml_key(name: &str) -> String {
    let plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if plain { name.into() } else { toml::Value::String(name.into()).to_string() }
}
