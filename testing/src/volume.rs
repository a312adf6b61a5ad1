//! Short forms of the engine's calls, by paths.

use ext4::{
    Error, FileType, Fs, InodeRef, MkfsOptions, MountOptions, NewInode, Result, SetXattrMode,
};
use std::path::Path;
use std::sync::Arc;

/// Mount options of the tests: little memory, so that reclaim has its share.
pub fn options() -> MountOptions {
    MountOptions {
        memory: 64 << 20,
        ..MountOptions::default()
    }
}

/// Opens an image and mounts it.
///
/// # Errors
/// The engine's.
pub fn mount(image: &Path) -> Result<Arc<Fs>> {
    mount_with(image, options())
}

/// Opens an image and mounts it with these options.
///
/// # Errors
/// The engine's.
pub fn mount_with(image: &Path, options: MountOptions) -> Result<Arc<Fs>> {
    let url = block::DeviceUrl::Path(image.to_owned());
    // The lock of an earlier mount goes when its last thread has ended.
    let mut tries = 0;
    let queue = loop {
        match block::open(&url, block::OpenMode::ReadWrite) {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy && tries < 100 => {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            other => break other.expect("the image opens"),
        }
    };
    Fs::mount(queue, options)
}

/// Formats an image of `size` bytes with our mkfs.
pub fn mkfs(image: &Path, size: u64, features: &[&str]) {
    block::create_image(image, size, block::Create::Overwrite).expect("an image");
    let url = block::DeviceUrl::Path(image.to_owned());
    let queue = block::open(&url, block::OpenMode::ReadWrite).expect("the image opens");
    let options = MkfsOptions {
        features: features.iter().map(|s| (*s).to_owned()).collect(),
        ..MkfsOptions::default()
    };
    ext4::mkfs(&queue, &options).expect("mkfs");
}

/// What a new inode of this mode is.
pub fn new(mode: u16) -> NewInode {
    NewInode {
        mode,
        ..NewInode::default()
    }
}

fn components(path: &str) -> impl Iterator<Item = &[u8]> {
    path.split('/').filter(|c| !c.is_empty()).map(str::as_bytes)
}

/// The inode at `path`.
///
/// # Errors
/// The engine's.
pub fn at(fs: &Fs, path: &str) -> Result<InodeRef> {
    components(path).try_fold(fs.root()?, |dir, name| fs.lookup(&dir, name))
}

/// The directory that holds `path`, and the last name.
///
/// # Errors
/// The engine's.
pub fn parent<'a>(fs: &Fs, path: &'a str) -> Result<(InodeRef, &'a [u8])> {
    match path.rsplit_once('/') {
        Some((dir, name)) => Ok((at(fs, dir)?, name.as_bytes())),
        None => Ok((fs.root()?, path.as_bytes())),
    }
}

/// Creates a file with these contents, or replaces its contents.
///
/// # Errors
/// The engine's.
pub fn put(fs: &Fs, path: &str, data: &[u8]) -> Result<InodeRef> {
    let (dir, name) = parent(fs, path)?;
    let file = match fs.create(&dir, name, new(0o100_644)) {
        Err(Error::Exists) => {
            let file = fs.lookup(&dir, name)?;
            fs.truncate(&file, 0)?;
            file
        }
        other => other?,
    };
    write_all(fs, &file, 0, data)?;
    Ok(file)
}

/// Writes all of `data`.
///
/// # Errors
/// The engine's; `NoSpace` where only a part was written.
pub fn write_all(fs: &Fs, file: &InodeRef, offset: u64, data: &[u8]) -> Result<()> {
    let n = fs.write(file, offset, data)?;
    if n < data.len() {
        return Err(Error::NoSpace);
    }
    Ok(())
}

/// All of a file.
///
/// # Errors
/// The engine's.
pub fn get(fs: &Fs, path: &str) -> Result<Vec<u8>> {
    contents(fs, &at(fs, path)?)
}

/// All of a file.
///
/// # Errors
/// The engine's.
pub fn contents(fs: &Fs, file: &InodeRef) -> Result<Vec<u8>> {
    let mut data = vec![0; file.size() as usize];
    let n = fs.read(file, 0, &mut data)?;
    data.truncate(n);
    Ok(data)
}

/// Makes a directory and all above it; it may be there already.
///
/// # Errors
/// The engine's.
pub fn mkdir_all(fs: &Fs, path: &str) -> Result<InodeRef> {
    components(path).try_fold(fs.root()?, |dir, name| {
        match fs.mkdir(&dir, name, new(0o040_755)) {
            Err(Error::Exists) => fs.lookup(&dir, name),
            other => other,
        }
    })
}

/// Names in a directory, without "." and "..".
///
/// # Errors
/// The engine's.
pub fn list(fs: &Fs, dir: &InodeRef) -> Result<Vec<(Vec<u8>, u32, FileType)>> {
    let mut found = Vec::new();
    fs.read_dir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            found.push((entry.name.to_vec(), entry.ino, entry.kind));
        }
        true
    })?;
    Ok(found)
}

/// Removes the file at `path`.
///
/// # Errors
/// The engine's.
pub fn remove(fs: &Fs, path: &str) -> Result<()> {
    let (dir, name) = parent(fs, path)?;
    fs.unlink(&dir, name)
}

/// Renames, replacing.
///
/// # Errors
/// The engine's.
pub fn rename(fs: &Fs, from: &str, to: &str) -> Result<()> {
    let (from_dir, from_name) = parent(fs, from)?;
    let (to_dir, to_name) = parent(fs, to)?;
    fs.rename(
        &from_dir,
        from_name,
        &to_dir,
        to_name,
        ext4::RenameFlags::Replace,
    )
}

/// Sets an extended attribute of the file at `path`.
///
/// # Errors
/// The engine's.
pub fn set_xattr(fs: &Fs, path: &str, name: &str, value: &[u8]) -> Result<()> {
    fs.set_xattr(&at(fs, path)?, name.as_bytes(), value, SetXattrMode::Any)
}
