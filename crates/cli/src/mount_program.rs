//! `sluice` as the program that mount(8) starts for a file system of type `fuse.sluicefs`.
//!
//! mount(8) starts `mount.fuse.sluicefs DEVICE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`.
//! Where there is none, mount.fuse3 of libfuse starts `sluicefs DEVICE DIR -o OPTIONS`. So a
//! symbolic link with one of these names to `sluice` makes `sluice mount` of such a call.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 2] = ["mount.fuse.sluicefs", "sluicefs"];

/// The request of a call.
#[derive(Debug, PartialEq)]
pub enum Call {
    /// The arguments of `sluice` itself.
    Sluice(Vec<OsString>),
    /// `mount -f`: nothing is to be done.
    Nothing,
    /// A change of the flags of a mount, which mount(8) can make without this program.
    Remount(Vec<OsString>),
}

/// Reads the arguments of this process, the first of which is its name.
///
/// # Errors
/// The name is one that mount(8) uses, and an argument is unknown.
pub fn call(args: impl IntoIterator<Item = OsString>) -> Result<Call> {
    let mut args = args.into_iter();
    let program = args.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    if !NAMES.iter().any(|known| name == OsStr::new(known)) {
        return Ok(Call::Sluice([program].into_iter().chain(args).collect()));
    }
    let (mut places, mut options) = (Vec::new(), Vec::new());
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-o") => options.push(args.next().context("-o needs options")?),
            Some("-t") => drop(args.next()),
            Some("-N") => bail!("mounting in another namespace is not supported: use nsenter"),
            Some("-f") => return Ok(Call::Nothing),
            Some("-s" | "-n" | "-v") => {}
            Some(flag) if flag.starts_with('-') => bail!("unknown option {flag}"),
            _ => places.push(arg),
        }
    }
    let Ok([device, dir]) = <[OsString; 2]>::try_from(places) else {
        bail!("give a device and a directory");
    };
    let options = options.join(OsStr::new(","));
    let words = options.to_string_lossy();
    if words.split(',').any(|word| word == "remount") {
        return Ok(Call::Remount(vec!["-i".into(), "-o".into(), options, dir]));
    }
    let mut sluice: Vec<OsString> = vec!["sluice".into(), "mount".into()];
    if !options.is_empty() {
        sluice.extend(["-o".into(), options]);
    }
    sluice.extend(["--".into(), device, dir]);
    Ok(Call::Sluice(sluice))
}

/// Lets mount(8) change the flags of a mount.
pub fn remount(args: Vec<OsString>) -> anyhow::Error {
    let error = Command::new("mount").args(args).exec();
    anyhow::Error::from(error).context("mount")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sluice(words: &[&str]) -> Call {
        Call::Sluice(words.iter().map(OsString::from).collect())
    }

    fn called(words: &[&str]) -> Result<Call> {
        call(words.iter().map(OsString::from))
    }

    #[test]
    fn calls_of_mount() {
        let own = ["sluice", "ls", "-l", "disk.img"];
        assert_eq!(called(&own).unwrap(), sluice(&own));
        let words = "/sbin/mount.fuse.sluicefs a.img /mnt -n -o ro,noatime -t fuse.sluicefs";
        let words: Vec<_> = words.split(' ').collect();
        let expected = ["sluice", "mount", "-o", "ro,noatime", "--", "a.img", "/mnt"];
        assert_eq!(called(&words).unwrap(), sluice(&expected));
        assert!(called(&["sluicefs", "-a", "/mnt"]).is_err());
        let expected = ["sluice", "mount", "--", "a", "/mnt"];
        assert_eq!(
            called(&["sluicefs", "a", "/mnt"]).unwrap(),
            sluice(&expected)
        );
        assert_eq!(
            called(&["sluicefs", "-f", "a", "/mnt"]).unwrap(),
            Call::Nothing
        );
        let expected = Call::Remount(
            ["-i", "-o", "remount,ro", "/mnt"]
                .map(OsString::from)
                .into(),
        );
        let words = ["sluicefs", "a", "/mnt", "-o", "remount,ro"];
        assert_eq!(called(&words).unwrap(), expected);
        for wrong in [
            &["a"][..],
            &["a", "/mnt", "-o"],
            &["a", "b", "c"],
            &["a", "b", "-N", "1"],
        ] {
            assert!(
                called(&[&["sluicefs"], wrong].concat()).is_err(),
                "{wrong:?}"
            );
        }
    }
}
