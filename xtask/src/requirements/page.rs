//! The page that lists the requirements.

use super::tag;
use crate::Result;
use crate::tidy::tree::File;

/// Where the page is.
pub(crate) const PATH: &str = "docs/REQUIREMENTS.md";
/// The section of those that no test can show.
const BY_DESIGN: &str = "By design";

/// All requirements.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) documents: Vec<Document>,
}

/// The requirements of one document, in their order.
#[derive(Debug)]
pub(crate) struct Document {
    /// `RF: sender, receiver, transports`
    pub(crate) title: String,
    pub(crate) requirements: Vec<Requirement>,
}

/// One requirement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) tag: String,
    pub(crate) text: String,
    pub(crate) state: State,
    /// Why it holds although no test shows it.
    pub(crate) by_design: Option<String>,
    /// Where it stands on the page.
    pub(crate) line: usize,
}

/// How much of it is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    Whole,
    /// With what is missing.
    InPart(String),
    Later,
}

impl Page {
    /// Reads the page.
    ///
    /// # Errors
    /// If a row is in the wrong place, has a tag for the second time, or a state that is none.
    pub(crate) fn read(file: &File) -> Result<Self> {
        let mut page = Self::default();
        let mut section = "";
        for (line, text) in file.lines() {
            if let Some(title) = text.strip_prefix("## ") {
                section = title;
                page.open(title);
            } else if let Some(cells) = row(text) {
                let added = if section == BY_DESIGN { page.excuse(&cells) } else { page.add(line, &cells) };
                added.map_err(|error| file.finding(line, error).to_string())?;
            }
        }
        Ok(page)
    }

    /// All requirements, in the order of the page.
    pub(crate) fn requirements(&self) -> impl Iterator<Item = &Requirement> {
        self.documents.iter().flat_map(|document| &document.requirements)
    }

    fn open(&mut self, title: &str) {
        if title != BY_DESIGN {
            self.documents.push(Document { title: title.to_owned(), requirements: Vec::new() });
        }
    }

    fn add(&mut self, line: usize, cells: &[&str]) -> std::result::Result<(), String> {
        let &[tag, text, state] = cells else { return Err("a row has a tag, a text and a state".into()) };
        if self.requirements().any(|requirement| requirement.tag == tag) {
            return Err(format!("{tag} is here twice"));
        }
        let state = State::read(state).ok_or_else(|| format!("{state:?} is no state"))?;
        let document =
            self.documents.last_mut().filter(|document| Some(document.name()) == tag::document(tag));
        let document = document.ok_or_else(|| format!("{tag} belongs to another document"))?;
        let (tag, text) = (tag.to_owned(), text.to_owned());
        document.requirements.push(Requirement { tag, text, state, by_design: None, line });
        Ok(())
    }

    fn excuse(&mut self, cells: &[&str]) -> std::result::Result<(), String> {
        let &[tag, reason] = cells else { return Err("a row has a tag and a reason".into()) };
        let mut all = self.documents.iter_mut().flat_map(|document| &mut document.requirements);
        let requirement = all.find(|requirement| requirement.tag == tag);
        let requirement = requirement.ok_or_else(|| format!("there is no {tag}"))?;
        match requirement.by_design.replace(reason.to_owned()) {
            None => Ok(()),
            Some(_) => Err(format!("{tag} is here twice")),
        }
    }
}

impl Document {
    /// What its tags start with.
    pub(crate) fn name(&self) -> &str {
        self.title.split(':').next().unwrap_or_default()
    }
}

impl State {
    fn read(cell: &str) -> Option<Self> {
        match cell.split_once(": ") {
            None if cell.is_empty() => Some(Self::Whole),
            None if cell == "later" => Some(Self::Later),
            Some(("in part", missing)) => Some(Self::InPart(missing.to_owned())),
            _ => None,
        }
    }
}

/// The cells of a row of a table, if its first one is a tag.
fn row(line: &str) -> Option<Vec<&str>> {
    let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
    tag::document(cells[0]).is_some().then_some(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Tree;

    fn page(text: &str) -> Result<Page> {
        Page::read(&Tree::of(&[(PATH, text)]).files[0])
    }

    #[test]
    fn a_page_is_read() {
        let text = "# All\n\n## RF: sending\nText, RF-01.\n\n| tag | what | state |\n| --- | --- | --- |\n\
            | RF-01 | one | |\n| RF-02 | two | in part: half |\n## GP: schema\n| GP-Q1 | three | later |\n\
            ## By design\n| tag | why |\n| RF-01 | so |\n";
        let page = page(text).unwrap();
        let titles: Vec<_> =
            page.documents.iter().map(|document| (&*document.title, document.name())).collect();
        assert_eq!(titles, [("RF: sending", "RF"), ("GP: schema", "GP")]);
        let rows: Vec<_> =
            page.requirements().map(|row| (&*row.tag, &*row.text, &row.state, row.line)).collect();
        let half = State::InPart("half".into());
        assert_eq!(
            rows,
            [
                ("RF-01", "one", &State::Whole, 8),
                ("RF-02", "two", &half, 9),
                ("GP-Q1", "three", &State::Later, 11)
            ]
        );
        let reasons: Vec<_> = page.requirements().map(|row| row.by_design.as_deref()).collect();
        assert_eq!(reasons, [Some("so"), None, None]);
    }

    #[test]
    fn mistakes_are_found_with_their_line() {
        let rf = "## RF: sending\n| RF-01 | one | |\n";
        for (text, error) in [
            (format!("{rf}| RF-01 | one | |\n"), "docs/REQUIREMENTS.md:3: RF-01 is here twice"),
            (format!("{rf}| GP-1 | one | |\n"), "docs/REQUIREMENTS.md:3: GP-1 belongs to another document"),
            (format!("{rf}| RF-02 | one | soon |\n"), "docs/REQUIREMENTS.md:3: \"soon\" is no state"),
            (format!("{rf}| RF-02 | one |\n"), "docs/REQUIREMENTS.md:3: a row has a tag, a text and a state"),
            (format!("{rf}## By design\n| RF-02 | so |\n"), "docs/REQUIREMENTS.md:4: there is no RF-02"),
            ("| RF-01 | one | |\n".into(), "docs/REQUIREMENTS.md:1: RF-01 belongs to another document"),
        ] {
            assert_eq!(page(&text).unwrap_err().to_string(), error);
        }
    }
}
