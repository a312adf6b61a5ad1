//! The transport of the FUSE mounts that a test makes.
//!
//! `SLUICE_TEST_TRANSPORT=uring` in the environment runs the tests of mounts over io_uring; `./x
//! test` does so in a second pass. Without it they use `/dev/fuse`.

const VARIABLE: &str = "SLUICE_TEST_TRANSPORT";

/// The mount option that selects the transport, for example `transport=uring`.
pub fn option() -> String {
    match std::env::var(VARIABLE) {
        Ok(transport) if !transport.is_empty() => format!("transport={transport}"),
        _ => "transport=dev".to_owned(),
    }
}

/// Adds the mount option to a list of others. An option in the list overrides it.
pub fn with_options(others: &str) -> String {
    format!("{},{others}", option())
}
