//! Secrets: taken from the environment or from files, never shown.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Something that nobody may see. It cannot be printed.
pub(crate) struct Secret(Box<[u8]>);

impl Secret {
    fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads a secret from the variable or the file that the configuration names, without the line break at its end.
    /// `None` if it names neither. The error says what is wrong and the remedy, never what was found.
    pub(crate) fn read(variable: &str, file: Option<&Path>) -> Result<Option<Self>, String> {
        let secret = match (variable, file) {
            ("", None) => return Ok(None),
            (variable, None) => of_variable(variable)?,
            ("", Some(file)) => of_file(file)?,
            (_, Some(_)) => return Err("has both a variable and a file: keep one".into()),
        };
        if secret.0.is_empty() {
            return Err("the secret is empty".into());
        }
        Ok(Some(secret))
    }
}

fn of_variable(variable: &str) -> Result<Secret, String> {
    let value = std::env::var_os(variable);
    let value = value.ok_or_else(|| format!("the environment variable {variable} is not set: set it"))?;
    Ok(Secret::new(without_line_break(value.as_bytes())))
}

fn of_file(path: &Path) -> Result<Secret, String> {
    let shown = path.display();
    let cannot = |error| format!("cannot read {shown}: {error}");
    let mode = std::fs::metadata(path).map_err(cannot)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("others can read or change {shown}: chmod 600 {shown}"));
    }
    Ok(Secret::new(without_line_break(&std::fs::read(path).map_err(cannot)?)))
}

fn without_line_break(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_a_secret_is_never_shown() {
        let secret = Secret::new(b"canary");
        assert!(!format!("{secret:?}").contains("canary"));
    }

    #[test]
    fn s17_a_file_that_others_can_read_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "canary\r\n").unwrap();
        let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            allow(mode);
            let error = Secret::read("", Some(&path)).unwrap_err();
            assert!(error.ends_with(&format!("chmod 600 {}", path.display())), "{error}");
        }
        allow(0o400);
        assert_eq!(Secret::read("", Some(&path)).unwrap().unwrap().bytes(), b"canary");
    }
}
