//! Counters of a mount: the extended attribute [`NAME`] of the root directory. It is not listed and
//! cannot be set.

use ext4::Fs;

/// The name of the attribute.
pub(super) const NAME: &[u8] = b"user.sluicefs.stats";

/// The counters as one flat JSON object of integers.
pub(super) fn json(fs: &Fs) -> Vec<u8> {
    let s = fs.stats();
    let fields = [
        ("device_read_ios", s.device.read_ios),
        ("device_read_bytes", s.device.read_bytes),
        ("device_write_ios", s.device.write_ios),
        ("device_write_bytes", s.device.write_bytes),
        ("device_merged", s.device.merged),
        ("device_flushes", s.device.flushes),
        ("device_queue_us", s.device.queue_us),
        ("journal_commits", s.journal.commits),
        ("journal_logged_blocks", s.journal.logged_blocks),
        ("journal_checkpointed_blocks", s.journal.checkpointed_blocks),
        ("dirty_pages", s.dirty_pages),
        ("cached_inodes", s.cached_inodes),
        ("memory_bytes", s.memory_used),
        ("memory_limit_bytes", fs.budget().limit()),
    ];
    let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", fields.join(",")).into_bytes()
}
