//! Operations on whole files and whole trees.

use crate::dir::Dir;
use crate::error::Cause;
use crate::file::File;
use crate::options::OpenOptions;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Bytes copied in one step.
const CHUNK: usize = 1 << 20;

impl Dir {
    /// The whole contents of a file.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut file = self.open_file(path)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        // The size may be damaged, so it does not decide alone how much memory is reserved.
        bytes.reserve_exact(size.min(64 << 20));
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The whole contents of a file as text.
    ///
    /// # Errors
    /// `InvalidData` if it is not UTF-8, and as [`Dir::read`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let mut text = String::new();
        self.open_file(path)?.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Replaces the whole contents of a file, which is created if it does not exist.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
        self.create_file(path)?.write_all_at(contents.as_ref(), 0)
    }

    /// Copies contents and permission bits of a file, and returns its size in bytes. Holes stay
    /// holes.
    ///
    /// # Errors
    /// As open(2), read(2) and write(2).
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
        let source = self.open_file(from)?;
        let meta = source.metadata()?;
        if !meta.is_file() {
            return Err(
                Cause::Invalid("only regular files can be copied").at("copy", source.path())
            );
        }
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(meta.mode());
        let target = options.open(self, to)?;
        if target.metadata()?.ino() == meta.ino() {
            return Err(
                Cause::Invalid("source and target are the same file").at("copy", source.path())
            );
        }
        target.set_len(0)?;
        copy_contents(&source, &target, meta.len())?;
        target.set_permissions(meta.permissions())?;
        Ok(meta.len())
    }

    /// Creates a directory and its missing parents. An existing directory is opened.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<Dir> {
        let path = match path.as_ref() {
            // An empty path is this directory, as in std.
            path if path.as_os_str().is_empty() => Path::new("."),
            path => path,
        };
        if let Ok(dir) = self.open_dir(path) {
            return Ok(dir);
        }
        let mut so_far = PathBuf::new();
        for component in path.components() {
            so_far.push(component);
            if !matches!(component, Component::Normal(_)) {
                continue;
            }
            match self.create_dir(&so_far) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(_) => {}
            }
        }
        self.open_dir(path)
    }

    /// Removes a directory and everything in it. A symbolic link is refused. Symbolic links inside
    /// are removed and not followed.
    ///
    /// # Errors
    /// The first error, after which nothing more is removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        if !self.symlink_metadata(path)?.is_dir() {
            return Err(Cause::Fs(ext4::Error::NotDirectory).at("remove", self.full(path)));
        }
        // Directories that are being emptied, each with its name in the one before. There is no
        // recursion, because trees may be deep.
        let mut open: Vec<(OsString, Dir)> = vec![(OsString::new(), self.open_dir(path)?)];
        while let Some((_, dir)) = open.last() {
            if let Some((name, dir)) = remove_entries(dir)? {
                open.push((name, dir));
                continue;
            }
            let Some((name, _)) = open.pop() else { break };
            match open.last() {
                Some((_, above)) => above.remove_dir(&name)?,
                None => self.remove_dir(path)?,
            }
        }
        Ok(())
    }
}

/// Removes files and empty directories. Returns the first directory that is not empty; `None` if
/// nothing is left.
fn remove_entries(dir: &Dir) -> io::Result<Option<(OsString, Dir)>> {
    loop {
        let mut any = false;
        for entry in dir.read_dir(".")? {
            let entry = entry?;
            any = true;
            let is_dir = entry.file_type().is_dir();
            let name = entry.into_file_name();
            let removed = if is_dir {
                dir.remove_dir(&name)
            } else {
                dir.remove_file(&name)
            };
            match removed {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if is_dir && e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    let child = dir.open_dir(&name)?;
                    return Ok(Some((name, child)));
                }
                Err(e) => return Err(e),
            }
        }
        // Another round finds entries that were added during this one.
        if !any {
            return Ok(None);
        }
    }
}

/// Copies the first `len` bytes into an empty file. Holes are skipped.
fn copy_contents(source: &File, target: &File, len: u64) -> io::Result<()> {
    let mut buf = vec![0; CHUNK.min(usize::try_from(len).unwrap_or(CHUNK)).max(1)];
    let mut at = 0;
    while at < len {
        let Some(start) = source.seek_data(at)? else {
            break;
        };
        let end = source.seek_hole(start)?.unwrap_or(len).min(len);
        at = start;
        while at < end {
            let want = buf
                .len()
                .min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let n = source.read_at(&mut buf[..want], at)?;
            if n == 0 {
                break;
            }
            target.write_all_at(&buf[..n], at)?;
            at += n as u64;
        }
        if at < end {
            break;
        }
    }
    target.set_len(len)
}
