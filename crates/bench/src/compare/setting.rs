//! A setting of the kernel that is changed for one turn.

use std::io;
use std::path::{Path, PathBuf};

/// A file below `/sys` or `/proc/sys` with another value. Its value before is written back when
/// this is dropped.
pub(super) struct Setting {
    /// The file that restores it: of two that exclude each other, the one in force before.
    file: PathBuf,
    before: String,
}

impl Setting {
    /// Writes `value`.
    ///
    /// # Errors
    /// Those of the file, with its path.
    pub(super) fn change(file: PathBuf, value: &str) -> io::Result<Setting> {
        let before = read(&file)?;
        write(&file, value)?;
        Ok(Setting { file, before })
    }

    /// Writes `value` to a file where zero says that `otherwise` is in force, and this one has to
    /// be written again to restore that.
    ///
    /// # Errors
    /// As [`Setting::change`].
    pub(super) fn override_with(
        file: PathBuf,
        value: &str,
        otherwise: PathBuf,
    ) -> io::Result<Setting> {
        let (before, ratio) = (read(&file)?, read(&otherwise)?);
        write(&file, value)?;
        Ok(match before.trim() {
            "0" => Setting {
                file: otherwise,
                before: ratio,
            },
            _ => Setting { file, before },
        })
    }
}

fn read(file: &Path) -> io::Result<String> {
    std::fs::read_to_string(file).map_err(|e| named(file, &e))
}

fn write(file: &Path, value: &str) -> io::Result<()> {
    std::fs::write(file, value).map_err(|e| named(file, &e))
}

fn named(file: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", file.display()))
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(e) = write(&self.file, &self.before) {
            eprintln!("sluice: not restored: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(name: &str) -> [PathBuf; 2] {
        let directory = std::env::temp_dir();
        ["bytes", "ratio"]
            .map(|kind| directory.join(format!("setting-{name}-{kind}-{}", std::process::id())))
    }

    fn with(file: &Path, value: &str) {
        std::fs::write(file, value).unwrap();
    }

    #[test]
    fn a_setting_is_restored() {
        let [file, _] = files("one");
        with(&file, "75000\n");
        let changed = Setting::change(file.clone(), "7").unwrap();
        assert_eq!(read(&file).unwrap(), "7");
        drop(changed);
        assert_eq!(read(&file).unwrap(), "75000\n");
        std::fs::remove_file(&file).unwrap();
        let missing = Setting::change(file, "7").map(drop).unwrap_err();
        assert!(missing.to_string().contains("setting-one"), "{missing}");
    }

    #[test]
    fn of_two_settings_the_one_in_force_is_restored() {
        let [bytes, ratio] = files("two");
        let change = || Setting::override_with(bytes.clone(), "512", ratio.clone()).unwrap();
        let restored = || (read(&bytes).unwrap(), read(&ratio).unwrap());
        with(&ratio, "20\n");
        with(&bytes, "0\n");
        let changed = change();
        // As the kernel does.
        with(&ratio, "0\n");
        drop(changed);
        assert_eq!(restored(), ("512".to_owned(), "20\n".to_owned()));
        with(&bytes, "4096\n");
        drop(change());
        assert_eq!(restored(), ("4096\n".to_owned(), "20\n".to_owned()));
        for file in [bytes, ratio] {
            std::fs::remove_file(file).unwrap();
        }
    }
}
