//! Tags of requirements, in names of functions and in text.

/// The documents that requirements come from; a tag starts with one of these.
pub(crate) const DOCUMENTS: [&str; 5] = ["RF", "ADR", "IBX", "GP", "CEB"];
const RANGE: char = '…';

/// The document of a tag, if the whole text is one.
pub(crate) fn document(text: &str) -> Option<&'static str> {
    let (_, "") = split(text)? else { return None };
    DOCUMENTS.into_iter().find(|document| text.starts_with(document))
}

/// The tags in the name of a function: `s1_rf_17_…`, `ibx_031_ibx_032_…`, `gp_q1_…`, `ibx_8_1_…`.
pub(crate) fn in_name(name: &str) -> Vec<String> {
    let words: Vec<&str> = name.split('_').collect();
    (0..words.len()).filter_map(|at| at_start(&words[at..])).collect()
}

fn at_start(words: &[&str]) -> Option<String> {
    let [document, number, rest @ ..] = words else { return None };
    let document = DOCUMENTS.iter().find(|known| known.to_lowercase() == *document)?;
    match (*number, rest.first()) {
        // Requirements of this document have three digits: this is one of its open questions.
        ("8", Some(question)) if *document == "IBX" && is_number(question) => {
            Some(format!("IBX-8.{question}"))
        }
        _ => {
            let is_tag = is_number(number.strip_prefix('q').unwrap_or(number));
            is_tag.then(|| format!("{document}-{}", number.to_uppercase()))
        }
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The tags in a text: `IBX-031`, or all those from one to another: `IBX-009…IBX-012`. Which those are is known from
/// their order in `known`.
pub(crate) fn in_text(text: &str, known: &[&str]) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = text;
    while let Some((tag, after)) = next(rest) {
        let end = after.trim_start().strip_prefix(RANGE).and_then(|end| split(end.trim_start()));
        let place = |tag: &str| known.iter().position(|known| *known == tag);
        let range = end.and_then(|(last, _)| known.get(place(tag)?..=place(last)?)).unwrap_or_default();
        tags.extend(range.iter().map(|tag| (*tag).to_owned()));
        tags.push(tag.to_owned());
        rest = after;
    }
    // The ends of a range are named once more, as themselves.
    tags.sort();
    tags.dedup();
    tags
}

/// The first tag in a text, and what follows it.
fn next(text: &str) -> Option<(&str, &str)> {
    let starts = |at: usize| !text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '-');
    text.char_indices().filter(|&(at, _)| starts(at)).find_map(|(at, _)| split(&text[at..]))
}

/// The tag that a text starts with, and what follows it.
fn split(text: &str) -> Option<(&str, &str)> {
    let number = DOCUMENTS.iter().find_map(|document| text.strip_prefix(document)?.strip_prefix('-'))?;
    let after = number.strip_prefix('Q').unwrap_or(number).trim_start_matches(|c: char| c.is_ascii_digit());
    let question = after.strip_prefix('.').map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
    let is_tag = number[..number.len() - after.len()].ends_with(|c: char| c.is_ascii_digit());
    // A full stop ends a sentence unless a digit follows it.
    let after = question.filter(|end| end.len() + 1 < after.len()).unwrap_or(after);
    is_tag.then(|| text.split_at(text.len() - after.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = ["IBX-008", "IBX-009", "IBX-010", "IBX-8.1", "IBX-8.2", "RF-08"];

    #[test]
    fn names_say_which_requirements_they_cover() {
        assert_eq!(in_name("rf_08_effect_once"), ["RF-08"]);
        assert_eq!(in_name("s1_rf_17_another_file_is_refused"), ["RF-17"]);
        assert_eq!(in_name("ibx_031_ibx_032_only_due"), ["IBX-031", "IBX-032"]);
        assert_eq!(in_name("ibx_8_1_order"), ["IBX-8.1"]);
        assert_eq!(in_name("gp_q1_gp_5_a"), ["GP-Q1", "GP-5"]);
        assert_eq!(in_name("ibx_31_a"), ["IBX-31"], "not ours, which somebody must be told");
    }

    #[test]
    fn other_names_say_nothing() {
        for name in ["rf_version_is_sent", "s12_rf", "gp_quick", "a_surf_08_b", "ibx"] {
            assert!(in_name(name).is_empty(), "{name}");
        }
        assert_eq!(in_name("rf_12_30_days"), ["RF-12"], "the other number is part of the sentence");
    }

    #[test]
    fn comments_say_which_requirements_they_cover() {
        let tags = |text| in_text(text, &KNOWN);
        assert_eq!(tags(" IBX-008: as it should be."), ["IBX-008"]);
        assert_eq!(tags("(IBX-008, RF-08)"), ["IBX-008", "RF-08"]);
        assert_eq!(tags("RF-08's answer, IBX-8.1."), ["IBX-8.1", "RF-08"]);
        assert_eq!(tags("IBX-010. 7 times"), ["IBX-010"]);
        assert_eq!(tags("GP-Q1"), ["GP-Q1"]);
        assert!(tags("RF-xx, ADR-, SURF-08, a-RF-08, the rf-08 header").is_empty());
    }

    #[test]
    fn ranges_follow_the_order_of_the_list() {
        let tags = |text| in_text(text, &KNOWN);
        assert_eq!(tags("IBX-008…IBX-010"), ["IBX-008", "IBX-009", "IBX-010"]);
        assert_eq!(tags("IBX-008 … IBX-010, RF-08"), ["IBX-008", "IBX-009", "IBX-010", "RF-08"]);
        assert_eq!(tags("IBX-8.1…IBX-8.2"), ["IBX-8.1", "IBX-8.2"]);
        assert_eq!(tags("IBX-010…IBX-008"), ["IBX-008", "IBX-010"], "backwards is no range");
        assert_eq!(tags("IBX-009…IBX-008"), ["IBX-008", "IBX-009"]);
        assert_eq!(
            tags("IBX-009…IBX-999"),
            ["IBX-009", "IBX-999"],
            "an end that is none is named as it stands"
        );
        assert_eq!(tags("IBX-008…"), ["IBX-008"]);
    }

    #[test]
    fn a_tag_tells_its_document() {
        assert_eq!(document("IBX-8.1"), Some("IBX"));
        assert_eq!(document("GP-Q1"), Some("GP"));
        for text in ["tag", "---", "RF-08 and more", "RF-"] {
            assert_eq!(document(text), None, "{text}");
        }
    }
}
