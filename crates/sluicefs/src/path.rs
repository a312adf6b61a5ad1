//! Path resolution inside one volume.
//!
//! [`walk_parent`] resolves all components but the last, so that a creation does not look up the
//! new name. [`resolve`] also looks up the last one and follows it if it is a symbolic link.
//! [`find`] and [`attr`] first try to follow names in the dentry cache, without pinning the
//! directories. A link is expanded by walking `target/rest` from the directory that contains the
//! link. More than 40 links are a [`Cause::LinkLoop`]. The parent of the root is the root, so no
//! path leaves the volume.

use crate::error::Cause;
use ext4::{Attr, CachedPath, Error, FileType, Fs, InodeRef};
use std::borrow::Cow;
use units::Ino;

/// Symbolic links followed in one resolution, as in Linux.
const MAX_LINKS: u32 = 40;
/// Bytes in a name.
const MAX_NAME: usize = 255;

type Result<T> = std::result::Result<T, Cause>;

/// Treatment of a symbolic link that is the last component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLink {
    /// Follow it.
    Follow,
    /// Use the link itself, unless a trailing slash requires a directory.
    Keep,
}

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Last<'p> {
    /// A name in the parent directory.
    Name(Cow<'p, [u8]>),
    /// The parent directory itself: the path ends in `/`, `.` or `..`.
    This(Special),
}

/// The form of a path whose last component is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// `/`
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
}

/// A path, resolved up to its last component.
pub(crate) struct Parent<'p> {
    pub dir: InodeRef,
    pub last: Last<'p>,
    /// Whether a slash follows the last component, so that it must be a directory.
    pub wants_dir: bool,
}

/// A resolved path.
pub(crate) struct Target<'p> {
    pub parent: Parent<'p>,
    /// `None` if the last component does not exist.
    pub inode: Option<InodeRef>,
}

/// Names that were walked, for [`canonical`]; `None` if the caller does not need them.
type Trail<'t> = Option<&'t mut Vec<Vec<u8>>>;

impl Parent<'_> {
    fn into_owned<'o>(self) -> Parent<'o> {
        Parent {
            dir: self.dir,
            last: match self.last {
                Last::Name(name) => Last::Name(Cow::Owned(name.into_owned())),
                Last::This(special) => Last::This(special),
            },
            wants_dir: self.wants_dir,
        }
    }
}

/// Resolves all components of `path` but the last. A relative path starts at `base`.
pub(crate) fn walk_parent<'p>(fs: &Fs, base: &InodeRef, path: &'p [u8]) -> Result<Parent<'p>> {
    walk(fs, base, path, &mut MAX_LINKS.clone(), &mut None)
}

/// Resolves `path`. A last component that does not exist is no error.
pub(crate) fn resolve<'p>(
    fs: &Fs,
    base: &InodeRef,
    path: &'p [u8],
    last: LastLink,
) -> Result<Target<'p>> {
    resolve_trailing(fs, base, path, last, &mut None)
}

/// Resolves `path`, which must exist.
pub(crate) fn find(fs: &Fs, base: &InodeRef, path: &[u8], last: LastLink) -> Result<InodeRef> {
    let cached = cached(fs, base, path).and_then(|path| path.inode());
    if let Some(found) = cached {
        let found = found?;
        if is_end(found.kind(), last) {
            return Ok(found);
        }
    }
    search(fs, base, path, last)
}

fn search(fs: &Fs, base: &InodeRef, path: &[u8], last: LastLink) -> Result<InodeRef> {
    let target = resolve(fs, base, path, last)?;
    target.inode.ok_or(Cause::Fs(Error::NotFound))
}

/// The attributes of the file at `path`, which must exist.
pub(crate) fn attr(fs: &Fs, base: &InodeRef, path: &[u8], last: LastLink) -> Result<Attr> {
    let cached = cached(fs, base, path).and_then(|path| path.attr());
    if let Some(found) = cached {
        let found = found?;
        if is_end(found.kind, last) {
            return Ok(found);
        }
    }
    Ok(search(fs, base, path, last)?.attr())
}

/// Resolves a path of cached names alone. `None` if something else is needed, such as `..`, or a
/// symbolic link among the directories.
fn cached<'f>(fs: &'f Fs, base: &InodeRef, path: &[u8]) -> Option<CachedPath<'f>> {
    let from = match path.first()? {
        b'/' => Ino::ROOT,
        _ => base.ino(),
    };
    let mut rest = path;
    let names = std::iter::from_fn(|| {
        let (name, after, _) = next_component(rest)?;
        rest = after;
        Some(name)
    });
    // A slash at the end requires a directory.
    (path.last() != Some(&b'/')).then(|| fs.cached_path(from, names))?
}

/// Whether a file of this type ends the resolution of a path.
fn is_end(kind: FileType, last: LastLink) -> bool {
    kind != FileType::Symlink || last == LastLink::Keep
}

/// The absolute path without links, `.` and `..`. `path` must exist.
pub(crate) fn canonical(fs: &Fs, root: &InodeRef, path: &[u8]) -> Result<Vec<u8>> {
    let mut trail = Vec::new();
    let target = resolve_trailing(fs, root, path, LastLink::Follow, &mut Some(&mut trail))?;
    if target.inode.is_none() {
        return Err(Error::NotFound.into());
    }
    if let Last::Name(name) = target.parent.last {
        trail.push(name.into_owned());
    }
    let mut out = Vec::new();
    for name in &trail {
        out.push(b'/');
        out.extend_from_slice(name);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    Ok(out)
}

fn resolve_trailing<'p>(
    fs: &Fs,
    base: &InodeRef,
    path: &'p [u8],
    last: LastLink,
    trail: &mut Trail<'_>,
) -> Result<Target<'p>> {
    let mut links = MAX_LINKS;
    let mut parent = walk(fs, base, path, &mut links, trail)?;
    loop {
        let Last::Name(name) = &parent.last else {
            let inode = Some(parent.dir.clone());
            return Ok(Target { parent, inode });
        };
        let inode = match fs.lookup(&parent.dir, name) {
            Ok(inode) => inode,
            Err(Error::NotFound) => {
                return Ok(Target {
                    parent,
                    inode: None,
                });
            }
            Err(e) => return Err(e.into()),
        };
        let kind = inode.kind();
        if kind == FileType::Symlink && (last == LastLink::Follow || parent.wants_dir) {
            let rest: &[u8] = if parent.wants_dir { b"/" } else { b"" };
            let path = expand(fs, &inode, rest, &mut links)?;
            parent = walk(fs, &parent.dir, &path, &mut links, trail)?.into_owned();
            continue;
        }
        if parent.wants_dir && kind != FileType::Directory {
            return Err(Error::NotDirectory.into());
        }
        return Ok(Target {
            parent,
            inode: Some(inode),
        });
    }
}

fn walk<'p>(
    fs: &Fs,
    base: &InodeRef,
    path: &'p [u8],
    links: &mut u32,
    trail: &mut Trail<'_>,
) -> Result<Parent<'p>> {
    if path.is_empty() {
        return Err(Error::NotFound.into());
    }
    let mut dir = if path[0] == b'/' {
        if let Some(trail) = trail {
            trail.clear();
        }
        fs.root()?
    } else {
        base.clone()
    };
    let mut special = Special::Root;
    let mut rest = path;
    loop {
        let Some((name, after, slash)) = next_component(rest) else {
            return Ok(Parent {
                dir,
                last: Last::This(special),
                wants_dir: true,
            });
        };
        rest = after;
        match name {
            b"." => special = Special::Dot,
            b".." => {
                special = Special::DotDot;
                if let Some(trail) = trail {
                    trail.pop();
                }
                if dir.ino() != Ino::ROOT {
                    dir = fs.parent(&dir)?;
                }
            }
            _ => {
                check_name(name)?;
                if rest.is_empty() {
                    return Ok(Parent {
                        dir,
                        last: Last::Name(Cow::Borrowed(name)),
                        wants_dir: slash,
                    });
                }
                let child = fs.lookup(&dir, name)?;
                match child.kind() {
                    FileType::Directory => {}
                    FileType::Symlink => {
                        let path = expand(fs, &child, rest, links)?;
                        return Ok(walk(fs, &dir, &path, links, trail)?.into_owned());
                    }
                    _ => return Err(Error::NotDirectory.into()),
                }
                if let Some(trail) = trail {
                    trail.push(name.to_vec());
                }
                dir = child;
            }
        }
    }
}

/// Returns `target/rest` of a symbolic link.
fn expand(fs: &Fs, link: &InodeRef, rest: &[u8], links: &mut u32) -> Result<Vec<u8>> {
    *links = links.checked_sub(1).ok_or(Cause::LinkLoop)?;
    let mut path = fs.readlink(link)?;
    if !rest.is_empty() {
        path.push(b'/');
        path.extend_from_slice(rest);
    }
    Ok(path)
}

/// The first component, the path after its slashes, and whether it has a slash.
fn next_component(path: &[u8]) -> Option<(&[u8], &[u8], bool)> {
    let start = path.iter().position(|&b| b != b'/')?;
    let path = &path[start..];
    let len = memchr::memchr(b'/', path).unwrap_or(path.len());
    let (name, after) = path.split_at(len);
    let slashes = after.iter().take_while(|&&b| b == b'/').count();
    Some((name, &after[slashes..], slashes > 0))
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME {
        return Err(Error::NameTooLong.into());
    }
    if memchr::memchr(0, name).is_some() {
        return Err(Cause::Invalid("the path contains a NUL byte"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_split_at_slashes() {
        let next = |p: &'static str| next_component(p.as_bytes());
        assert_eq!(next(""), None);
        assert_eq!(next("///"), None);
        assert_eq!(next("a"), Some((&b"a"[..], &b""[..], false)));
        assert_eq!(next("//a//"), Some((&b"a"[..], &b""[..], true)));
        assert_eq!(next("a//b/"), Some((&b"a"[..], &b"b/"[..], true)));
    }

    #[test]
    fn names_have_limits() {
        assert!(check_name(&[b'x'; 255]).is_ok());
        assert!(matches!(
            check_name(&[b'x'; 256]),
            Err(Cause::Fs(Error::NameTooLong))
        ));
        assert!(matches!(check_name(b"a\0b"), Err(Cause::Invalid(_))));
    }
}
