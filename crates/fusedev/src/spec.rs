//! Mount options, in the forms that mount(2), fsmount(2), fusermount3 and the helper take.

use rustix::mount::{MountAttrFlags, MountFlags};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The source and the options of a mount.
#[derive(Clone, Debug, Default)]
pub struct MountSpec {
    /// Source in the mount table.
    pub source: OsString,
    /// The part of the type after `fuse.` in the mount table.
    pub subtype: Cow<'static, str>,
    /// Mounts read-only.
    pub read_only: bool,
    /// Lets users other than the mounting user in.
    pub allow_other: bool,
    /// Lets the kernel check permissions.
    pub default_permissions: bool,
    /// Honours set-user-ID and set-group-ID bits.
    pub suid: bool,
    /// Lets device files be opened.
    pub dev: bool,
    /// Lets programs be run.
    pub exec: bool,
    /// Access times are not updated.
    pub noatime: bool,
    /// Symbolic links are not followed. fusermount3 does not know this option.
    pub nosymfollow: bool,
    /// Makes every write synchronous.
    pub sync: bool,
    /// Makes every change of a directory synchronous.
    pub dirsync: bool,
}

impl MountSpec {
    /// Options of the FUSE file system, without the descriptor of the connection.
    pub(crate) fn fuse_options(&self) -> Vec<(&'static str, Option<String>)> {
        let mut options = vec![
            ("rootmode", Some("40000".to_owned())),
            (
                "user_id",
                Some(rustix::process::geteuid().as_raw().to_string()),
            ),
            (
                "group_id",
                Some(rustix::process::getegid().as_raw().to_string()),
            ),
            ("subtype", Some(self.subtype.to_string())),
        ];
        for (name, on) in self.fuse_switches() {
            if on {
                options.push((name, None));
            }
        }
        options
    }

    fn fuse_switches(&self) -> [(&'static str, bool); 2] {
        [
            ("allow_other", self.allow_other),
            ("default_permissions", self.default_permissions),
        ]
    }

    /// Flags for mount(2).
    pub(crate) fn flags(&self) -> MountFlags {
        [
            (self.read_only, MountFlags::RDONLY),
            (!self.suid, MountFlags::NOSUID),
            (!self.dev, MountFlags::NODEV),
            (!self.exec, MountFlags::NOEXEC),
            (self.nosymfollow, MountFlags::NOSYMFOLLOW),
            (self.noatime, MountFlags::NOATIME),
            (self.sync, MountFlags::SYNCHRONOUS),
            (self.dirsync, MountFlags::DIRSYNC),
        ]
        .into_iter()
        .filter_map(|(on, flag)| on.then_some(flag))
        .collect()
    }

    /// Flags for fsmount(2), which takes those of one mount only.
    pub(crate) fn attributes(&self) -> MountAttrFlags {
        [
            (self.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (!self.suid, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (!self.dev, MountAttrFlags::MOUNT_ATTR_NODEV),
            (!self.exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (self.nosymfollow, MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
            (self.noatime, MountAttrFlags::MOUNT_ATTR_NOATIME),
        ]
        .into_iter()
        .filter_map(|(on, flag)| on.then_some(flag))
        .collect()
    }

    /// The value of `-o` for fusermount3, which escapes commas by backslashes.
    pub(crate) fn words(&self) -> OsString {
        let word = |on: bool, yes: &'static str, no: &'static str| if on { yes } else { no };
        let mut words = OsString::from("fsname=");
        for &byte in self.source.as_bytes() {
            if matches!(byte, b',' | b'\\') {
                words.push("\\");
            }
            words.push(OsStr::from_bytes(&[byte]));
        }
        let mut add = |text: &str| {
            words.push(",");
            words.push(text);
        };
        add(&format!("subtype={}", self.subtype));
        add(word(self.read_only, "ro", "rw"));
        add(word(self.suid, "suid", "nosuid"));
        add(word(self.dev, "dev", "nodev"));
        add(word(self.exec, "exec", "noexec"));
        let others = [
            ("nosymfollow", self.nosymfollow),
            ("noatime", self.noatime),
            ("sync", self.sync),
            ("dirsync", self.dirsync),
        ];
        for (name, on) in others.into_iter().chain(self.fuse_switches()) {
            if on {
                add(name);
            }
        }
        words
    }

    /// Encodes the mount for the helper: one byte for each switch, then the subtype and the source
    /// with a NUL between them.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.clone().switches().map(|on| u8::from(*on)).to_vec();
        bytes.extend_from_slice(self.subtype.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(self.source.as_bytes());
        bytes
    }

    /// Decodes the result of [`MountSpec::encode`].
    pub(crate) fn decode(bytes: &[u8]) -> io::Result<MountSpec> {
        let mut spec = MountSpec::default();
        let switches = spec.switches();
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let (set, rest) = bytes.split_at_checked(switches.len()).ok_or_else(invalid)?;
        for (switch, &on) in switches.into_iter().zip(set) {
            *switch = on != 0;
        }
        let mut words = rest.splitn(2, |&byte| byte == 0);
        let subtype = words.next().unwrap_or_default();
        let source = words.next().ok_or_else(invalid)?;
        spec.subtype = String::from_utf8_lossy(subtype).into_owned().into();
        spec.source = OsString::from_vec(source.to_vec());
        Ok(spec)
    }

    fn switches(&mut self) -> [&mut bool; 10] {
        [
            &mut self.read_only,
            &mut self.allow_other,
            &mut self.default_permissions,
            &mut self.suid,
            &mut self.dev,
            &mut self.exec,
            &mut self.nosymfollow,
            &mut self.noatime,
            &mut self.sync,
            &mut self.dirsync,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_fusermount() {
        let spec = MountSpec {
            source: "/a,b\\c".into(),
            subtype: "sluicefs".into(),
            exec: true,
            noatime: true,
            default_permissions: true,
            ..MountSpec::default()
        };
        let words =
            "fsname=/a\\,b\\\\c,subtype=sluicefs,rw,nosuid,nodev,exec,noatime,default_permissions";
        assert_eq!(spec.words(), words);
    }

    #[test]
    fn encoded_options_are_decoded() {
        let spec = MountSpec {
            source: "/a disk, or so".into(),
            subtype: "sluicefs".into(),
            read_only: true,
            exec: true,
            dirsync: true,
            ..MountSpec::default()
        };
        let decoded = MountSpec::decode(&spec.encode()).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{spec:?}"));
        assert!(MountSpec::decode(b"short").is_err());
    }
}
