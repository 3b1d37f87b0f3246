//! A line diff, for outputs of a screen or two.

/// Shows how `actual` differs from `expected`: `-` is missing, `+` is extra.
pub(crate) fn diff(expected: &str, actual: &str) -> String {
    let old: Vec<&str> = expected.split_inclusive('\n').collect();
    let new: Vec<&str> = actual.split_inclusive('\n').collect();
    let common = common_lengths(&old, &new);
    let (mut i, mut j) = (0, 0);
    let mut shown = String::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            shown += &line(' ', old[i]);
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            shown += &line('-', old[i]);
            i += 1;
        } else {
            shown += &line('+', new[j]);
            j += 1;
        }
    }
    shown
}

/// How many lines the rests from `[i]` and `[j]` have in common, in order.
fn common_lengths(old: &[&str], new: &[&str]) -> Vec<Vec<usize>> {
    let mut lengths = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i][j] = if old[i] == new[j] {
                lengths[i + 1][j + 1] + 1
            } else {
                lengths[i + 1][j].max(lengths[i][j + 1])
            };
        }
    }
    lengths
}

/// Line ends are part of the comparison, so the unusual ones are made visible.
fn line(mark: char, text: &str) -> String {
    let visible = text.trim_end_matches('\n').replace('\r', "\\r");
    let end = if text.ends_with('\n') { "" } else { " (no newline at the end)" };
    format!("{mark} {visible}{end}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_stand_among_the_unchanged() {
        assert_eq!(diff("a\nb\nc\n", "a\nx\nc\nd\n"), "  a\n- b\n+ x\n  c\n+ d\n");
    }

    #[test]
    fn differences_in_line_ends_are_visible() {
        assert_eq!(diff("a\n", "a"), "- a\n+ a (no newline at the end)\n");
        assert_eq!(diff("a\n", "a\r\n"), "- a\n+ a\\r\n");
    }

    #[test]
    fn empty_texts_have_nothing_to_show() {
        assert_eq!(diff("", ""), "");
        assert_eq!(diff("", "a\n"), "+ a\n");
    }
}
