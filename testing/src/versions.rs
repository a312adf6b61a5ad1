//! Files whose contents name their version, and the acknowledgements that a worker got before a
//! kill.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use testkit::seed::Rng;

/// The possible versions of a file that is replaced repeatedly.
#[derive(Clone, Copy, Default)]
pub struct Versions {
    /// The newest possible version.
    pub begun: u64,
    /// The oldest possible version.
    pub acknowledged: u64,
}

/// The acknowledgements that a worker got.
#[derive(Default)]
pub struct Told {
    /// Names and versions of files that were made durable.
    pub files: Vec<(String, u64)>,
    /// The file that is replaced repeatedly.
    pub saved: Versions,
}

/// The contents of a version. They begin with its number; every version has another length.
pub fn contents(version: u64) -> Vec<u8> {
    let len = 100 + (version * 977 % 13_000) as usize;
    let mut rng = Rng::from_seed(version);
    let mut data = version.to_le_bytes().to_vec();
    data.extend(rng.bytes(len));
    data
}

/// Asserts that a file has the contents of one of the possible versions.
///
/// # Panics
/// If it has not.
pub fn assert_version(data: &[u8], versions: Versions, what: &str) {
    assert!(data.len() >= 8, "{what}: {} bytes", data.len());
    let version = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert!(
        (versions.acknowledged..=versions.begun).contains(&version),
        "{what}: version {version}, but {} was durable",
        versions.acknowledged
    );
    assert!(
        data == contents(version),
        "{what}: version {version} in pieces"
    );
}

/// Creates and replaces files until the daemon is gone.
pub fn work(dir: &Path, round: usize, worker: usize) -> Told {
    let mut told = Told::default();
    let base = dir.join(format!("w{round}-{worker}"));
    let _: std::io::Result<()> = (|| {
        fs::create_dir(&base)?;
        for i in 1.. {
            let name = format!("w{round}-{worker}/{i}");
            let mut file = File::create(dir.join(&name))?;
            file.write_all(&contents(i))?;
            file.sync_all()?;
            told.files.push((name, i));
            told.saved.begun = i;
            let new = base.join("new");
            let mut file = File::create(&new)?;
            file.write_all(&contents(i))?;
            file.sync_all()?;
            drop(file);
            fs::rename(&new, base.join("saved"))?;
            File::open(&base)?.sync_all()?;
            told.saved.acknowledged = i;
        }
        Ok(())
    })();
    told
}
