//! The buffer that a disk fills after a read while its actuator is idle.
//!
//! There is one stream. It is *live* while the head follows it. When the head leaves, the stream
//! keeps the bytes that were read.

use crate::io::Ns;
use crate::platter::Platter;

#[derive(Default)]
pub(crate) struct Lookahead {
    stream: Option<Stream>,
}

struct Stream {
    /// First byte that the buffer holds.
    start: u64,
    /// The byte that was under the head at `since`. All bytes before it are in the buffer since
    /// then.
    from: u64,
    since: Ns,
    /// Where reading ahead ends.
    limit: u64,
    /// End of the buffered bytes, after the head has left.
    left_at: Option<u64>,
}

impl Stream {
    /// End of the buffered bytes at `now`.
    fn end(&self, platter: Platter, now: Ns) -> u64 {
        self.left_at.unwrap_or_else(|| {
            let passed = platter.passed(now.saturating_sub(self.since));
            (self.from + passed).min(self.limit)
        })
    }
}

impl Lookahead {
    /// Bytes from `offset` on that the buffer holds at `now`.
    pub(crate) fn holds(&self, platter: Platter, now: Ns, offset: u64) -> u64 {
        match &self.stream {
            Some(s) if now >= s.since && offset >= s.start => {
                s.end(platter, now).saturating_sub(offset)
            }
            _ => 0,
        }
    }

    /// The byte under the head at `now`, if the head follows a stream.
    pub(crate) fn head(&self, platter: Platter, now: Ns) -> Option<u64> {
        let live = self.stream.as_ref().filter(|s| s.left_at.is_none());
        live.map(|s| s.end(platter, now))
    }

    /// If a read that arrives at `now` continues the live stream: when the head is (or was) at its
    /// first byte, and when it has passed the last one.
    pub(crate) fn read_on(
        &self,
        platter: Platter,
        now: Ns,
        offset: u64,
        len: u64,
    ) -> Option<(Ns, Ns)> {
        let s = self.stream.as_ref().filter(|s| s.left_at.is_none())?;
        let passes = |at: u64| s.since + platter.transfer(at.saturating_sub(s.from));
        let goes_on = now <= passes(s.limit) || offset + len <= s.limit;
        ((s.start..=s.limit).contains(&offset) && goes_on)
            .then(|| (passes(offset).max(now), passes(offset + len).max(now)))
    }

    /// The head has read `offset..end` by `now` and continues for at most `ahead` bytes, up to
    /// `capacity`. A live stream goes on; a head that came by a seek has left it before.
    pub(crate) fn follow(&mut self, now: Ns, offset: u64, end: u64, ahead: u64, capacity: u64) {
        let start = match &self.stream {
            Some(s) if s.left_at.is_none() => s.start.max(end.saturating_sub(ahead)).min(offset),
            _ => offset,
        };
        self.stream = Some(Stream {
            start,
            from: end,
            since: now,
            limit: (end + ahead).min(capacity).max(end),
            left_at: None,
        });
    }

    /// The head leaves the stream.
    pub(crate) fn leave(&mut self, platter: Platter, now: Ns) {
        if let Some(s) = &mut self.stream {
            s.left_at = Some(s.end(platter, now));
        }
    }
}
