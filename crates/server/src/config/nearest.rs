//! What somebody who made a mistake may have meant.

/// Most names that are listed when none is near.
const LISTED_MAX: usize = 8;

/// What to do about an unknown name: `: did you mean …?` with the nearest of the known ones, or where to find them.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let best = known.iter().map(|known| (distance(name, known), known)).min();
    match best {
        Some((distance, known)) if distance <= 1 + name.chars().count() / 3 => {
            format!(": did you mean {known}?")
        }
        _ if known.len() <= LISTED_MAX => format!(": there are {}", known.join(", ")),
        _ => ": `twobox config print --default` shows all there are".into(),
    }
}

/// How many letters must be added, removed or changed to get from one to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut above_left = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = above_left + usize::from(x != *y);
            above_left = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(above_left + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_or_where_to_find_them() {
        let known = ["retries_max", "retry_max", "ttl"];
        assert_eq!(nearest("retrie_max", known), ": did you mean retries_max?");
        assert_eq!(nearest("colour", known), ": there are retries_max, retry_max, ttl");
        assert_eq!(nearest("colour", ["ttl"; 9]), ": `twobox config print --default` shows all there are");
        assert_eq!((distance("", "abc"), distance("abc", "abd"), distance("kitten", "sitting")), (3, 1, 3));
    }
}
