//! The kernel's writeback parameters, with its names and defaults.
use std::time::Duration;
/// Changeable while mounted.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    /// Percent of the memory budget that may be dirty before writers are stopped.
    pub dirty_ratio: u32,
    /// Percent of the memory budget that may be dirty before the flusher starts.
    pub dirty_background_ratio: u32,
    /// Age at which dirty data is written.
    pub dirty_expire: Duration,
    /// How often the flusher looks for aged data.
    pub dirty_writeback: Duration,
}
impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            dirty_ratio: 20,
            dirty_background_ratio: 10,
            dirty_expire: Duration::from_secs(30),
            dirty_writeback: Duration::from_secs(5),
        }
    }
}
