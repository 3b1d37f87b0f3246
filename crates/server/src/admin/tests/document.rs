//! The document that is published is the one that the code generates.

/// Set it to write the document anew.
const REWRITE: &str = "TWOBOX_REWRITE";

#[test]
fn rf_22_the_published_document_is_what_the_code_generates() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let generated = crate::admin::openapi::json();
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(path, generated).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(published == generated, "docs/openapi.json is out of date: run cargo xtask openapi");
}
