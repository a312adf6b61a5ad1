//! The devices that a volume can be on. A new kind of device is one line in [`SCHEMES`].

use block::Schemes;

/// The schemes of device URLs, besides plain paths.
pub const SCHEMES: Schemes = Schemes(&[block::MEMORY_SCHEME, sim::SCHEME]);
